"""Looking at a running node: its status, one session or VNI of it, and the whole as a tree."""
