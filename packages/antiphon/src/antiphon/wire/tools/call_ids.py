"""Ids of tool calls: those that a format accepts, and those of formats that leave them out.

An id is used as it is where the format's rules allow it. Otherwise it is replaced by one derived from it alone: the same for a
call and its result, and distinct for distinct originals (80 bits of a hash).

Gemini and Ollama leave ids out. However many calls a step has, and in whatever order their results come, a result finds its call
without looking at the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from antiphon.wire.tools.names import ShortKeyCache, hash_of, matcher

GENERATED_ID_PREFIX = "call_gm_"
"""Ids generated for calls of a format that has none begin with this; they are never written back to it."""


class IdMapper:
    """Maps call ids into a pattern; a replacement begins with `prefix`. A pattern from the table is read on first use."""

    def __init__(self, pattern: str | Callable[[], str], *, prefix: str = "call_", length: int = 20) -> None:
        self._is_legal = matcher(pattern)
        self._prefix = prefix
        self._length = length
        self.to_wire = ShortKeyCache(self._map).__getitem__

    def _map(self, call_id: str) -> str:
        if self._is_legal(call_id):
            return call_id
        return self._prefix + hash_of(call_id)[: self._length]


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

    __slots__ = ("_calls", "_index", "_indexed", "_next")

    def __init__(self) -> None:
        self.start_step()

    def start_step(self) -> None:
        """A new turn of the model: later results belong to the calls after this."""
        self._calls: list[OpenCall] = []
        self._next = self._indexed = 0
        self._index: dict[tuple[str, str | None], deque[OpenCall]] | None = None

    def add(self, call_id: str, wire_id: str | None, name: str) -> None:
        self._calls.append(OpenCall(call_id, wire_id, name))

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
        calls = self._calls
        if self._index is None:
            self._index, self._indexed = {}, self._next
        for call in calls[self._indexed :]:
            for key in (("id", call.wire_id), ("name", call.name)):
                self._index.setdefault(key, deque()).append(call)
        self._indexed = len(calls)
        found = self._index.get((kind, value))
        while found:
            if not found[0].is_answered:
                return found[0]
            found.popleft()
        return None


class CallIdTracker(OpenCalls):
    """Call ids of one body in which ids may be missing, and the calls of its last step.

    A missing id is generated from the position of the call and the id of the body: the same every time the body is read.
    """

    __slots__ = ("_count", "_prefix")

    def __init__(self, body_id: str = "") -> None:
        self.start_step()
        digest = hash_of(body_id)[:10] + "_" if body_id else ""
        self._prefix = GENERATED_ID_PREFIX + digest
        self._count = 0

    def add_call(self, name: str, wire_id: str | None) -> str:
        """The id of the next call; `wire_id` is its id in the body, if any."""
        call_id = wire_id if wire_id and not wire_id.startswith(GENERATED_ID_PREFIX) else self._generate_id()
        self._calls.append(OpenCall(call_id, wire_id, name))
        return call_id

    def match_next(self, name: str, wire_id: str | None) -> str | None:
        """The id of the first call without a result, if it has this name and uses this id of the body, or has none there."""
        calls, place = self._calls, self._next
        if place == len(calls):
            return None
        call = calls[place]
        known = call.wire_id
        if known != wire_id or call.name != name or call.is_answered or (known and known != call.call_id):
            return None
        call.is_answered = True
        self._next = place + 1
        return call.call_id

    def match_result(self, name: str, wire_id: str | None) -> tuple[str, str | None]:
        """The id of the call a result belongs to, and the id of that call in the body."""
        call = self.take(name, wire_id)
        if call is None:
            return (wire_id if wire_id and not wire_id.startswith(GENERATED_ID_PREFIX) else self._generate_id()), None
        return call.call_id, call.wire_id

    def _generate_id(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count - 1}"
