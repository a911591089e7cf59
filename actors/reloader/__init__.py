"""The reloader: runs vtysh beside FRR in a podman pod, for the daemon on the host."""
