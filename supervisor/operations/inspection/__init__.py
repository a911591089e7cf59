"""Views of a running node: its status, one session or VNI, and the whole as a tree."""
