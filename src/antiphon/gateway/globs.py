"""Globs of model names: whether one takes every name that another takes.

A glob is tried with names that stand for all names of the other: each `*` is nothing, one letter, or more letters than the glob
is long, and the letter is one that nobody writes, so only a wildcard can take it. What is said to be covered is covered; of the
rarest patterns (many stars, sets with `[…]`) it may not be said.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import product

_LETTER = "\ue000"
_MOST_STARS = 4
_wildcards = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that `narrow` takes is taken by `wide`."""
    if wide == narrow or wide == "*":
        return True
    pieces = _wildcards.split(narrow)
    signs = _wildcards.findall(narrow)
    if "[" in wide and signs:
        return False
    stars = sum(sign.startswith("*") for sign in signs)
    if stars > _MOST_STARS:
        return False
    for lengths in product((0, 1, len(wide) + 1), repeat=stars):
        remaining = iter(lengths)
        filled = [_LETTER * (next(remaining) if sign.startswith("*") else 1) for sign in signs]
        name = "".join(piece + filling for piece, filling in zip(pieces, [*filled, ""], strict=True))
        if not fnmatchcase(name, wide):
            return False
    return True
