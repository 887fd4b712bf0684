"""What the formats and rules of the suite share to read and write JSON bodies and events. A body under test may hold anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from antiphon.json_text import NOT_JSON


def sse(data: str, name: str = "") -> bytes:
    """An event as bytes."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data}\n\n".encode()


def json_event(value: Any, name: str = "") -> bytes:
    """An event with a JSON value."""
    return sse(msgspec.json.encode(value).decode(), name)


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; empty if it is not one."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """A string, or the joined text of a list of parts."""
    if isinstance(value, str):
        return value
    return "".join(str(part.get("text") or "") for part in objects(value))


def canonical(text: str) -> str:
    """JSON text with sorted keys and no spaces, so that two writings of one value are equal; other text as it is."""
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()
    except NOT_JSON:
        return text


def one_of(value: Any, *names: str) -> Any:
    """The first of these fields that is set; Gemini accepts two spellings."""
    if isinstance(value, dict):
        for name in names:
            if value.get(name) is not None:
                return value[name]
    return None


def words(text: str) -> frozenset[str]:
    """The words of a text as a set of names."""
    return frozenset(text.split())


def halves(text: str) -> tuple[str, str]:
    """A text in two pieces, as a stream sends it."""
    middle = len(text) // 2
    return text[:middle], text[middle:]


def as_arguments(value: Any) -> dict[str, Any]:
    """The arguments of a call. What is not an object is kept under one name, so that it compares unequal."""
    return value if isinstance(value, dict) else {"(not an object)": value}


def read_arguments(text: Any) -> dict[str, Any]:
    """The arguments of a call from JSON text."""
    try:
        return as_arguments(msgspec.json.decode(text) if text else {})
    except (*NOT_JSON, TypeError):
        return as_arguments(text)


def result_text(value: Any) -> str:
    """The result of a tool as text: every string in it, and the whole as JSON. Google leaves its shape to the client."""
    return "\n".join([*_strings_in(value), msgspec.json.encode(value, order="sorted").decode()])


def _strings_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _strings_in(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _strings_in(inner)]
    return [value] if isinstance(value, str) else [] if value is None else [str(value)]


Turns = list[tuple[str, list[dict[str, Any]]]]
"""Roles, each with the blocks of its adjacent messages."""


def merge_turns(messages: Iterable[tuple[str, list[dict[str, Any]]]]) -> Turns:
    """Adjacent messages of one role as one turn, as Anthropic and Google merge them."""
    turns: Turns = []
    for role, blocks in messages:
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    return turns


def error_of(body: Any) -> dict[str, Any]:
    """The error in a body, with its message: all formats have it at the same place. Empty if the shape is another one."""
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) and isinstance(error.get("message"), str) else {}
