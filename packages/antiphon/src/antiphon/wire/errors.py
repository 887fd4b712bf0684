"""Provider errors: find the error in any body, classify it, and write it in a format's own shape.

Hosts put an error under `error`, `errors`, `detail` or `base_resp`, at the top level, in a list, in plain text or in an HTML
page. Its kind follows from its code, then from its message, then from the HTTP status: an invalid key is a 400 at some hosts,
and a spent quota may come as 400, 429 or inside a 200. The patterns were made from every recorded error.

A format contributes one `ErrorTable`. Fields the neutral error has no place for go back only to the vendor they came from, and
so does a code: another provider's code means nothing to a client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from antiphon.json_text import NOT_JSON
from antiphon.wire.output import ErrorKind, ProviderError, kind_of_status

MAX_MESSAGE = 2000
MAX_PAGE = 65_536
"""How many characters of a page are read."""

_is_page = re.compile(r"<(!doctype|html|head|body|title|h1|p)\b", re.IGNORECASE).search
_title = re.compile(r"<title\b", re.IGNORECASE).search
_hidden = re.compile(r"(script|style)\b", re.IGNORECASE).match
_ends = {name: re.compile(f"</{name}", re.IGNORECASE).search for name in ("script", "style", "title")}

_CODES: dict[ErrorKind, str] = {
    "invalid_request": "invalid_request_error invalid_request invalid_prompt content_filter tool_use_failed"
    " invalid_argument failed_precondition INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED"
    " 11101 11128 11133 11150",
    "context_length": "context_length_exceeded exceed_context_size_error",
    "authentication": "invalid_api_key authentication_error unauthenticated UNAUTHENTICATED",
    "billing": "insufficient_quota billing_hard_limit_reached billing_error 14018",
    "permission": "permission_denied permission_error unsupported_country_region_territory PERMISSION_DENIED 11142",
    "not_found": "model_not_found previous_response_not_found not_found_error not_found NOT_FOUND 11102",
    "timeout": "timeout timeout_error deadline_exceeded DEADLINE_EXCEEDED",
    "conflict": "conflict conflict_error already_exists aborted ALREADY_EXISTS ABORTED",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_exceeded rate_limit_error too_many_requests resource_exhausted RESOURCE_EXHAUSTED 6004",
    "overloaded": "server_is_overloaded overloaded overloaded_error slow_down unavailable UNAVAILABLE",
    "server": "server_error internal_server_error api_error internal CANCELLED INTERNAL UNKNOWN DATA_LOSS",
    "stream_cut": "stream_cut",
}
"""Numbers are CodeBuddy's, whose errors are `{"code": 11102, "msg": "…"}`, with or without an error status."""
_KIND_BY_CODE: dict[str, ErrorKind] = {code: kind for kind, codes in _CODES.items() for code in codes.split()}
_VAGUE: frozenset[ErrorKind | None] = frozenset({None, "invalid_request", "server", "permission"})
"""Kinds that a message may refine: hosts file invalid keys and long prompts under them."""
_CERTAIN_STATUSES = frozenset({401, 404, 409, 413})
_PATTERNS: tuple[tuple[ErrorKind, str], ...] = (
    (
        "billing",
        r"insufficient[_ ](quota|balance|credits?|funds)|exceeded your current quota|billing|payment required"
        r"|credit balance is too low|purchase credits",
    ),
    (
        "rate_limit",
        r"rate[_ -]?limit|ratelimitreached|too many requests|(requests|tokens) per (min|day)|throttl|resource_exhausted"
        r"|quota exceeded",
    ),
    (
        "context_length",
        r"context[_ ](length|window|size|limit)|exceed_context|maximum context|(prompt|input) (is )?too long"
        r"|too_many_prompt_tokens|messages is too long|token limit reached|input token count|too many tokens"
        r"|total length of all messages|exceeds the maximum number of tokens",
    ),
    (
        "authentication",
        r"(incorrect|invalid|missing|expired)[_ ](api[_ ]?key|authentication|credentials|x-api-key|subscription key)"
        r"|api[_ ]keys? (is |are )?(not valid|not found|not supported|invalid|expired)|api key: \S{1,200} is invalid"
        r"|authentication|unauthorized|no cookie auth|auth credentials|invalid[_ ]token|invalid authorization"
        r"|invalid bearer|unregistered callers",
    ),
    (
        "not_found",
        r"model_not_found|deploymentnotfound|invalid[_ ]model|not a valid model|no model|model not found"
        r"|model .{1,200}(does not exist|not found)|supported api model names|unknown model",
    ),
    ("overloaded", r"overloaded|at capacity|service unavailable|temporarily unavailable"),
    (
        "permission",
        r"permission|forbidden|access denied|not supported in your (country|region)|location is not supported",
    ),
    ("too_large", r"payload size exceeds"),
    ("timeout", r"timed out|timeout"),
    ("invalid_request", r"is not supported|requires --\S+ flag|cannot use both"),
)
_MATCHERS = tuple((kind, re.compile(pattern, re.IGNORECASE | re.DOTALL).search) for kind, pattern in _PATTERNS)

_ERROR_KEYS = ("error", "errors", "detail", "base_resp")
_CODE_FIELDS = ("code", "type", "status", "status_code")
_MESSAGE_KEYS = ("message", "Message", "msg", "status_msg", "detail", "error", "title", "reason")
_MAX_NESTING = 5


class WrittenError(NamedTuple):
    """How a format writes a kind of error: the error object's `type`, `code` and HTTP status, as far as it has them."""

    type: str
    code: str | None = None
    status: int = 500


class ErrorTable(Struct, frozen=True):
    """The errors of one format, read and written. `code_field` is the field that holds the machine-readable code."""

    format: str
    code_field: str
    read_fields: frozenset[str]
    written: Mapping[ErrorKind, WrittenError]
    fields: Callable[[ProviderError, WrittenError, str | None], dict[str, Any]]
    """The error object; the last argument is the error's own code, if clients of the format can know it."""
    vendor_formats: tuple[str, ...]
    any_code: bool
    """Whether clients accept codes outside `written`; otherwise only the vendor's own are written."""
    outer: Mapping[str, Any] = {}
    """What every body has beside its error object."""

    def read(self, body: object, status: int | None = None) -> ProviderError:
        """The error in a body of any shape, classified."""
        found = find_error(body)
        error = found.error
        codes = [*map(_code_text, map(error.get, _CODE_FIELDS)), _code_text(found.outer.get("code"))]
        if status is None or status < 400:
            status = next(filter(None, map(_status_of, (error.get("status"), *codes))), status)
        kind = _classify(codes, found.message, status)
        code = codes[_CODE_FIELDS.index(self.code_field)]
        if not code and self.any_code:
            code = codes[0] or codes[3] or codes[4]
        if self.code_field == "type" and code == "error":
            code = ""
        inner = {name: value for name, value in error.items() if name not in self.read_fields and value is not None}
        extras = {name: value for name, value in found.outer.items() if name not in ("type", *_ERROR_KEYS)}
        param = error.get("param") or ("details" in error and _violated_field(error["details"]))
        return ProviderError(
            message=found.message or _json_text(error) or _without_message(status),
            kind=kind,
            status=status,
            code=code or None,
            param=param if isinstance(param, str) else None,
            native={self.format: {**extras, "error": inner} if inner else extras},
        )

    def write(self, error: ProviderError) -> dict[str, Any]:
        """An error body. Fields that came with the error go back only to clients of the same vendor."""
        native = error.native or {}
        own = next((native[origin] for origin in self.vendor_formats if origin in native), {})
        outer = {name: value for name, value in own.items() if name != "error"}
        inner = own.get("error")
        fields = {**self.write_object(error), **(inner if isinstance(inner, dict) else {})}
        return {**self.outer, "error": fields, **outer}

    def write_object(self, error: ProviderError) -> dict[str, Any]:
        """The error object alone."""
        return self.fields(error, self.written[error.kind], self._own_code(error))

    def _own_code(self, error: ProviderError) -> str | None:
        """The error's code, if clients of this format can know it: the vendor's own, or one of ours."""
        native = error.native
        is_own = not native or any(origin in native for origin in self.vendor_formats)
        if error.code and is_own and (self.any_code or native):
            return error.code
        written = {row.code if self.any_code else row.type for row in self.written.values()}
        return error.code if error.code in written else None


class ErrorFields(NamedTuple):
    """An error as found in a body."""

    message: str
    error: dict[str, Any]
    outer: dict[str, Any]


def find_error(body: object) -> ErrorFields:
    """The error in a body: bytes, text, a page, a list or nested objects. Never raises."""
    value = _decoded(body)
    outer: Any = _first_object(value) if isinstance(value, list) else value
    error = outer
    if isinstance(outer, dict):
        for key in _ERROR_KEYS:
            if inner := outer.get(key):
                error = _first_object(inner) if isinstance(inner, list) else inner
                break
    message = _message(error) or (_message(outer) if error is not outer else "")
    return ErrorFields(
        message,
        error if isinstance(error, dict) else {},
        outer if isinstance(outer, dict) and outer is not error else {},
    )


def _decoded(body: object) -> object:
    if isinstance(body, bytes | bytearray | memoryview):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str) and body.lstrip()[:1] in ("{", "["):
        try:
            return msgspec.json.decode(body)
        except NOT_JSON:
            return body
    return body


def _first_object(values: list[Any]) -> Any:
    return next((entry for entry in values if isinstance(entry, dict)), values)


def _message(error: Any, depth: int = 0) -> str:
    if isinstance(error, str):
        text = (page_title(error) or page_text(error)) if "<" in error and is_page(error) else error
        return text[:MAX_MESSAGE] if text.strip() else ""
    if depth == _MAX_NESTING:
        return ""
    if isinstance(error, dict):
        for key in _MESSAGE_KEYS:
            if (inner := error.get(key)) and (text := _message(inner, depth + 1)):
                return text
        return ""
    if isinstance(error, list) and error:
        return _message(error[0], depth + 1)
    return ""


def _json_text(error: dict[str, Any]) -> str:
    """An error object without a message, as JSON."""
    try:
        return msgspec.json.encode(error).decode()[:MAX_MESSAGE] if error else ""
    except (TypeError, ValueError, RecursionError):
        return ""


def _without_message(status: int | None) -> str:
    return f"HTTP status {status} without a message" if status else "the provider gave no error message"


def _code_text(value: Any) -> str:
    return str(value)[:MAX_MESSAGE] if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _status_of(value: Any) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600 else None


def _classify(codes: list[str], message: str, status: int | None) -> ErrorKind:
    kinds: list[ErrorKind] = []
    for code in codes:
        if code in _KIND_BY_CODE:
            kinds.append(_KIND_BY_CODE[code])
            if kinds[-1] not in _VAGUE:
                return kinds[-1]
    if status not in _CERTAIN_STATUSES:
        text = " ".join([*codes, message])
        for kind, matches in _MATCHERS:
            if matches(text):
                return kind
    if kinds and (status is None or status < 400 or kinds[0] == "permission"):
        return kinds[0]
    by_status = "timeout" if status == 524 else "server" if status == 499 else kind_of_status(status)
    return by_status or ("invalid_request" if codes[0].startswith(("invalid", "unsupported", "missing")) else "unknown")


def _violated_field(details: Any) -> str | None:
    """The field named by the first violation in Google's error details."""
    for detail in details if isinstance(details, list) else ():
        violations = detail.get("fieldViolations") if isinstance(detail, dict) else None
        for violation in violations if isinstance(violations, list) else ():
            field = violation.get("field") if isinstance(violation, dict) else None
            if isinstance(field, str) and field:
                return field
    return None


# Proxies and wrong URLs answer with a page of HTML instead of an error body. Reading it is linear in its length.


def is_page(text: str) -> bool:
    """Whether a text is HTML."""
    return _is_page(text, 0, MAX_PAGE) is not None


def page_text(page: str) -> str:
    """The text of a page on one line, without tags, scripts and styles."""
    page = page[:MAX_PAGE]
    texts: list[str] = []
    position = 0
    while (start := page.find("<", position)) >= 0:
        texts.append(page[position:start])
        end = page.find(">", start)
        if end < 0:
            break
        hidden = _hidden(page, start + 1)
        if hidden is None:
            position = end + 1
            continue
        close = _ends[hidden[1].lower()](page, end)
        position = page.find(">", close.end()) + 1 if close is not None else 0
        if not position:
            break
    else:
        texts.append(page[position:])
    return " ".join(" ".join(texts).split())


def page_title(page: str) -> str:
    """The title of a page, or "" if it has none."""
    page = page[:MAX_PAGE]
    start = _title(page)
    end = _ends["title"](page, start.end()) if start is not None else None
    return page_text(page[start.start() : end.start()]) if start is not None and end is not None else ""
