"""The way to the API server: credentials as they come and go, and whether a server answers to them."""
