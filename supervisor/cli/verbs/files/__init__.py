"""Verbs for the configuration: checking it, planning it, trying it."""
