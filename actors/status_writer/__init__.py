"""What the cluster sees of this node: its status object, Events about its Node, its index."""
