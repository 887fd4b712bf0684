"""Errors of Gemini: `{"error": {"code", "message", "status", "details"}}`, also in a list of one and within a stream."""

from __future__ import annotations

from antiphon.wire.errors import ErrorTable, WrittenError
from antiphon.wire.output import ErrorKind

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
    fields=lambda error, row, code: {
        "code": row.status if error.status is None else error.status,
        "message": error.message,
        "status": code or row.type,
    },
    vendor_formats=("gemini",),
    any_code=False,
)
read_error, write_error = _ERRORS.read, _ERRORS.write
