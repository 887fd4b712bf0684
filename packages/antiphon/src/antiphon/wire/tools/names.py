"""Names that a format accepts: those of tools, of properties, and of people.

A name is used as it is where the format's rules allow it. Otherwise it is replaced by one derived from it alone: the same in
every turn, and distinct for distinct originals (40 bits of a hash). `CallRestorer` maps the names in an answer back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache, lru_cache

from antiphon.wire.capabilities import format_capabilities
from antiphon.wire.loss import Loss

PORTABLE_NAME_LENGTH = 64
"""The longest tool name that every host accepts; a replacement is not longer."""
MAX_CACHED_LENGTH = 256
"""Longer keys are not cached: clients choose them, and a cache that counts entries would keep any number of megabytes."""
_MAX_CACHED = 4096
_UNSAFE = re.compile(r"[^a-zA-Z0-9_]+")


class ShortKeyCache(dict[str, str]):
    """Caches `compute` for short keys, at most 4096 of them. Look up with `cache[key]`; long keys are computed each time."""

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


class NameMapper:
    """Maps tool names into a pattern; a replacement has at most `max_length` characters. Both may be read on first use."""

    def __init__(
        self, pattern: str | Callable[[], str], max_length: int | Callable[[], int] = PORTABLE_NAME_LENGTH
    ) -> None:
        self._is_legal = matcher(pattern)
        self._max_length = max_length
        self.to_wire = ShortKeyCache(self._map).__getitem__

    def declare(self, name: str, path: str, losses: list[Loss]) -> str:
        """The name of a tool that is declared; another one than its own is reported."""
        sent = self.to_wire(name)
        if sent != name:
            why = f"this API does not accept {name[:80]!r}; sent as {sent}, and calls come back under the original name"
            losses.append(Loss(f"{path}.name", "name", why))
        return sent

    def _map(self, name: str) -> str:
        if self._is_legal(name):
            return name
        return safe_name(name, self._max_length if isinstance(self._max_length, int) else self._max_length())


def tool_names(format_name: str, *, are_portable: bool = True) -> NameMapper:
    """Maps tool names into what the capability table states for a format.

    Replacements are short enough for every host; if they need not be portable, for this format.
    """

    def longest() -> int:
        return format_capabilities(format_name).tool_name_length or PORTABLE_NAME_LENGTH

    return NameMapper(
        lambda: format_capabilities(format_name).tool_name_pattern, PORTABLE_NAME_LENGTH if are_portable else longest
    )


def matcher(pattern: str | Callable[[], str]) -> Callable[[str], re.Match[str] | None]:
    if isinstance(pattern, str):
        return re.compile(pattern).fullmatch
    read = cache(lambda: re.compile(pattern()).fullmatch)
    return lambda text: read()(text)


def safe_name(name: str, max_length: int) -> str:
    """A readable replacement of letters, digits and underscores that begins with a letter and is unique to `name`."""
    return (_cached_name if len(name) <= MAX_CACHED_LENGTH else _make_name)(name, max_length)


def _make_name(name: str, max_length: int) -> str:
    plain = _UNSAFE.sub("_", name).strip("_") or "tool"
    readable = plain if plain[0].isalpha() else f"t_{plain}"
    return f"{readable[: max_length - 11]}_{hash_of(name)[:10]}"


_cached_name = lru_cache(maxsize=_MAX_CACHED)(_make_name)


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
