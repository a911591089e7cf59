"""Pings the host side of sessions, and configured addresses in their VRFs."""
