"""Text for people: on one line, cut to a length or to where it differs, valid Unicode; the names that were probably meant."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

_MOST_NAMES = 1_000


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


def near_misses(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that were probably meant: the same but for case and separators, or close to it, or the end of it."""
    from difflib import get_close_matches

    # A name is short; what is not, is not worth comparing.
    wanted = _letters(name[:200])
    by_letters: dict[str, str] = {}
    for known in itertools.islice(names, _MOST_NAMES):
        by_letters.setdefault(_letters(known), known)
    if wanted in by_letters:
        return [by_letters[wanted]]
    close = get_close_matches(wanted, by_letters, limit, 0.6)
    contained = [letters for letters in by_letters if len(letters) > 2 and (letters in wanted or wanted in letters)]
    return [by_letters[letters] for letters in dict.fromkeys([*close, *(contained if len(wanted) > 2 else ())])][:limit]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
