"""A configuration on trial: gathering the candidate, committing it to the configuration directory, rolling back."""
