"""Typed output: an answer as a checked value of a Python type."""
