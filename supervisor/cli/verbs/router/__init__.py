"""The verbs that act inside the router: in its network namespace, one of its VRFs, or FRR's shell."""
