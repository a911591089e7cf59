"""What the router is actually doing: asks FRR, judges its answers against the desired state, logs changes."""
