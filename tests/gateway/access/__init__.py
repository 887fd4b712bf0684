"""Tests of `antiphon.gateway.access`."""
