"""What users write and what it means: models, loading, validation, resolution, and the data that actors exchange.

Pure: nothing here does I/O but reading files, and nothing here imports ``supervisor`` or ``actors``.
"""
