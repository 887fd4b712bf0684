"""The documented import path of names in `antiphon.gateway.endpoints.response_store`."""

from antiphon.gateway.endpoints.response_store import ResponseState

__all__ = ["ResponseState"]
