"""Verbs for the running router: the daemon, FRR, the kernel."""
