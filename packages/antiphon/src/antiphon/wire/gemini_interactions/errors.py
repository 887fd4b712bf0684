"""Errors of the Interactions API: `{"error": {"code", "message"}}`, the code in words; also an `error` event of a stream."""

from __future__ import annotations

from antiphon.wire.errors import ErrorTable, WrittenError
from antiphon.wire.gemini.errors import STATUSES
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.output import ErrorKind

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
    fields=lambda error, row, code: {"code": code or row.code, "message": error.message},
    vendor_formats=(FORMAT,),
    any_code=True,
)
read_error, write_error, error_object = _ERRORS.read, _ERRORS.write, _ERRORS.write_object
