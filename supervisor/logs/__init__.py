"""Logging: the logger, its sinks, message IDs of the journal catalog, and throttling of repeated warnings."""
