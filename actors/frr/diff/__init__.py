"""Compares the running with the intended FRR configuration: grammar, difference, commands."""
