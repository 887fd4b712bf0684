"""Tests of `antiphon.gateway.config`."""
