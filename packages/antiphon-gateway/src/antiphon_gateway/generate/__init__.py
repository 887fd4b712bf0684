"""Requests to models: preparing them, calling providers and relaying responses."""
