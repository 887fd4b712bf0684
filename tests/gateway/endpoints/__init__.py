"""Tests of `antiphon.gateway.endpoints`."""
