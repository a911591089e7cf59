"""Verbs that work on configuration files rather than on the running router."""
