"""Tests of `antiphon.gateway.generate`."""
