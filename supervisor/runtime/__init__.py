"""The actor runtime: supervision, restart policies, channels and the watchdog. Knows nothing of routers."""
