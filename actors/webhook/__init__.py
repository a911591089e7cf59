"""The validating admission webhook: what the API server asks before it stores one of our objects."""
