"""What several actors share to use the API server: credentials, one HTTP client, errors by what to do about them."""
