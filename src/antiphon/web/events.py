"""`EventBuffer`: what happened in a conversation lately, numbered, so that whoever lost the connection goes on where it was.

All watchers of a conversation read from the one buffer, each at its own pace, with nothing but a number of its own: a slow one
costs no memory, and two of them see the same. What no longer fits is let go of in this order: events that the log tells too
(everything up to `settled`), then words of the open round are joined to longer pieces. Somebody who asks for what is gone, or
from the middle of what was joined, is told so (`after` gives None) and reads the conversation again: the log, and then the
events behind `settled`, say everything.

Ids grow over restarts too: a buffer begins to count at the microseconds of the time it was made.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.conversation.events import LoopEvent, LoopFinished, TextDelta, ThinkingDelta, ToolCallProgress
from antiphon.conversation.turn import EntryPosition
from antiphon.history import HistoryEntry, RollbackEntry, ToolCallFinishedEntry, ToolCallStartedEntry
from antiphon.web.entry_view import entry_json

CAPACITY = 4096
"""How many events are kept."""


class TurnStarted(Struct, frozen=True, tag=True):
    """A turn begins, or goes on."""

    turn: int


class EntryAppended(Struct, frozen=True, tag=True):
    """The log has grown."""

    entry: HistoryEntry
    place: EntryPosition


class Reset(Struct, frozen=True, tag=True):
    """What was asked for is not kept any more: read the conversation again."""


class Gone(Struct, frozen=True, tag=True):
    """The conversation was deleted."""


ChatEvent: TypeAlias = LoopEvent | TurnStarted | EntryAppended


class Numbered(Struct, frozen=True):
    """An event and its id. One that was joined from several also stands for those since `first`."""

    id: int
    first: int
    event: ChatEvent


class EventBuffer:
    """The latest events of one conversation."""

    def __init__(self, capacity: int = CAPACITY, *, base: int | None = None) -> None:
        self._capacity = capacity
        self._kept: list[Numbered] = []
        self._gone = self.last = self.settled = time.time_ns() // 1000 if base is None else base
        self._news = asyncio.Event()
        self.is_closed = False

    def tell(self, event: ChatEvent) -> None:
        """Add an event."""
        self.last += 1
        self._kept.append(Numbered(self.last, self.last, event))
        if _settles(event):
            self.settled = self.last
        if len(self._kept) > self._capacity:
            self._make_room()
        self._wake()

    def close(self) -> None:
        """Let all watchers go: nothing more will be told."""
        self.is_closed = True
        self._wake()

    def after(self, event_id: int) -> Sequence[Numbered] | None:
        """The events behind that id; None if they are not all here, or never were."""
        if not self._gone <= event_id <= self.last:
            return None
        found = self._kept[bisect_right(self._kept, event_id, key=attrgetter("id")) :]
        return None if found and found[0].first <= event_id else found

    async def news(self, seconds: float) -> bool:
        """Wait for the next event, at most so long; False if there was none."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _make_room(self) -> None:
        """Bring the buffer down to half of its capacity."""
        half = self._capacity // 2
        told_by_the_log = bisect_right(self._kept, self.settled, key=attrgetter("id"))
        kept = self._kept[min(told_by_the_log, len(self._kept) - half) :]
        if len(kept) > half:
            kept = list(_joined(kept))
        if len(kept) > half:
            kept = kept[-half:]
        self._gone = kept[0].first - 1
        self._kept = kept


def _settles(event: ChatEvent) -> bool:
    """Whether the log tells all that happened up to here. While tools run, their events say more than the log does."""
    if isinstance(event, EntryAppended):
        return not isinstance(event.entry, ToolCallStartedEntry | ToolCallFinishedEntry)
    return isinstance(event, LoopFinished)


def frame(numbered: Numbered) -> bytes:
    """An event as a browser's event stream has it."""
    event = numbered.event
    return b"id: %d\n" % numbered.id + bare_frame(event)


def bare_frame(event: Any) -> bytes:
    """An event without an id: nobody goes on from here."""
    if isinstance(event, EntryAppended):
        is_effective = not isinstance(event.entry, RollbackEntry)
        entry = entry_json(event.entry, event.place, is_effective=is_effective)
        event_data = b'{"type":"EntryAppended","entry":%s}' % entry
    else:
        event_data = msgspec.json.encode(event)
    return b"event: %s\ndata: %s\n\n" % (type(event).__name__.encode(), event_data)


def _joined(kept: Sequence[Numbered]) -> Iterator[Numbered]:
    """The same with fewer events: neighbouring words are one, and of a call's progress the latest is left."""
    latest = {one.event.call.tool_call_id: one.id for one in kept if isinstance(one.event, ToolCallProgress)}
    open_one: Numbered | None = None
    for one in kept:
        event = one.event
        if isinstance(event, ToolCallProgress) and latest[event.call.tool_call_id] != one.id:
            continue
        if open_one is not None:
            if isinstance(event, TextDelta | ThinkingDelta) and type(event) is type(open_one.event):
                words = open_one.event.text + event.text
                open_one = Numbered(one.id, open_one.first, type(event)(words))
                continue
            yield open_one
            open_one = None
        if isinstance(event, TextDelta | ThinkingDelta):
            open_one = one
        else:
            yield one
    if open_one is not None:
        yield open_one
