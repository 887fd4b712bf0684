"""The documented import path of names in `antiphon.gateway.observe.logs`."""

from antiphon.gateway.observe.logs import configure_logs, request_id_scope

request_named = request_id_scope

__all__ = ["configure_logs", "request_id_scope", "request_named"]
