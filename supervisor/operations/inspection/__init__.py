"""Looking at a running node."""
