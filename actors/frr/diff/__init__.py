"""Running and intended FRR configuration compared: grammar, difference, and the commands that remove it."""
