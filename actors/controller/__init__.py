"""``openperouter controller``: the only writer of what concerns several nodes. Nodes do not need it."""
