"""Tests of the providers, and the server that they speak to."""
