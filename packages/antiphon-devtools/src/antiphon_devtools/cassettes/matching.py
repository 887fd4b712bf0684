"""What a request means, for finding its recorded answer: method, path, query and the fields of its body.

Two requests are the same if these are equal. The order of JSON fields, spaces, escapes, `1` and `1.0`, and fields that are null
or absent make no difference; headers are not compared. `MatchRules` say what else makes none. A body that is not JSON is compared
by a description: the fields of a form, the parts of a multipart body without its random boundary, or a digest. That description
is also what a tape keeps of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from email.message import Message
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from antiphon.json_text import NOT_JSON
from antiphon_devtools.cassettes.redaction import Redactor
from antiphon_devtools.cassettes.tape import RecordedRequest

MatchLevel: TypeAlias = Literal["path", "body", "loose", "exact"]
LEVELS: tuple[MatchLevel, ...] = get_args(MatchLevel)

VOLATILE = ("metadata.user_id", "client_metadata", "prompt_cache_key", "safety_identifier")
"""Fields that clients fill with ids of their session. They make no difference, except with `exact`."""

_CREDENTIAL_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
_LONGEST_TEXT = 4096
"""Text of a multipart body up to this many bytes is kept; longer and binary content is kept as a digest."""
_PATH_WORD = re.compile(r"[^.\[\]]+|\[\*\]|\[\d+\]")
_LOOSE = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d{4}[-/]\d\d[-/]\d\d\b"), "<date>"),
    (re.compile(r"\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\b"), "<time>"),
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b[a-z]{2,12}_(?=\w*\d)[0-9A-Za-z]{12,}\b"), "<id>"),
)
_MONTHS = r"(?:January|February|March|April|May|June|July|August|September|October|November|December|[A-Z][a-z]{2})\.?"
_WRITTEN_DATE = re.compile(rf"\b(?:{_MONTHS} \d{{1,2}},? \d{{4}}|\d{{1,2}} {_MONTHS} \d{{4}})\b")


class MatchRules(Struct, frozen=True):
    """What makes two requests the same. `ignore` are paths of body fields (`metadata`, `messages[*].id`) and `query.NAME`."""

    level: MatchLevel = "body"
    ignore: tuple[str, ...] = ()

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """The ignored paths as patterns."""
        paths = self.ignore if self.level == "exact" else (*VOLATILE, *self.ignore)
        return tuple(_path_pattern(path) for path in paths)


class ComparedRequest(Struct, frozen=True):
    """A request as it is compared: `fields` has its query and its body; `digest` is equal for equal requests."""

    method: str
    path: str
    fields: dict[str, Any]
    digest: bytes


class RequestMatcher:
    """Turns requests into what is compared, by the rules."""

    def __init__(self, rules: MatchRules | None = None) -> None:
        self._rules = rules or MatchRules()
        self._patterns = self._rules.patterns

    def compared(self, request: RecordedRequest) -> ComparedRequest:
        """A request as it is compared. Secrets are removed from it before."""
        path = request.path.rstrip("/") or "/"
        fields: dict[str, Any] = {}
        if self._rules.level != "path":
            query = self._meaning(dict(request.query), "query")
            body = self._meaning(msgspec.json.decode(request.body), "") if request.body else None
            fields = {**({"query": query} if query else {}), **({} if body is None else {"body": body})}
        identity = msgspec.json.encode([request.method, path, fields], order="deterministic")
        return ComparedRequest(request.method, path, fields, hashlib.sha256(identity).digest())

    def _meaning(self, value: Any, path: str) -> Any:
        """A JSON value without what makes no difference."""
        if isinstance(value, dict):
            kept = {}
            for name, one in value.items():
                place = f"{path}.{name}" if path else name
                if one is not None and not any(pattern.match(place) for pattern in self._patterns):
                    kept[name] = self._meaning(one, place)
            return kept
        if isinstance(value, list):
            return [self._meaning(one, f"{path}[{number}]") for number, one in enumerate(value)]
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and self._rules.level == "loose":
            return _without_volatile_values(value)
        return value


def read_request(
    redactor: Redactor,
    *,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    at: int = 0,
) -> tuple[RecordedRequest, Redactor]:
    """A client's request as a tape keeps and compares it; and what removes secrets from the answer: its own key, too."""
    presented = [value.removeprefix("Bearer ").strip() for name in _CREDENTIAL_HEADERS if (value := headers.get(name))]
    redactor = redactor.knowing(*presented, *(query[name] for name in ("key",) if name in query))
    request = RecordedRequest(
        at=at,
        method=method,
        path=redactor.text(path),
        query=redactor.query(query),
        headers=redactor.headers(headers),
        body=_described(redactor, headers.get("content-type", ""), body),
    )
    return request, redactor


def _described(redactor: Redactor, content_type: str, body: bytes) -> bytes:
    """The body without secrets: as it is if it is JSON, else a JSON description of it."""
    if not body:
        return b""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        parts = _multipart(redactor, content_type, body)
        if parts is not None:
            return msgspec.json.encode({"multipart": parts})
    elif kind == "application/x-www-form-urlencoded":
        form = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        return msgspec.json.encode({"form": redactor.query(dict(form))})
    else:
        cleared = redactor.body(body)
        try:
            msgspec.json.decode(cleared)
        except NOT_JSON:
            pass
        else:
            return cleared
    return msgspec.json.encode({"content_type": kind, **_content(redactor, body)})


def _content(redactor: Redactor, data: bytes) -> dict[str, Any]:
    if len(data) <= _LONGEST_TEXT:
        try:
            return {"text": redactor.body(data).decode()}
        except UnicodeDecodeError:
            pass
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _multipart(redactor: Redactor, content_type: str, body: bytes) -> list[dict[str, Any]] | None:
    """The parts of a multipart body; None if it has no boundary."""
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        return None
    parts = []
    for section in (b"\r\n" + body).split(b"\r\n--" + boundary.encode())[1:]:
        if section.startswith(b"--"):
            break
        head, _, content = section.partition(b"\r\n\r\n")
        part = Message()
        for line in head.decode("utf-8", "replace").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                part[name.strip().lower()] = value.strip()
        described: dict[str, Any] = {
            "name": part.get_param("name", header="content-disposition"),
            "filename": part.get_param("filename", header="content-disposition"),
            "content_type": part.get("content-type"),
            **_content(redactor, content),
        }
        parts.append({name: value for name, value in described.items() if value is not None})
    return parts


def _without_volatile_values(text: str) -> str:
    if not any(char.isdigit() for char in text):
        return text
    for pattern, placeholder in _LOOSE:
        text = pattern.sub(placeholder, text)
    return _WRITTEN_DATE.sub("<date>", text)


def _path_pattern(path: str) -> re.Pattern[str]:
    """A path as a pattern that matches it and everything below: `*` is any name, `[*]` any place in a list."""
    expression = ""
    for word in _PATH_WORD.findall(path.removeprefix("body.")):
        if word == "[*]":
            expression += r"\[\d+\]"
        elif word.startswith("["):
            expression += re.escape(word)
        else:
            name = re.escape(word).replace(r"\*", r"[^.\[\]]*")
            expression += (r"\." if expression else "") + name
    return re.compile(rf"{expression}(?:$|[.\[])")


def check_ignored_paths(paths: Sequence[str]) -> str:
    """What is wrong with the paths of fields to ignore; empty if nothing is."""
    for path in paths:
        if not path or "".join(_PATH_WORD.findall(path)) != path.replace(".", "") or ".." in path or path[0] in ".[":
            return f"{path!r} is not a path of a field; write for example metadata.user_id, messages[*].id or query.alt"
    return ""
