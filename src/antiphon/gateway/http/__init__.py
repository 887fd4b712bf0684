"""The HTTP server: listeners, connections, requests and responses."""
