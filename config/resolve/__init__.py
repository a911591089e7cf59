"""From resources to the desired state: precedence, addresses, sessions."""
