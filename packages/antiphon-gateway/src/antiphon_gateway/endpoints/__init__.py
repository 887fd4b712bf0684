"""The handlers of the endpoints that do not generate."""
