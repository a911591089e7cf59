"""Code that several actors share; nothing here is an actor."""
