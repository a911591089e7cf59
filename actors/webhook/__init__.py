"""The validating admission webhook, which the API server calls before it stores one of our objects."""
