"""The custom resource definitions: what the API server accepts and keeps, made from the models that check the files."""
