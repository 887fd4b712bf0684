"""Who may use the gateway: client keys, origins and rate limits."""
