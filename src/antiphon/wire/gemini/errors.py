"""Errors: `{"error": {"code", "message", "status", "details"}}`, whole, in a list of one, or in the middle of a stream.

The status word tells more than the HTTP status, and some messages more than both: an invalid key is an INVALID_ARGUMENT with
400 here, and so is a prompt that is too long.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.wire.gemini.spelling import FORMAT, extras_of
from antiphon.wire.output import ErrorKind, ProviderError, kind_of_status

_TEXTS: tuple[tuple[str, ErrorKind], ...] = (
    ("api key not valid", "authentication"),
    ("api key not found", "authentication"),
    ("api key expired", "authentication"),
    ("api keys are not supported", "authentication"),
    ("unregistered callers", "authentication"),
    ("exceeds the maximum number of tokens", "context_length"),
    ("payload size exceeds", "too_large"),
    ("enable billing", "billing"),
    ("billing to be enabled", "billing"),
    ("location is not supported", "permission"),
)
_WORDS: dict[str, ErrorKind] = {
    "INVALID_ARGUMENT": "invalid_request",
    "FAILED_PRECONDITION": "invalid_request",
    "OUT_OF_RANGE": "invalid_request",
    "UNAUTHENTICATED": "authentication",
    "PERMISSION_DENIED": "permission",
    "NOT_FOUND": "not_found",
    "ALREADY_EXISTS": "conflict",
    "ABORTED": "conflict",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "DEADLINE_EXCEEDED": "timeout",
    "CANCELLED": "server",
    "UNAVAILABLE": "overloaded",
    "INTERNAL": "server",
    "UNKNOWN": "server",
    "DATA_LOSS": "server",
    "UNIMPLEMENTED": "invalid_request",
}
_KINDS: dict[ErrorKind, tuple[int, str]] = {
    "invalid_request": (400, "INVALID_ARGUMENT"),
    "context_length": (400, "INVALID_ARGUMENT"),
    "too_large": (413, "INVALID_ARGUMENT"),
    "authentication": (401, "UNAUTHENTICATED"),
    "billing": (402, "FAILED_PRECONDITION"),
    "permission": (403, "PERMISSION_DENIED"),
    "not_found": (404, "NOT_FOUND"),
    "conflict": (409, "ABORTED"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
    "rate_limit": (429, "RESOURCE_EXHAUSTED"),
    "overloaded": (503, "UNAVAILABLE"),
    "server": (500, "INTERNAL"),
    "stream_cut": (500, "INTERNAL"),
    "unknown": (500, "UNKNOWN"),
}
_LONGEST = 2_000


def read_error(body: Any, status: int | None = None) -> ProviderError:
    """What an error body says, whatever it is."""
    body = _decoded(body)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        message = error if isinstance(error, str) else _shown(body)
        return ProviderError(message or _unsaid(status), _kind(message, None, status), status)
    code, word, text = error.get("code"), error.get("status"), error.get("message")
    if type(code) is not int:
        code = None
    word = word if type(word) is str else None
    message = text if type(text) is str and text else _unsaid(status if status is not None else code)
    extras = {name: value for name, value in error.items() if name not in ("code", "status", "message")}
    if code is not None and status is not None and code != status:
        extras["code"] = code
    return ProviderError(
        message,
        _kind(message, word, code if word is None and code is not None else status if status is not None else code),
        status if status is not None else code,
        word,
        _field(error.get("details")),
        {FORMAT: extras} if extras else None,
    )


def write_error(error: ProviderError) -> dict[str, Any]:
    """The error as Gemini's clients expect it."""
    code, word = _KINDS[error.kind]
    # A word of another provider's means nothing to a client of Gemini.
    if error.code in _WORDS:
        word = error.code
    return {
        "error": {
            "code": error.status if error.status is not None else code,
            "message": error.message,
            "status": word,
            **extras_of(error.native),
        }
    }


def _kind(message: str, word: str | None, status: int | None) -> ErrorKind:
    said = message.lower()
    for text, kind in _TEXTS:
        if text in said:
            return kind
    if word in _WORDS:
        return _WORDS[word]
    return "server" if status == 499 else kind_of_status(status) or "unknown"


def _decoded(body: Any) -> Any:
    if isinstance(body, bytes | bytearray | memoryview):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str) and body.lstrip()[:1] in ("{", "["):
        try:
            body = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return body
    while isinstance(body, list) and len(body) == 1:
        (body,) = body
    return body


def _shown(body: Any) -> str:
    """A body that is no error of Gemini's, as words."""
    if body is None:
        return ""
    if isinstance(body, str):
        return body[:_LONGEST]
    try:
        return msgspec.json.encode(body).decode()[:_LONGEST]
    except (TypeError, ValueError, RecursionError):
        return str(type(body).__name__)


def _unsaid(status: int | None) -> str:
    return f"the provider answered with status {status} and no message" if status else "the provider gave no message"


def _field(details: Any) -> str | None:
    """The field that the first violation in the details names."""
    for detail in details if isinstance(details, list) else ():
        violations = detail.get("fieldViolations") if isinstance(detail, dict) else None
        for violation in violations if isinstance(violations, list) else ():
            field = violation.get("field") if isinstance(violation, dict) else None
            if isinstance(field, str) and field:
                return field
    return None
