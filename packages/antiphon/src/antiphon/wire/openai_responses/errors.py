"""Errors of Responses: whole bodies, and the `error` of a failed response in a stream."""

from __future__ import annotations

from typing import Any

from antiphon.wire.output import ProviderError
from antiphon.wire.shared_openai import RESPONSES, error_table

_ERRORS = error_table(RESPONSES)
read_error, write_error = _ERRORS.read, _ERRORS.write


def response_error(error: ProviderError) -> dict[str, Any]:
    return {"code": _ERRORS.write_object(error)["code"] or "server_error", "message": error.message}
