"""Tests of `antiphon.http.server`. What the gateway serves with it is tested in `gateway/http`."""
