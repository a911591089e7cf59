"""The crd_watch actor: the state of the API server that concerns this node, complete or not at all."""
