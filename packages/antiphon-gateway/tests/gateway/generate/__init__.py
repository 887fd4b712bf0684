"""Tests of `antiphon_gateway.generate`."""
