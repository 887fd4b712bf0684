"""The calls of a body that still lack a result, for formats whose results may name their call by its name or not at all.

Gemini and Ollama leave ids out. However many calls a step has, and in whatever order their results come, a result finds its call
without looking at the others.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct


class OpenCall(Struct, gc=False, eq=False):
    """A call that may still lack its result; `wire_id` is its id in the body, if any."""

    call_id: str
    wire_id: str | None
    name: str
    is_answered: bool = False


class OpenCalls:
    """The calls of one step, from which results take theirs: by id, else by name, else the first without a result.

    Results mostly come in the order of their calls; the calls are indexed when the first one does not.
    """

    __slots__ = ("_calls", "_index", "_next")

    def __init__(self) -> None:
        self._calls: list[OpenCall] = []
        self._next = 0
        self._index: dict[tuple[str, str | None], deque[OpenCall]] | None = None

    def add(self, call_id: str, wire_id: str | None, name: str) -> None:
        call = OpenCall(call_id, wire_id, name)
        self._calls.append(call)
        if self._index is not None:
            self._add_to_index(self._index, call)

    def first(self) -> OpenCall | None:
        """The first call without a result."""
        calls = self._calls
        while self._next < len(calls):
            if not calls[self._next].is_answered:
                return calls[self._next]
            self._next += 1
        return None

    def take(self, name: str, wire_id: str | None) -> OpenCall | None:
        """The call of a result, which now has it; None if every call has one."""
        call = self.first()
        if call is None:
            return None
        if wire_id and call.wire_id != wire_id:
            call = self._find("id", wire_id) or self._find("name", name) or call
        elif not wire_id and call.name != name:
            call = self._find("name", name) or call
        call.is_answered = True
        return call

    def _find(self, kind: str, value: str) -> OpenCall | None:
        """The first call without a result that has this id or name."""
        if self._index is None:
            self._index = {}
            for call in self._calls[self._next :]:
                self._add_to_index(self._index, call)
        found = self._index.get((kind, value))
        while found:
            if not found[0].is_answered:
                return found[0]
            found.popleft()
        return None

    @staticmethod
    def _add_to_index(index: dict[tuple[str, str | None], deque[OpenCall]], call: OpenCall) -> None:
        for key in (("id", call.wire_id), ("name", call.name)):
            index.setdefault(key, deque()).append(call)
