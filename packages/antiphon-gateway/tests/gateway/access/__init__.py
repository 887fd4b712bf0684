"""Tests of `antiphon_gateway.access`."""
