"""Errors of Gemini: `{"error": {"code", "message", "status", "details"}}`, also in a list of one and within a stream."""

from __future__ import annotations

from typing import Any

from antiphon.wire.errors import ErrorTable, WrittenError, own_code, own_fields, read_provider_error
from antiphon.wire.output import ErrorKind, ProviderError

STATUSES: dict[ErrorKind, WrittenError] = {
    "invalid_request": WrittenError("INVALID_ARGUMENT", status=400),
    "context_length": WrittenError("INVALID_ARGUMENT", status=400),
    "too_large": WrittenError("INVALID_ARGUMENT", status=413),
    "authentication": WrittenError("UNAUTHENTICATED", status=401),
    "billing": WrittenError("FAILED_PRECONDITION", status=402),
    "permission": WrittenError("PERMISSION_DENIED", status=403),
    "not_found": WrittenError("NOT_FOUND", status=404),
    "conflict": WrittenError("ABORTED", status=409),
    "timeout": WrittenError("DEADLINE_EXCEEDED", status=504),
    "rate_limit": WrittenError("RESOURCE_EXHAUSTED", status=429),
    "overloaded": WrittenError("UNAVAILABLE", status=503),
    "server": WrittenError("INTERNAL"),
    "stream_cut": WrittenError("INTERNAL"),
    "unknown": WrittenError("UNKNOWN"),
}
_ERRORS = ErrorTable(
    format="gemini",
    code_field="status",
    read_fields=frozenset({"code", "status", "message"}),
    written=STATUSES,
    vendor_formats=("gemini",),
    any_code=False,
)


def read_error(body: object, status: int | None = None) -> ProviderError:
    """The error in a body of any shape."""
    return read_provider_error(body, status, _ERRORS)


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error body in Google's shape."""
    row = STATUSES[error.kind]
    outer, inner = own_fields(error, _ERRORS)
    fields = {
        "code": row.status if error.status is None else error.status,
        "message": error.message,
        "status": own_code(error, _ERRORS) or row.type,
    }
    return {"error": {**fields, **inner}, **outer}
