"""Why no recorded request matches: the nearest one, and how it differs, field by field and within a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.text import common_prefix, excerpt
from antiphon_devtools.cassettes.matching import ComparedRequest

_MOST_COMPARED = 500
"""So many recorded requests of the same path are compared, the last ones."""
_MOST_COUNTED = 200
_MOST_SHOWN = 12
_LONGEST_VALUE = 160
_MOST_PATHS = 8
_ABSENT = object()


class Difference(Struct, frozen=True):
    """A field that differs. `recorded` and `sent` are JSON texts, cut where they begin to differ; "absent" if there is none."""

    path: str
    recorded: str
    sent: str

    def __str__(self) -> str:
        return f"{self.path}: recorded {self.recorded}, sent {self.sent}"


class Nearest(Struct, frozen=True):
    """The recorded request that is most like one, and how it differs. `count` is at most 200."""

    number: int
    differences: tuple[Difference, ...]
    count: int


def find_nearest(recorded: Sequence[tuple[int, ComparedRequest]], sent: ComparedRequest) -> Nearest | None:
    """The request of the same method and path with the fewest differences; None if there is none."""
    best: tuple[tuple[int, int, int], int, ComparedRequest] | None = None
    same = [(number, one) for number, one in recorded if (one.method, one.path) == (sent.method, sent.path)]
    for number, one in same[-_MOST_COMPARED:]:
        found = list(islice(_differing(one, sent), _MOST_COUNTED))
        absent = sum(a is _ABSENT or b is _ABSENT for _, a, b in found)
        rank = (len(found), absent, -sum(_common(a, b) for _, a, b in found))
        if best is None or rank < best[0]:
            best = (rank, number, one)
    if best is None:
        return None
    (count, *_), number, one = best
    shown = islice(_differing(one, sent), _MOST_SHOWN)
    return Nearest(number, tuple(Difference(path, *_excerpts(a, b)) for path, a, b in shown), count)


def describe_miss(tape: str, recorded: Sequence[tuple[int, ComparedRequest]], sent: ComparedRequest) -> str:
    """Why a request has no recorded answer, for the person who reads the error."""
    lines = [f"no recorded answer for {sent.method} {sent.path} in {tape}"]
    nearest = find_nearest(recorded, sent)
    if nearest is None:
        paths = list(dict.fromkeys(f"{one.method} {one.path}" for _, one in recorded))
        more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
        known = ", ".join(paths[:_MOST_PATHS]) + more
        lines.append(f"recorded are only: {known}" if paths else "the tape is empty")
    else:
        lines.append(f"nearest is exchange {nearest.number}; it differs in:")
        lines += [f"  {difference}" for difference in nearest.differences]
        if nearest.count > len(nearest.differences):
            at_least = "at least " if nearest.count == _MOST_COUNTED else ""
            lines.append(f"  and {at_least}{nearest.count - len(nearest.differences)} more")
    lines.append("record it (--record), or leave a field out of the comparison (--ignore FIELD, --match loose)")
    return "\n".join(lines)


def _differing(recorded: ComparedRequest, sent: ComparedRequest) -> Iterator[tuple[str, Any, Any]]:
    for name, path in (("query", "query"), ("body", "")):
        yield from _walk(recorded.fields.get(name, {}), sent.fields.get(name, {}), path)


def _walk(recorded: Any, sent: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(recorded, dict) and isinstance(sent, dict):
        for name in {**recorded, **sent}:
            place = f"{path}.{name}" if path else name
            yield from _walk(recorded.get(name, _ABSENT), sent.get(name, _ABSENT), place)
    elif isinstance(recorded, list) and isinstance(sent, list):
        for number in range(max(len(recorded), len(sent))):
            before, now = (one[number] if number < len(one) else _ABSENT for one in (recorded, sent))
            yield from _walk(before, now, f"{path}[{number}]")
    elif recorded is _ABSENT or sent is _ABSENT or type(recorded) is not type(sent) or recorded != sent:
        yield path or "body", recorded, sent


def _common(recorded: Any, sent: Any) -> int:
    """How much two texts have in common at their ends."""
    if not (isinstance(recorded, str) and isinstance(sent, str)):
        return 0
    return common_prefix(recorded, sent) + common_prefix(recorded[::-1], sent[::-1])


def _excerpts(recorded: Any, sent: Any) -> tuple[str, str]:
    """Two values as JSON, each cut to the place where they begin to differ."""
    texts = ["absent" if value is _ABSENT else msgspec.json.encode(value).decode() for value in (recorded, sent)]
    if max(map(len, texts)) <= _LONGEST_VALUE:
        return texts[0], texts[1]
    start = max(0, common_prefix(*texts) - _LONGEST_VALUE // 4)
    start = 0 if start < 8 else start
    return _excerpt(texts[0], start), _excerpt(texts[1], start)


def _excerpt(text: str, start: int) -> str:
    if text == "absent" or len(text) <= _LONGEST_VALUE:
        return text
    return excerpt(text, start, start + _LONGEST_VALUE)
