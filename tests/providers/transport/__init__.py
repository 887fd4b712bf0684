"""Tests of the HTTP transports."""
