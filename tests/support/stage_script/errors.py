"""Errors: `{"boo": message}`."""

from __future__ import annotations

from typing import Any

from antiphon.wire.output import ProviderError, kind_of_status


def read_error(body: object, status: int | None) -> ProviderError:
    """The error in a body."""
    message = body.get("boo") if isinstance(body, dict) else None
    return ProviderError(str(message or body), kind_of_status(status) or "unknown", status=status)


def write_error(error: ProviderError) -> dict[str, Any]:
    """The body of an error."""
    return {"boo": error.message}
