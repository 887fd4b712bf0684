"""Commands about the gateway: run it, check and test it, and manage its keys, its spend and its recordings."""
