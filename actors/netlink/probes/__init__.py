"""Pings the hosts' ends of sessions, and configured addresses in their VRFs."""
