"""Shows in the API what comes from files: one labelled object for each resource, for readers only."""
