"""Errors of the Messages API: `{"type": "error", "error": {"type", "message"}}`."""

from __future__ import annotations

from msgspec import structs

from antiphon.wire.errors import ErrorTable, WrittenError
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
    fields=lambda error, row, code: {"type": code or row.type, "message": error.message},
    vendor_formats=("anthropic",),
    any_code=False,
    outer={"type": "error"},
)
write_error = _ERRORS.write


def read_error(body: object, status: int | None = None) -> ProviderError:
    """The error in a body of any shape. In a stream its type has the status."""
    error = _ERRORS.read(body, status)
    if error.status is None and error.code in _STATUS_BY_TYPE:
        return structs.replace(error, status=_STATUS_BY_TYPE[error.code])
    return error
