"""One status out of everything known: for systemd, the control socket, the command line and the state file."""
