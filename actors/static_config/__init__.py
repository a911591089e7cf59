"""Files in, snapshots out: watch the static configuration, keep what was last good, publish complete values."""
