"""Running commands and probes inside the router's network namespace and VRFs."""
