"""Recorded requests in a file, in the order in which they were sent: JSON Lines, a JSON list, one body, or a HAR.

An item is a request body, or an object with one under `request` or `body`. Such an object may also have what is known about it:
`model`, `format`, `time` (ISO 8601, or seconds since 1970), and the answer under `response` (its body) or `sse` (its stream).
Requests in a HAR that are not requests to a model are left out.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from antiphon.errors import AntiphonError, WireError
from antiphon.json_text import NOT_JSON, decode_json, read_json
from antiphon.parts import TokenUsage
from antiphon.wire import formats
from antiphon.wire.delta import UsageReported
from antiphon.wire.spec import detect_format

_PATHS = (
    ("chat/completions", "openai-chat"),
    ("/messages", "anthropic"),
    ("/responses", "openai-responses"),
    ("generateContent", "gemini"),
    ("GenerateContent", "gemini"),
    ("/interactions", "gemini-interactions"),
)
_MODEL_IN_PATH = re.compile(r"/models/([^/:?]+)")


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """A request and what is known about it. `at` is in seconds since 1970."""

    where: str
    format: str
    model: str
    body: dict[str, Any]
    at: float | None = None
    usage: TokenUsage | None = None


class RecordingError(AntiphonError):
    """A file that holds no requests that can be read."""


def read_recording(data: bytes, source: str, format_name: str = "") -> list[RecordedRequest]:
    """The requests in a file. `format_name` is for bodies whose format is not clear. Raises `RecordingError`."""
    if not data.strip():
        raise RecordingError(f"{source}: empty file; expected request bodies, one per line, or a HAR")
    try:
        whole = decode_json(data)
    except NOT_JSON:  # several lines
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("log"), dict):
        found = list(_read_har(whole["log"], source, format_name))
    elif isinstance(whole, list):
        found = [_read_item(item, f"{source}, item {number}", format_name) for number, item in enumerate(whole, 1)]
    elif whole is not None:
        found = [_read_item(whole, source, format_name)]
    else:
        found = list(_read_lines(data, source, format_name))
    if not found:
        raise RecordingError(f"{source}: no request to a model in it")
    return found


def _read_lines(data: bytes, source: str, format_name: str) -> Iterator[RecordedRequest]:
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            item = decode_json(line)
        except NOT_JSON as error:
            raise RecordingError(f"{where}: not valid JSON: {error}") from None
        yield _read_item(item, where, format_name)


def _read_item(item: Any, where: str, format_name: str) -> RecordedRequest:
    if not isinstance(item, dict):
        raise RecordingError(f"{where}: a request is a JSON object, not {type(item).__name__}")
    body = next((item[name] for name in ("request", "body") if isinstance(item.get(name), dict)), None)
    facts: Mapping[str, Any] = item if body is not None else {}
    body = item if body is None else body
    url = " ".join(str(facts.get(name) or "") for name in ("url", "url_path", "path"))
    wire = format_name or _format_of(facts.get("format"), body, url)
    if not wire:
        raise RecordingError(
            f"{where}: not a request body of a known format; it needs `messages`, `input` or `contents`, or name the format "
            "with --format"
        )
    usage = _usage(wire, facts.get("response"), facts.get("sse"))
    return _request(where, wire, facts.get("model"), url, body, _time(facts.get("time"), where), usage)


def _read_har(log: dict[str, Any], source: str, format_name: str) -> Iterator[RecordedRequest]:
    entries = log.get("entries")
    if not isinstance(entries, list):
        raise RecordingError(f"{source}: a HAR without `log.entries`")
    for number, entry in enumerate(entries):
        request = entry.get("request") if isinstance(entry, dict) else None
        posted = request.get("postData") if isinstance(request, dict) else None
        text = posted.get("text") if isinstance(posted, dict) else None
        if not isinstance(request, dict) or not isinstance(text, str):
            continue
        where = f"{source}, entries[{number}]"
        found = read_exchange(
            where,
            str(request.get("url", "")),
            text.encode("utf-8", "replace"),
            _har_answer(entry),
            at=_time(entry.get("startedDateTime"), where),
            format_name=format_name,
        )
        if found is not None:
            yield found


def read_exchange(
    where: str, url: str, body: bytes, answer: bytes = b"", *, at: float | None = None, format_name: str = ""
) -> RecordedRequest | None:
    """A recorded exchange, from the bytes of its bodies; None if it is not a request to a model."""
    value = read_json(body)
    if not isinstance(value, dict):
        return None
    wire = format_name or _format_of(None, value, url)
    if not wire or formats[wire].spec.messages_key not in value:
        return None
    response = read_json(answer)
    stream = None if isinstance(response, dict) else answer.decode("utf-8", "replace")
    return _request(where, wire, None, url, value, at, _usage(wire, response, stream))


def _request(
    where: str, wire: str, model: Any, url: str, body: dict[str, Any], at: float | None, usage: TokenUsage | None
) -> RecordedRequest:
    named = body.get("model") or model
    if not isinstance(named, str) or not named:
        found = _MODEL_IN_PATH.search(url)
        named = found[1] if found else ""
    return RecordedRequest(where=where, format=wire, model=named, body=body, at=at, usage=usage)


def _format_of(named: Any, body: dict[str, Any], url: str) -> str:
    if named in formats:
        return str(named)
    by_path = next((wire for part, wire in _PATHS if part in url), "")
    if by_path and formats[by_path].spec.messages_key in body:
        return by_path
    if guess := detect_format(body):
        return guess
    if "messages" in body:  # what both formats have; only the model tells
        return "anthropic" if "claude" in str(body.get("model", "")) else "openai-chat"
    return next((name for name, wire in formats.items() if wire.spec.messages_key in body), "")


def _time(given: Any, where: str) -> float | None:
    if given is None:
        return None
    if isinstance(given, int | float):
        return float(given)
    try:
        return datetime.fromisoformat(given).timestamp()
    except (ValueError, TypeError):
        raise RecordingError(f"{where}: the time {given!r} is not ISO 8601; use 2026-11-16T12:00:00Z") from None


def _har_answer(entry: dict[str, Any]) -> bytes:
    response = entry.get("response")
    content = response.get("content") if isinstance(response, dict) else None
    text = content.get("text") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(text, str):
        return b""
    return b64decode(text) if content.get("encoding") == "base64" else text.encode("utf-8", "replace")


def _usage(wire: str, response: Any, stream: Any) -> TokenUsage | None:
    """What the provider counted; None if the answer does not tell, or cannot be read."""
    try:
        if isinstance(response, dict):
            return formats[wire].read_response(response).usage
        if isinstance(stream, str) and stream:
            reader = formats[wire].stream_reader()
            deltas = [*reader.feed(stream.encode("utf-8", "replace")), *reader.close()]
            found = [delta.usage for delta in deltas if isinstance(delta, UsageReported)]
            return found[-1] if found else None
    except WireError:
        pass
    return None
