"""From files and API objects to resources."""
