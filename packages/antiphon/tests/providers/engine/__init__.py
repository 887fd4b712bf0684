"""Tests of the call engine."""
