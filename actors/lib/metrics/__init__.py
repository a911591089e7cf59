"""What monitoring sees: the metrics' descriptions, what the actors count, and both with the status as text."""
