"""Access to FRR's daemons: vtysh, the lock that serialises mgmtd sessions, and process state."""
