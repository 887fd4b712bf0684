"""Errors of the Interactions API: `{"error": {"code", "message"}}`, the code in words; also an `error` event of a stream."""

from __future__ import annotations

from typing import Any

from antiphon.wire.errors import ErrorTable, WrittenError, own_code, own_fields, read_provider_error
from antiphon.wire.gemini.errors import STATUSES
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.output import ErrorKind, ProviderError

_WRITTEN: dict[ErrorKind, WrittenError] = {
    kind: row._replace(code="invalid_request" if row.type == "INVALID_ARGUMENT" else row.type.lower())
    for kind, row in STATUSES.items()
}
"""The codes are the statuses of generateContent in small letters, with one exception."""
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
    outer, inner = own_fields(error, _ERRORS)
    return {"error": {**error_object(error), **inner}, **outer}


def error_object(error: ProviderError) -> dict[str, Any]:
    """Code and message of an error."""
    return {"code": own_code(error, _ERRORS) or _WRITTEN[error.kind].code, "message": error.message}
