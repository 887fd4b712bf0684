"""Ids of conversations, runs and responses: sorted as text they are sorted by time.

48 bits of milliseconds, then 80 random bits, written as 26 characters of Crockford's base 32 (no i, l, o, u: they can be
read out and typed). Ids made in the same millisecond of one process count up, so they too keep their order.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
"""What ten bits are written as, in their order."""
_RANDOM_BITS = 80
ID_LENGTH = 26

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A new id, greater than every id this process made before."""
    global _last  # the clock may stop or go back; the ids must not
    with _lock:
        value = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        _last = value = max(value, _last + 1)
    return _spell(value)


def derived_id(name: str, created: datetime) -> str:
    """The id of something that has a name elsewhere and began at `created`: the same each time, at its place among other ids."""
    milliseconds = max(0, int(created.timestamp() * 1000)) & (1 << 48) - 1
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return _spell(milliseconds << _RANDOM_BITS | int.from_bytes(digest[: _RANDOM_BITS // 8]))


def _spell(value: int) -> str:
    return "".join([PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])


def is_id(text: str) -> bool:
    """Whether `text` could be an id made here."""
    return len(text) == ID_LENGTH and not set(text) - set(_ALPHABET)
