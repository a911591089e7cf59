"""``openperouter controller``: the one writer of what concerns several nodes at once. Nodes do not need it."""
