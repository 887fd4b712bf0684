"""Tests of the chat in a browser."""
