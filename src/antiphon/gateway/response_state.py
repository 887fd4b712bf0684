"""The documented import path of names in `antiphon.gateway.endpoints.response_store`."""

from antiphon.gateway.endpoints.response_store import ResponseStore

ResponseState = ResponseStore

__all__ = ["ResponseState", "ResponseStore"]
