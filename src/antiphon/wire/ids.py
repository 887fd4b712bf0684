"""Ids and names, mapped into what a format allows.

One neutral id for a call, everywhere the same; each format gets it as it is if its rules allow that, and otherwise a stand-in
that follows from the id alone: the same in every turn, the same for the call and its result, and different for different ids
(80 bits of a hash keep them apart). Names of tools work the same way, and keep what is readable of the name; `restore` turns a
stand-in that a model used into the name it stands for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache

MAX_CACHED_LENGTH = 256
"""Longer keys are not cached: clients choose them, and a cache that counts entries would keep any number of megabytes."""
_MAX_CACHED = 4096
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_]+")


class ShortKeyCache(dict[str, str]):
    """What `compute` gives for short keys, at most 4096 of them. Look up with `cache[key]`; a long key is computed each time."""

    def __init__(self, compute: Callable[[str], str]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: str) -> str:
        value = self._compute(key)
        if len(key) <= MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED:
                self.clear()
            self[key] = value
        return value


class IdRule:
    """What a format allows as an id: a pattern the whole id must match, and how a stand-in begins."""

    def __init__(self, pattern: str, *, prefix: str = "call_", length: int = 20) -> None:
        self._is_legal = re.compile(pattern).fullmatch
        self._prefix = prefix
        self._length = length
        self.legal = ShortKeyCache(self._map).__getitem__

    def _map(self, call_id: str) -> str:
        if self._is_legal(call_id):
            return call_id
        return self._prefix + _hash(call_id)[: self._length]


class NameRule:
    """What a format allows as the name of a tool: a pattern the whole name must match, and how long a stand-in may be."""

    def __init__(self, pattern: str, longest: int = 64) -> None:
        self._is_legal = re.compile(pattern).fullmatch
        self._longest = longest
        self.legal = ShortKeyCache(self._map).__getitem__

    def _map(self, name: str) -> str:
        return name if self._is_legal(name) else legal_name(name, self._longest)


def legal_name(name: str, longest: int) -> str:
    """A stand-in of letters, digits and underscores that begins with a letter: readable, and never another name's."""
    return (_cached_name if len(name) <= MAX_CACHED_LENGTH else _make_name)(name, longest)


def _make_name(name: str, longest: int) -> str:
    plain = _NOT_PLAIN.sub("_", name).strip("_") or "tool"
    readable = plain if plain[0].isalpha() else f"t_{plain}"
    return f"{readable[: longest - 11]}_{_hash(name)[:10]}"


_cached_name = lru_cache(maxsize=_MAX_CACHED)(_make_name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
