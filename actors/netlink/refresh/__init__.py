"""Silent hosts: confirms a segment's learned MACs and neighbours before they age out."""
