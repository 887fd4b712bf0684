"""Tests of `antiphon.gateway.cluster`."""
