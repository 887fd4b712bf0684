"""Errors of OpenAI Responses and of the hosts that speak it, whole or within a stream.

The shapes seen: `{"error": {"message", "type", "param", "code"}}` (OpenAI), the inner object alone (in streams, and of failed
responses), `{"error": "text", "code": "…"}` (xAI), `{"detail": …}` (ChatGPT), and texts or pages that are no JSON at all. An
error is classified by its code, then by its words, then by the status: an invalid key is a 400 at some hosts, and a spent
quota comes with 400, 429 or within a 200.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec

from antiphon.wire.openai_responses.content import FORMAT, Body
from antiphon.wire.output import ErrorKind, ProviderError, kind_of_status

_KINDS: dict[ErrorKind, str] = {
    "billing": "insufficient_quota billing_hard_limit_reached",
    "context_length": "context_length_exceeded exceed_context_size_error",
    "authentication": "invalid_api_key authentication_error",
    "permission": "permission_denied unsupported_country_region_territory",
    "not_found": "model_not_found previous_response_not_found",
    "rate_limit": "rate_limit_exceeded rate_limit_error",
    "overloaded": "server_is_overloaded overloaded_error slow_down",
    "server": "server_error internal_server_error api_error",
    "timeout": "timeout",
    "stream_cut": "stream_cut",
    "too_large": "request_too_large",
    "conflict": "conflict",
    "invalid_request": "invalid_prompt",
}
"""The codes that tell a kind of error; the first is the one that is written for it."""
_CODES: dict[str, ErrorKind] = {code: kind for kind, codes in _KINDS.items() for code in codes.split()}
_WORDS: tuple[tuple[str, ErrorKind], ...] = (
    (r"exceeded your current quota|insufficient (credit|balance|quota)|credit balance is too low", "billing"),
    (
        r"context (window|length|size)|maximum context|(prompt|input) is too long|prompt too long|too many tokens"
        r"|input token count .* exceeds|token limit reached|total length of all messages",
        "context_length",
    ),
    (
        r"(incorrect|invalid|missing|expired) (api[ _]?key|authentication|credentials|x-api-key|subscription key)"
        r"|api[ _]key (is )?(not valid|invalid|expired)|authentication (token|fails)|auth credentials|unauthorized",
        "authentication",
    ),
    (r"rate limit|too many requests|requests per (min|day)|tokens per (min|day)", "rate_limit"),
    (r"model .{0,80}(does not exist|not found)|model not found|(no|not a valid) model", "not_found"),
    (r"overloaded|at capacity|temporarily unavailable", "overloaded"),
)
_WORD_KINDS = [(re.compile(words, re.IGNORECASE | re.DOTALL).search, kind) for words, kind in _WORDS]
_LONGEST = 2000
_TYPES: dict[ErrorKind, str] = {
    "billing": "insufficient_quota",
    "rate_limit": "rate_limit_error",
    "overloaded": "server_error",
    "server": "server_error",
    "stream_cut": "server_error",
    "timeout": "server_error",
    "unknown": "server_error",
}
_KIND_CODES: dict[ErrorKind, str] = {
    kind: codes.split()[0] for kind, codes in _KINDS.items() if kind != "invalid_request"
}


def read_error(body: Any, status: int | None = None) -> ProviderError:
    """What an error body says, whatever it is."""
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str):
        with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
            body = msgspec.json.decode(body)
    if isinstance(body, list) and body:
        body = body[0]
    found = _error_object(body)
    message = _text(found.get("message")) or _text(found.get("detail"))
    if not message:
        said = body.strip() if isinstance(body, str) else ""
        message = said[:_LONGEST] or (f"HTTP status {status}" if status else "the provider did not say what went wrong")
    code, kind = _text(found.get("code")), _text(found.get("type"))
    return ProviderError(
        message,
        _classify(status, code, kind, message),
        status,
        code or None,
        _text(found.get("param")) or None,
        {FORMAT: {"body": body}} if isinstance(body, dict) else None,
    )


def _error_object(body: Any) -> Body:
    if not isinstance(body, dict):
        return {}
    error = body.get("error")
    if isinstance(error, dict):
        return error
    return {**body, "message": error} if isinstance(error, str) else body


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, int | float):
        return str(value)
    try:
        return msgspec.json.encode(value).decode()[:_LONGEST]
    except (TypeError, ValueError, RecursionError):
        return ""


def _classify(status: int | None, code: str, kind: str, message: str) -> ErrorKind:
    for word in (code, kind):
        if word in _CODES:
            return _CODES[word]
    for has_words, found in _WORD_KINDS:
        if has_words(message):
            return found
    told = kind_of_status(status) or kind_of_status(int(code) if code.isdecimal() and len(code) == 3 else None)
    if told is not None:
        return told
    if kind == "invalid_request_error" or code.startswith(("invalid", "unsupported", "missing", "unknown_parameter")):
        return "invalid_request"
    return "unknown"


def write_error(error: ProviderError) -> Body:
    """An error body as OpenAI writes it."""
    own = (error.native or {}).get(FORMAT, {}).get("body")
    if isinstance(own, dict) and isinstance(own.get("error"), dict) and isinstance(own["error"].get("message"), str):
        return own
    return {
        "error": {
            "message": error.message,
            "type": _TYPES.get(error.kind, "invalid_request_error"),
            "param": error.param,
            "code": error.code or _KIND_CODES.get(error.kind),
        }
    }


def failure(error: ProviderError) -> Body:
    """The `error` of a failed response."""
    return {"code": error.code or _KIND_CODES.get(error.kind, "server_error"), "message": error.message}
