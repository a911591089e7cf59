"""State kept on disk."""
