"""Rules between resources, and between a resource and this node. Rules of one object alone live in its model."""
