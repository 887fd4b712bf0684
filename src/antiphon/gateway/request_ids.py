"""Ids of requests: like those of `history.ids`, drawn a block at a time.

A request needs an id that no other has and that sorts by time; nothing is looked up by it, so it need not be hard to guess. The
stem of a block, its time and 70 random bits, is drawn once, and its ids count up. A block is given up after a second, so the time
in an id is right to that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from secrets import choice

from antiphon.history.ids import new_id

_PAIRS = ["".join(pair) for pair in product("0123456789abcdefghjkmnpqrstvwxyz", repeat=2)]
_TIME, _RANDOM = 10, 7
"""Characters of an id that tell its time, and pairs of them that are random; one pair is left to count."""
_SECONDS = 1.0


def request_ids() -> Iterator[str]:
    """Ids without end, each greater than the one before."""
    stem = ""
    while True:
        last, until = stem, time.monotonic() + _SECONDS
        while stem <= last:  # the next block may be drawn in the same millisecond
            stem = new_id()[:_TIME] + "".join([choice(_PAIRS) for _ in range(_RANDOM)])
        for pair in _PAIRS:
            yield stem + pair
            if time.monotonic() > until:
                break
