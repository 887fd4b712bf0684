"""Errors of the Messages API, read and written.

An error is told by its type, its status and its words, in rising order of trust: a context that is too long and a balance that
is used up both come as `invalid_request_error`. Whatever the body is, reading it gives an error and never raises.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from antiphon.wire.anthropic.native import FORMAT, extras_of, is_own
from antiphon.wire.html_text import is_page, page_text
from antiphon.wire.output import ErrorKind, ProviderError, kind_of_status

# Type, kind, status.
_TYPES: tuple[tuple[str, ErrorKind, int], ...] = (
    ("invalid_request_error", "invalid_request", 400),
    ("authentication_error", "authentication", 401),
    ("billing_error", "billing", 402),
    ("permission_error", "permission", 403),
    ("not_found_error", "not_found", 404),
    ("conflict_error", "conflict", 409),
    ("request_too_large", "too_large", 413),
    ("rate_limit_error", "rate_limit", 429),
    ("api_error", "server", 500),
    ("timeout_error", "timeout", 504),
    ("overloaded_error", "overloaded", 529),
)
_KINDS: dict[str, ErrorKind] = {name: kind for name, kind, _ in _TYPES}
_STATUSES = {name: status for name, _, status in _TYPES}
_NAMES: dict[ErrorKind, str] = {kind: name for name, kind, _ in _TYPES} | {
    "context_length": "invalid_request_error",
    "stream_cut": "api_error",
    "unknown": "api_error",
}
_WORDS: tuple[tuple[re.Pattern[str], ErrorKind], ...] = (
    (
        re.compile(r"prompt is too long|exceeds? (the )?context (limit|window)|input is too long", re.I),
        "context_length",
    ),
    (re.compile(r"credit balance is too low|purchase credits|plans & billing", re.I), "billing"),
    (
        re.compile(r"invalid x-api-key|api key (is )?(invalid|not valid)|invalid api key|invalid bearer token", re.I),
        "authentication",
    ),
)
_LONGEST_WORDS = 2_000
_BODY_FIELDS = frozenset({"type", "error"})
_ERROR_FIELDS = frozenset({"type", "message"})


def read_error(body: Any, status: int | None = None) -> ProviderError:
    """What an error body says."""
    if isinstance(body, bytes | bytearray | memoryview):
        try:
            body = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            body = bytes(body).decode("utf-8", "replace")
    error: Any = body.get("error", body) if type(body) is dict else body
    code, message = None, ""
    native: dict[str, Any] = {}
    if type(error) is dict:
        code = error["type"] if type(error.get("type")) is str and error["type"] != "error" else None
        said = (error.get(name) for name in ("message", "Message", "detail", "error"))
        message = next((words for words in said if type(words) is str and words), "")
        native = _extras(body, error)
    elif type(error) is str:
        message = (page_text(error) if is_page(error) else error.strip())[:_LONGEST_WORDS]
    if not message:
        message = f"the provider answered with status {status}" if status else "the provider answered with an error"
    if status is None and code is not None:
        status = _STATUSES.get(code)
    return ProviderError(message, _kind(code, status, message), status, code, native={FORMAT: native})


def _extras(body: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if error is not body:
        found |= (extras_of(body, _BODY_FIELDS) or {}).get(FORMAT, {})
    inner = (extras_of(error, _ERROR_FIELDS) or {}).get(FORMAT)
    return {**found, "error": inner} if inner else found


def _kind(code: str | None, status: int | None, message: str) -> ErrorKind:
    said = _KINDS.get(code or "")
    if said in (None, "invalid_request"):
        for pattern, kind in _WORDS:
            if pattern.search(message):
                return kind
    if said is not None:
        return said
    return "timeout" if status == 524 else kind_of_status(status) or "unknown"


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error in this API's own shape."""
    extras: dict[str, Any] = {}
    name = _NAMES[error.kind]
    if error.native is not None and is_own(error.native):
        extras = dict(error.native[FORMAT])
        name = error.code or name
    elif error.code in _KINDS:
        name = error.code
    inner = extras.pop("error", {})
    return {"type": "error", "error": {"type": name, "message": error.message, **inner}, **extras}
