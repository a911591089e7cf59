"""The api_wait actor: the connection to the API server, as credentials and servers come and go."""
