"""Tests of `antiphon.gateway.http`."""
