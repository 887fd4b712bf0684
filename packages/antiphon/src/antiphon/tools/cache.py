"""`ResultCache`: results of tools that may be reused.

Only tools with `cache_seconds` are cached, and only their successes. Two calls are the same if they name the
same tool and their arguments mean the same JSON: order of keys and spaces do not count. The cache is bounded in entries and in
characters; the least recently used result is removed first.

An executor has a cache of its own unless it is given one. Share one only among executors whose `state` gives the same
answers: the state is not part of the key.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.parts import ToolCallResult
from antiphon.tools.results import size_of
from antiphon.tools.tool import Tool


class ResultCache:
    """Results by tool and arguments, each for a time. Everything is forgotten with the cache."""

    def __init__(
        self,
        *,
        max_entries: int = 1_000,
        max_characters: int = 20_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_entries = max_entries
        self.max_characters = max_characters
        self._clock = clock
        self._characters = 0
        self._results: OrderedDict[tuple[Tool, bytes], tuple[float, int, ToolCallResult]] = OrderedDict()

    @staticmethod
    def key(tool: Tool, arguments: dict[str, Any]) -> tuple[Tool, bytes]:
        """What makes two calls the same."""
        return tool, msgspec.json.encode(arguments, order="sorted")

    def get(self, key: tuple[Tool, bytes]) -> ToolCallResult | None:
        """The result that was remembered, if its time is not over."""
        cached = self._results.get(key)
        if cached is None:
            return None
        if cached[0] <= self._clock():
            self._evict(key)
            return None
        self._results.move_to_end(key)
        return cached[2]

    def put(self, key: tuple[Tool, bytes], result: ToolCallResult, seconds: float) -> None:
        """Remember `result` for so many seconds."""
        if key in self._results:
            self._evict(key)
        size = size_of(result.content) + len(key[1])
        if size > self.max_characters or not self.max_entries:
            return
        self._results[key] = (self._clock() + seconds, size, result)
        self._characters += size
        while len(self._results) > self.max_entries or self._characters > self.max_characters:
            self._evict(next(iter(self._results)))

    def clear(self) -> None:
        self._results.clear()
        self._characters = 0

    def _evict(self, key: tuple[Tool, bytes]) -> None:
        self._characters -= self._results.pop(key)[1]

    def __len__(self) -> int:
        return len(self._results)
