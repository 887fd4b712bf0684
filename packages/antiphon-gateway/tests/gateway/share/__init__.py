"""Tests of `antiphon_gateway.cluster`."""
