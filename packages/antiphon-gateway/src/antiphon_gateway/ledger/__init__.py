"""The operator database of the gateway, and the usage ledger in it."""
