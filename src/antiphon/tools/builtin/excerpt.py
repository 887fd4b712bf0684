"""The place in a text that answers a query: about 500 characters where most of the words stand together, the words marked.

Words are found as the index finds them, near enough: in any case, English with any ending (`plan` in `planning`), Chinese by
pairs, of which neighbours are marked as one. The excerpt is a single line without the marks of Markdown, so that the only
bold in it is ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_WIDTH = 500
_BEFORE = 60
_LOOKED_AT = 5_000
_MARKUP = re.compile(r"^[ \t]*(?:#{1,6}|>|[-+*](?= )|\|)[ \t]*|\*\*|__|`+", re.MULTILINE)
_ENDING = re.compile(r"(?:ing|ed|es|s)$")


def marked_excerpt(text: str, asked: Iterable[str]) -> str:
    """The best place of the text for the words; its beginning if none of them is found letter by letter."""
    line = " ".join(_MARKUP.sub("", text).split())
    spans = list(islice(_spans(line, asked), _LOOKED_AT))
    begin = _word_edge(line, max(0, min(_best_start(spans) - _BEFORE, len(line) - _WIDTH)))
    end = min(len(line), begin + _WIDTH)
    if end < len(line):
        end = line.rfind(" ", end - 20, end) if " " in line[end - 20 : end] else end
    pieces: list[str] = []
    place = begin
    for first, last in _merged(spans):
        if first >= begin and last <= end:
            pieces += (line[place:first], "**", line[first:last], "**")
            place = last
    pieces.append(line[place:end])
    return ("…" if begin else "") + "".join(pieces) + ("…" if end < len(line) else "")


def _spans(line: str, asked: Iterable[str]) -> Iterable[tuple[int, int]]:
    """Where the words stand, overlapping ones too."""
    patterns = [_pattern(word) for word in asked]
    if patterns:
        for found in re.finditer(f"(?=({'|'.join(patterns)}))", line, re.IGNORECASE):
            yield found.start(1), found.end(1)


def _pattern(word: str) -> str:
    if not word.isascii():
        return re.escape(word)
    stem = _ENDING.sub("", word) if len(word) > 4 else word
    return rf"\b{re.escape(stem)}\w{{0,20}}" if len(stem) > 3 else rf"\b{re.escape(stem)}\b"


def _best_start(spans: list[tuple[int, int]]) -> int:
    """Where the excerpt with the most marked characters begins."""
    best = most = marked = first = 0
    for last, (begin, end) in enumerate(spans):
        marked += end - begin
        while end - spans[first][0] > _WIDTH - _BEFORE:
            marked -= spans[first][1] - spans[first][0]
            first += 1
        if marked > most and first <= last:
            best, most = spans[first][0], marked
    return best


def _word_edge(line: str, place: int) -> int:
    """The beginning of a word at `place` or soon behind it."""
    edge = line.find(" ", place - 1, place + 20) if place else -1
    return edge + 1 if edge >= 0 else place


def _merged(spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Spans that touch, as one."""
    first = last = -1
    for begin, end in spans:
        if begin > last:
            if last > first:
                yield first, last
            first, last = begin, end
        else:
            last = max(last, end)
    if last > first:
        yield first, last
