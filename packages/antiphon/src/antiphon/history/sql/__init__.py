"""Stores over SQL databases: one implementation and two dialects."""
