"""Silent hosts: what the router learned of a segment's hosts is confirmed before it ages out."""
