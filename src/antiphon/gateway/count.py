"""The documented import path of names in `antiphon.gateway.endpoints.tokens`."""

from antiphon.gateway.endpoints.tokens import count_here

__all__ = ["count_here"]
