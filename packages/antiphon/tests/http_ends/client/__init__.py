"""Tests of `antiphon.http.client`."""
