"""Ids and names, mapped into what a format allows.

One neutral id for a call, everywhere the same; each format gets it as it is if its rules allow that, and otherwise a stand-in
that follows from the id alone: the same in every turn, the same for the call and its result, and different for different ids
(80 bits of a hash keep them apart). Names of tools work the same way, and keep what is readable of the name; `NameMap.back`
turns a stand-in a model used into the name it stands for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_]+")


class IdRule:
    """What a format allows as an id: a pattern the whole id must match, and how a stand-in begins."""

    def __init__(self, pattern: str, *, prefix: str = "call_", length: int = 20) -> None:
        self._is_legal = re.compile(pattern).fullmatch
        self._prefix = prefix
        self._length = length
        self.legal = lru_cache(maxsize=4096)(self._map)

    def _map(self, call_id: str) -> str:
        if self._is_legal(call_id):
            return call_id
        return self._prefix + _hash(call_id)[: self._length]


class NameMap:
    """The names of a request's tools in a format's alphabet, and back."""

    def __init__(self, is_legal: Callable[[str], object], longest: int, names: Iterable[str] = ()) -> None:
        self._is_legal = is_legal
        self._longest = longest
        self._back: dict[str, str] = {}
        for name in names:
            self.legal(name)

    def legal(self, name: str) -> str:
        """The name as the format may see it."""
        if self._is_legal(name):
            return name
        mapped = legal_name(name, self._longest)
        self._back[mapped] = name
        return mapped

    def back(self, name: str) -> str:
        """The name a stand-in stands for; any other name as it is."""
        return self._back.get(name, name)


@lru_cache(maxsize=4096)
def legal_name(name: str, longest: int) -> str:
    """A stand-in of letters, digits and underscores that begins with a letter: readable, and never another name's."""
    plain = _NOT_PLAIN.sub("_", name).strip("_") or "tool"
    readable = plain if plain[0].isalpha() else f"t_{plain}"
    return f"{readable[: longest - 11]}_{_hash(name)[:10]}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
