"""The documented import path of names in `antiphon.gateway.state.store`."""

from antiphon.gateway.state.store import ResponseStore

ResponseState = ResponseStore

__all__ = ["ResponseState", "ResponseStore"]
