"""From what users wrote to what the node should be: merge, validate, resolve, number the result."""
