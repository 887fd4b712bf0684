"""Errors of the Interactions API: `{"error": {"code", "message"}}`, the code in words; also an `error` event of a stream."""

from __future__ import annotations

from typing import Any

from antiphon.wire.errors import ErrorTable, WrittenError, own_code, own_extras, read_provider_error
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.output import ErrorKind, ProviderError

_WRITTEN: dict[ErrorKind, WrittenError] = {
    "invalid_request": WrittenError("invalid_request", "invalid_request", 400),
    "context_length": WrittenError("invalid_request", "invalid_request", 400),
    "too_large": WrittenError("invalid_request", "invalid_request", 413),
    "authentication": WrittenError("unauthenticated", "unauthenticated", 401),
    "billing": WrittenError("failed_precondition", "failed_precondition", 402),
    "permission": WrittenError("permission_denied", "permission_denied", 403),
    "not_found": WrittenError("not_found", "not_found", 404),
    "conflict": WrittenError("aborted", "aborted", 409),
    "timeout": WrittenError("deadline_exceeded", "deadline_exceeded", 504),
    "rate_limit": WrittenError("resource_exhausted", "resource_exhausted", 429),
    "overloaded": WrittenError("unavailable", "unavailable", 503),
    "server": WrittenError("internal", "internal"),
    "stream_cut": WrittenError("internal", "internal"),
    "unknown": WrittenError("unknown", "unknown"),
}
_ERRORS = ErrorTable(
    format=FORMAT,
    code_field="code",
    read_fields=frozenset({"code", "message"}),
    written=_WRITTEN,
    vendor_formats=(FORMAT,),
    any_code=True,
)


def read_error(body: object, status: int | None = None) -> ProviderError:
    """The error in a body of any shape."""
    return read_provider_error(body, status, _ERRORS)


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error body in the API's shape."""
    outer, inner = own_extras(error, _ERRORS)
    return {"error": {**error_object(error), **inner}, **outer}


def error_object(error: ProviderError) -> dict[str, Any]:
    """Code and message of an error."""
    return {"code": own_code(error, _ERRORS) or _WRITTEN[error.kind].code, "message": error.message}
