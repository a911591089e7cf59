"""What the cluster gets to see of this node: its status object, conditions on what it was given, Events, its index."""
