"""Tests of `antiphon_gateway.endpoints`."""
