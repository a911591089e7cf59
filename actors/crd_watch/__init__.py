"""The crd_watch actor: what the API server says about this node, complete or not at all."""
