"""Reads tool results without knowing the tool: records (objects with an id), points (search results), sources.

A result is text: JSON as a whole, JSON in a fenced block after Markdown, or Markdown alone. Each reader returns the best
match, or an empty list; none of them can fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

_LINK = re.compile(r"\[([^\]]+)\]\((\S+?)\)")
_ADDRESS = re.compile(r"https?://[^\s)>\]]+")
_ITEM = re.compile(r"^\s*(?:#{1,6}|[-*+•]|\d{1,3}[.)、])\s+(.+)$")
_SOURCE = re.compile(r"^\s*(?:source|url|link|来源|链接|网址|出处)\s*[:：]\s*(.+)$", re.IGNORECASE)
_MARKS = re.compile(r"[*_`#]+")
_ID = re.compile(r"\bid\b[\s:=]*`?([\w-]+)`?|`([\w-]{2,})`|\(([\w]+-[\w-]+)\)", re.IGNORECASE)
_DETAIL = re.compile(
    r"^(?:source|url|link|score|path|file|来源|链接|网址|出处|目标|goal|status|due)\s*[:：]", re.IGNORECASE
)

_LONGEST_POINT = 90
_LONGEST_LINE = 500
_MOST = 50


class Point(Struct, frozen=True):
    """One search result."""

    title: str
    source: str = ""


class Record(Struct, frozen=True):
    """A stored object of a tool. `fields` has all of its values."""

    id: str
    title: str = ""
    fields: dict[str, Any] = {}

    @property
    def tasks(self) -> list[dict[str, Any]]:
        tasks = self.fields.get("tasks")
        return [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []


def values_in(text: str) -> list[Any]:
    """The JSON values of a result: the whole of it, or its fenced blocks."""
    values = []
    for candidate in (text, *_parted(text)[1]):
        try:
            values.append(msgspec.json.decode(candidate))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    return [value for value in values if isinstance(value, dict | list)]


def _parted(text: str) -> tuple[str, list[str]]:
    """The text of a result, and the content of its fenced blocks."""
    words: list[str] = []
    blocks: list[list[str]] = []
    is_fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            is_fenced = not is_fenced
            blocks += [[]] if is_fenced else []
        else:
            (blocks[-1] if is_fenced else words).append(line)
    return "\n".join(words), ["\n".join(block) for block in blocks]


def records_in(text: str) -> list[Record]:
    """The records of a result, in order, without duplicates."""
    found = [record for value in values_in(text) for record in _records(value, 0)]
    if not found:
        found = list(_written_records(text))
    unique: dict[str, Record] = {}
    for record in found:
        unique.setdefault(record.id, record)
    return list(unique.values())[:_MOST]


def _records(value: Any, depth: int) -> Iterator[Record]:
    if depth > 3:
        return
    if isinstance(value, list):
        for item in value:
            yield from _records(item, depth + 1)
    elif isinstance(value, dict):
        identity = next(
            (value[name] for name in ("id", "plan_id", "uuid") if isinstance(value.get(name), str | int)), None
        )
        if identity is not None:
            title = value.get("title") or value.get("name") or ""
            yield Record(str(identity), str(title), value)
        else:
            for item in value.values():
                yield from _records(item, depth + 1)


def _written_records(text: str) -> Iterator[Record]:
    """Lines that name an id, with the text before it as the title."""
    for line in text.splitlines():
        if (found := _ID.search(line, 0, _LONGEST_LINE)) is None:
            continue
        title = plain(line[: found.start()]) or plain(line[found.end() :])
        yield Record(next(group for group in found.groups() if group), title.rstrip(" (:—-"), {})


def points_in(text: str) -> list[Point]:
    """The points of a search: the titles of its results, or else its sentences."""
    points = [point for value in values_in(text) for point in _listed_points(value)]
    if not points:
        points = _written_points(text)
    if not points:
        points = [Point(short(sentence)) for sentence in re.split(r"[.。\n]+", text) if len(sentence) > 12]
    unique: dict[str, Point] = {}
    for point in points:
        unique.setdefault(point.title.casefold(), point)
    return list(unique.values())[:_MOST]


def _listed_points(value: Any) -> Iterator[Point]:
    results = value.get("results", []) if isinstance(value, dict) else value
    for item in results if isinstance(results, list) else []:
        if isinstance(item, dict) and isinstance(item.get("title"), str) and item["title"].strip():
            yield Point(short(item["title"]), str(item.get("url") or item.get("source") or ""))


def _written_points(text: str) -> list[Point]:
    points: list[Point] = []
    for line in text.splitlines():
        if point := _written_point(line):
            points.append(point)
        elif points and not points[-1].source and (found := _SOURCE.match(line)):
            points[-1] = Point(points[-1].title, found[1].strip())
    return points


def _written_point(line: str) -> Point | None:
    found = _ITEM.match(line[:_LONGEST_LINE])
    if found is None:
        return None
    words = found[1]
    address = _LINK.search(words)
    source = address[2] if address else (there[0] if (there := _ADDRESS.search(words)) else "")
    title = short(plain(address[1] if address else _ADDRESS.sub("", words)))
    return Point(title, source) if len(title) > 1 and not _DETAIL.match(title) else None


def plain(text: str) -> str:
    """A line without Markdown markup."""
    without_links = _LINK.sub(r"\1", text)
    return _MARKS.sub("", re.sub(r"^\s*(?:[-+•]|\d{1,3}[.)、])\s+", "", without_links)).strip(" -—:：|")


def without_data(text: str) -> str:
    """A result without the fenced data after its text; a result with only data is unchanged."""
    return _parted(text)[0].strip() or text.strip()


def short(text: str) -> str:
    """A text shortened to one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_POINT else f"{line[: _LONGEST_POINT - 1].rstrip()}…"
