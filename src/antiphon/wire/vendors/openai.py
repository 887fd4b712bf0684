"""What Chat Completions and Responses share: image types and errors of the OpenAI API."""

from __future__ import annotations

from typing import Any

from antiphon.wire.errors import ErrorTable, WrittenError, own_code, own_extras, read_provider_error
from antiphon.wire.media import IMAGE_TYPES as COMMON_IMAGE_TYPES
from antiphon.wire.output import ErrorKind, ProviderError

IMAGE_TYPES = (*COMMON_IMAGE_TYPES, "image/jpg")

_WRITTEN: dict[ErrorKind, WrittenError] = {
    "invalid_request": WrittenError("invalid_request_error"),
    "context_length": WrittenError("invalid_request_error", "context_length_exceeded"),
    "authentication": WrittenError("invalid_request_error", "invalid_api_key"),
    "billing": WrittenError("insufficient_quota", "insufficient_quota"),
    "permission": WrittenError("permission_error"),
    "not_found": WrittenError("invalid_request_error", "model_not_found"),
    "timeout": WrittenError("timeout_error", "timeout"),
    "conflict": WrittenError("conflict_error"),
    "too_large": WrittenError("invalid_request_error", "request_too_large"),
    "rate_limit": WrittenError("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": WrittenError("server_error", "server_is_overloaded"),
    "server": WrittenError("server_error"),
    "stream_cut": WrittenError("server_error", "stream_cut"),
    "unknown": WrittenError("unknown_error"),
}


def _table(name: str) -> ErrorTable:
    return ErrorTable(
        format=name,
        code_field="code",
        read_fields=frozenset({"message", "code", "param"}),
        written=_WRITTEN,
        vendor_formats=("openai-chat", "openai-responses"),
        any_code=True,
    )


CHAT_ERRORS, RESPONSES_ERRORS = _table("openai-chat"), _table("openai-responses")


def read_error(body: object, status: int | None, table: ErrorTable) -> ProviderError:
    """The error in a body of an OpenAI API or of a host that imitates it."""
    return read_provider_error(body, status, table)


def write_error(error: ProviderError, table: ErrorTable) -> dict[str, Any]:
    """An error body as OpenAI writes it."""
    row = table.written[error.kind]
    outer, inner = own_extras(error, table)
    code = own_code(error, table) or row.code
    return {"error": {"message": error.message, "type": row.type, "param": error.param, "code": code, **inner}, **outer}


def error_code(error: ProviderError, table: ErrorTable) -> str:
    """The code of a failed response."""
    return own_code(error, table) or table.written[error.kind].code or "server_error"
