"""What went wrong, in the many shapes in which Chat Completions hosts say it.

Theory of operation. The error is looked for where hosts put it (`error`, `detail`, the top level, the first of a list, plain
text or a page); then its kind is told by its code and type, by its words, and last by the status: an invalid key is a 400 at
some hosts, a missing model too. The table of words was made from every recorded error.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from antiphon.wire.html_text import is_page, page_text
from antiphon.wire.openai_chat.content import FORMAT, stable_text
from antiphon.wire.output import ErrorKind, ProviderError, kind_of_status

_KINDS: tuple[tuple[ErrorKind, str], ...] = (
    ("billing", r"insufficient[_ ](quota|balance|credits|funds)|exceeded your current quota|billing|payment required"),
    (
        "rate_limit",
        r"rate[_ -]?limit|ratelimitreached|too many requests|tokens per min|throttl|resource_exhausted|quota exceeded",
    ),
    (
        "context_length",
        r"context[_ ]length|context window|context size|exceed_context|prompt (is )?too long|too_many_prompt_tokens"
        r"|messages is too long|token limit reached|input token count",
    ),
    (
        "authentication",
        r"invalid[_ ]api[_ ]key|incorrect api key|api key not valid|api key: \S+ is invalid|authentication|unauthorized"
        r"|no cookie auth|invalid subscription key|invalid[_ ]token|invalid authorization",
    ),
    (
        "not_found",
        r"model_not_found|deploymentnotfound|invalid_model|invalid model|not a valid model|model not found"
        r"|model .{1,200} (does not exist|not found)|supported api model names|unknown model|not_found_error",
    ),
    ("overloaded", r"overloaded|at capacity|service unavailable|temporarily unavailable"),
    ("permission", r"permission|forbidden|access denied|not supported in your (country|region)"),
    ("timeout", r"timed out|timeout"),
    (
        "invalid_request",
        r"invalid_request|content_filter|tool_use_failed|is not supported|requires --\S+ flag|cannot use both",
    ),
)
_WORDS = tuple((kind, re.compile(words, re.IGNORECASE).search) for kind, words in _KINDS)
_CERTAIN = ("authentication", "permission", "not_found", "timeout", "conflict", "too_large", "overloaded")
_TYPES: dict[ErrorKind, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "billing": ("insufficient_quota", "insufficient_quota"),
    "permission": ("permission_error", None),
    "not_found": ("invalid_request_error", "model_not_found"),
    "timeout": ("timeout_error", "timeout"),
    "conflict": ("conflict_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": ("server_error", "overloaded"),
    "stream_cut": ("server_error", "stream_cut"),
    "unknown": ("unknown_error", None),
}
_LONGEST = 2000
_KNOWN = ("message", "code", "param")


def read_error(body: Any, status: int | None = None) -> ProviderError:
    """What an error body says, whatever it is."""
    value = _decoded(body)
    if isinstance(value, list):
        value = next((entry for entry in value if isinstance(entry, dict)), value)
    error = value
    if isinstance(value, dict):
        error = next((value[key] for key in ("error", "errors", "detail", "base_resp") if value.get(key)), value)
        if isinstance(error, list):
            error = next((entry for entry in error if isinstance(entry, dict)), error)
    message = _message(error) or (_message(value) if error is not value else "")
    fields: dict[str, Any] = error if isinstance(error, dict) else {}
    code, param = fields.get("code", fields.get("status_code")), fields.get("param")
    if code is None and isinstance(value, dict):
        code = value.get("code")
    status = status if status is not None and status >= 400 else _status(fields, code) or status
    native = {key: entry for key, entry in fields.items() if key not in _KNOWN and entry is not None}
    return ProviderError(
        message=message or (f"the host answered with status {status}" if status else "the host gave no reason"),
        kind=_kind(f"{code} {fields.get('type')} {fields.get('status')} {message}", status),
        status=status,
        code=None if code is None else stable_text(code),
        param=param if isinstance(param, str) else None,
        native={FORMAT: native} if native else None,
    )


def _decoded(body: Any) -> Any:
    if isinstance(body, bytes | bytearray | memoryview):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str) and body.lstrip()[:1] in ("{", "["):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return body
    return body


def _message(error: Any) -> str:
    if isinstance(error, str):
        text = page_text(error) if is_page(error) else error.strip()
        return text[:_LONGEST]
    if isinstance(error, dict):
        for key in ("message", "msg", "status_msg", "detail", "error", "title", "reason"):
            inner = _message(error.get(key)) if error.get(key) is not error else ""
            if inner:
                return inner
    if isinstance(error, list) and error:
        return _message(error[0])
    return ""


def _status(fields: dict[str, Any], code: Any) -> int | None:
    for number in (fields.get("status"), code):
        if isinstance(number, str) and len(number) == 3 and number.isascii() and number.isdigit():
            number = int(number)
        if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600:
            return number
    return None


def _kind(text: str, status: int | None) -> ErrorKind:
    by_status = kind_of_status(status)
    if by_status in _CERTAIN:
        return by_status
    for kind, says in _WORDS:
        if says(text):
            return kind
    return by_status or ("server" if "server_error" in text else "unknown")


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error as OpenAI says it."""
    kind, code = _TYPES.get(error.kind, ("server_error", None))
    own = error.native.get(FORMAT, {}) if error.native else {}
    written = {"message": error.message, "type": kind, "param": error.param, "code": error.code or code}
    return {"error": {**written, **own}}
