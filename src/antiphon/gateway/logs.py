"""The documented import path of names in `antiphon.gateway.observe.logs`."""

from antiphon.gateway.observe.logs import configure_logs, request_named

__all__ = ["configure_logs", "request_named"]
