"""Tapes at the gateway: what clients ask is recorded with its answers, and answered again from the recording."""
