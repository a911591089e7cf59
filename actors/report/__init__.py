"""Report the node's state: one status, published for systemd and the control socket, and written to files."""
