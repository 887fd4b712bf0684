"""Tests of `antiphon_gateway.observe`."""
