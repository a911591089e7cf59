"""The verbs that are about the cluster."""
