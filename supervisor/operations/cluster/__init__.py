"""How a node gets its credentials for the API server: from a pod on it, or from an administrator."""
