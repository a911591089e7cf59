"""The way to the API server that several actors share: one HTTP client with errors that say whether to retry."""
