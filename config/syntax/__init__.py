"""From bytes to values: files, YAML with positions, secret files, and model errors as problems."""
