"""Tests of `antiphon.gateway.observe`."""
