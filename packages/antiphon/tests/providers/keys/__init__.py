"""Tests of keys, their health and the pool."""
