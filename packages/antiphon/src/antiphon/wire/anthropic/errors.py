"""Errors of the Messages API: `{"type": "error", "error": {"type", "message"}}`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.wire.errors import ErrorTable, WrittenError, own_code, own_fields, read_provider_error
from antiphon.wire.output import ErrorKind, ProviderError

_WRITTEN: dict[ErrorKind, WrittenError] = {
    "invalid_request": WrittenError("invalid_request_error", status=400),
    "authentication": WrittenError("authentication_error", status=401),
    "billing": WrittenError("billing_error", status=402),
    "permission": WrittenError("permission_error", status=403),
    "not_found": WrittenError("not_found_error", status=404),
    "conflict": WrittenError("conflict_error", status=409),
    "too_large": WrittenError("request_too_large", status=413),
    "rate_limit": WrittenError("rate_limit_error", status=429),
    "timeout": WrittenError("timeout_error", status=504),
    "overloaded": WrittenError("overloaded_error", status=529),
    "server": WrittenError("api_error"),
    "context_length": WrittenError("invalid_request_error", status=400),
    "stream_cut": WrittenError("api_error"),
    "unknown": WrittenError("api_error"),
}
_STATUS_BY_TYPE = {row.type: row.status for row in _WRITTEN.values()}
_ERRORS = ErrorTable(
    format="anthropic",
    code_field="type",
    read_fields=frozenset({"type", "message"}),
    written=_WRITTEN,
    vendor_formats=("anthropic",),
    any_code=False,
)


def read_error(body: object, status: int | None = None) -> ProviderError:
    """The error in a body of any shape."""
    error = read_provider_error(body, status, _ERRORS)
    if error.status is None and error.code in _STATUS_BY_TYPE:
        return structs.replace(error, status=_STATUS_BY_TYPE[error.code])
    return error


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error body in Anthropic's shape."""
    outer, inner = own_fields(error, _ERRORS)
    name = own_code(error, _ERRORS) or _WRITTEN[error.kind].type
    return {"type": "error", "error": {"type": name, "message": error.message, **inner}, **outer}
