"""The metrics_endpoint actor: lets Prometheus scrape the metrics, if a setting asks for it."""
