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
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.conversation.events import (
    AgentSwitched,
    CompactionNeeded,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    RoundStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from antiphon.conversation.turn import EntryPosition
from antiphon.history import (
    AgentHistory,
    HistoryEntry,
    ModelOutputEntry,
    RollbackEntry,
    ToolCallFinishedEntry,
    ToolCallStartedEntry,
)
from antiphon.web.history_view import entry_json

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


class NumberedEvent(Struct, frozen=True):
    """An event and its id. One that was joined from several also stands for those since `first`."""

    id: int
    first: int
    event: ChatEvent


class EventBuffer:
    """The latest events of one conversation."""

    def __init__(self, capacity: int = CAPACITY, *, base: int | None = None) -> None:
        self._capacity = capacity
        self._kept: list[NumberedEvent] = []
        self._gone = self.last = self.settled = time.time_ns() // 1000 if base is None else base
        self._news = asyncio.Event()
        self.is_closed = False

    def tell(self, event: ChatEvent) -> None:
        """Add an event."""
        self.last += 1
        self._kept.append(NumberedEvent(self.last, self.last, event))
        if _is_final(event):
            self.settled = self.last
        if len(self._kept) > self._capacity:
            self._make_room()
        self._wake()

    def close(self) -> None:
        """Let all watchers go: nothing more will be told."""
        self.is_closed = True
        self._wake()

    def after(self, event_id: int) -> Sequence[NumberedEvent] | None:
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
            kept = list(_merge_deltas(kept))
        if len(kept) > half:
            kept = kept[-half:]
        self._gone = kept[0].first - 1
        self._kept = kept


def _is_final(event: ChatEvent) -> bool:
    """Whether the log tells all that happened up to here. While tools run, their events say more than the log does."""
    if isinstance(event, EntryAppended):
        return not isinstance(event.entry, ToolCallStartedEntry | ToolCallFinishedEntry)
    return isinstance(event, LoopFinished)


def frame(numbered: NumberedEvent) -> bytes:
    """An event as a browser's event stream has it."""
    event = numbered.event
    return b"id: %d\n" % numbered.id + frame_without_id(event)


def frame_without_id(event: Any) -> bytes:
    """An event without an id: nobody goes on from here."""
    if isinstance(event, EntryAppended):
        is_effective = not isinstance(event.entry, RollbackEntry)
        entry = entry_json(event.entry, event.place, is_effective=is_effective)
        event_data = b'{"type":"EntryAppended","entry":%s}' % entry
    else:
        event_data = msgspec.json.encode(event)
    return b"event: %s\ndata: %s\n\n" % (type(event).__name__.encode(), event_data)


def _merge_deltas(kept: Sequence[NumberedEvent]) -> Iterator[NumberedEvent]:
    """The same with fewer events: neighbouring words are one, and of a call's progress the latest is left."""
    latest = {one.event.call.tool_call_id: one.id for one in kept if isinstance(one.event, ToolCallProgress)}
    open_one: NumberedEvent | None = None
    for one in kept:
        event = one.event
        if isinstance(event, ToolCallProgress) and latest[event.call.tool_call_id] != one.id:
            continue
        if open_one is not None:
            if isinstance(event, TextDelta | ThinkingDelta) and type(event) is type(open_one.event):
                words = open_one.event.text + event.text
                open_one = NumberedEvent(one.id, open_one.first, type(event)(words))
                continue
            yield open_one
            open_one = None
        if isinstance(event, TextDelta | ThinkingDelta):
            open_one = one
        else:
            yield one
    if open_one is not None:
        yield open_one


_BEFORE_OUTPUT = (RoundStarted, ModelSwitched, TextDelta, ThinkingDelta, CompactionNeeded, AgentSwitched)
"""The events that come before the output of their round."""


class EventOrder:
    """Tells the entries of `history` and the events it is given. `told` is the version up to which entries were told."""

    def __init__(
        self,
        history: AgentHistory,
        tell_entry: Callable[[HistoryEntry], None],
        tell_event: Callable[[LoopEvent], None],
    ) -> None:
        self.told = 0
        self._history = history
        self._tell_entry = tell_entry
        self._tell_event = tell_event
        self._rounds = self._outputs = 0

    def begin(self) -> None:
        """Another stream of events begins."""
        self.rest()
        self._rounds = self._outputs = 0

    def event(self, event: LoopEvent) -> None:
        """Tell an event, and before it what happened before it."""
        if isinstance(event, LoopFinished):
            self.rest()
        else:
            self._rounds += isinstance(event, RoundStarted)
            self._before(event)
        self._tell_event(event)

    def rest(self) -> None:
        """Tell all entries that were not told yet."""
        for entry in self._history.entries.since(self.told):
            self._told(entry)

    def _before(self, event: LoopEvent) -> None:
        # The outputs that are told before this event: one for each round, but for that whose words are still coming.
        outputs = self._rounds - isinstance(event, _BEFORE_OUTPUT)
        news = self._history.entries.since(self.told)
        if isinstance(event, _BEFORE_OUTPUT):
            last = len(news)
        else:
            last = next((index for index, entry in enumerate(news, 1) if _precedes(entry, event)), 0)
        for index, entry in enumerate(news):
            if self._outputs >= outputs and (index >= last or isinstance(entry, ModelOutputEntry)):
                return
            self._told(entry)

    def _told(self, entry: HistoryEntry) -> None:
        self._outputs += isinstance(entry, ModelOutputEntry)
        self.told = entry.sequence_number
        self._tell_entry(entry)


def _precedes(entry: HistoryEntry, event: LoopEvent) -> bool:
    """Whether an event is the one that comes right behind an entry."""
    match event:
        case ToolCallStarted():
            return isinstance(entry, ToolCallStartedEntry) and entry.tool_call_id == event.call.tool_call_id
        case ToolCallFinished() | ToolCallFailed():
            return isinstance(entry, ToolCallFinishedEntry) and entry.result.tool_call_id == event.call.tool_call_id
        case _:
            return False
