"""Tests of the gateway, and the providers and clients it stands between."""
