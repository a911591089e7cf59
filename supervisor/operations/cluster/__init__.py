"""What the cluster's side runs and needs: credentials for nodes, the controller, the webhook, the manifests."""
