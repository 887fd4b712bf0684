"""Tests of `antiphon_gateway.config`."""
