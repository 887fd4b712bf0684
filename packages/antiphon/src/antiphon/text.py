"""Text for people: on one line, cut to a length or to where it differs, valid Unicode."""

from __future__ import annotations

from collections.abc import Sequence


def one_line(text: str) -> str:
    """The text on one line: each run of white space becomes a space."""
    return " ".join(text.split())


def shorten(text: str, most: int) -> str:
    """The text, or its beginning with an ellipsis: at most `most` characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def excerpt(text: str, start: int, end: int) -> str:
    """A part of a text, with an ellipsis where more of it follows or comes before."""
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """How many characters, or items, two sequences have in common from the start."""
    low, high = 0, min(len(first), len(second))
    while low < high:  # texts are long, and slices compare at the speed of memory
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def replace_lone_surrogates(text: str) -> str:
    """The text with a question mark for each lone surrogate, which cannot be written as UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()
