"""`EventBuffer`: the recent events of a conversation, numbered, so that a client that lost the connection can resume.

All watchers of a conversation read from one buffer, each at its own pace, and keep only a cursor: a slow watcher costs no memory,
and all of them see the same events. When the buffer is full, events that are also in the log (everything up to `settled`) are
dropped first; then the text chunks of the open round are merged. A watcher that requests dropped events, or starts inside a
merged one, gets None from `after` and reads the conversation again: the log and the events after `settled` are complete.

Ids grow across restarts: a buffer starts to count at its creation time in microseconds.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TypeAlias

import msgspec
from msgspec import Struct

from antiphon.conversation.events import LoopEvent, LoopFinished, TextDelta, ThinkingDelta, ToolCallProgress
from antiphon.conversation.turn import EntryPosition
from antiphon.history import HistoryEntry, RollbackEntry, ToolCallFinishedEntry, ToolCallStartedEntry
from antiphon.prices.table import PriceTable
from antiphon_chat.page.history_view import entry_json
from antiphon_chat.page.rendered_text import RenderedText

CAPACITY = 4096
"""How many events are kept."""
_OPEN = (ToolCallStartedEntry, ToolCallFinishedEntry)
"""While tools run, their events have more than the log."""


class TurnStarted(Struct, frozen=True, tag=True):
    """A turn starts or continues."""

    turn: int


class EntryAppended(Struct, frozen=True, tag=True):
    """The log has grown."""

    entry: HistoryEntry
    place: EntryPosition
    prices: PriceTable | None = None
    shortened: int | None = None
    """How many results it shortens, if it does that."""


class TurnFailed(Struct, frozen=True, tag=True):
    """Why a turn failed: who was called, what it answered, how often it was tried, and whether a part of the answer arrived."""

    provider: str
    model: str
    message: str
    kind: str
    status: int | None
    attempts: int
    is_partial: bool
    key_variables: tuple[str, ...]


class TitleWritten(Struct, frozen=True, tag=True):
    """The model has written a title for the conversation."""

    title: str


ChatEvent: TypeAlias = LoopEvent | TurnStarted | EntryAppended | RenderedText | TurnFailed | TitleWritten


class NumberedEvent(Struct, frozen=True):
    """An event and its id. A merged event also covers the ids since `first`."""

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

    def add(self, event: ChatEvent) -> None:
        """Add an event."""
        self.last += 1
        self._kept.append(NumberedEvent(self.last, self.last, event))
        if isinstance(event, LoopFinished) or (isinstance(event, EntryAppended) and not isinstance(event.entry, _OPEN)):
            self.settled = self.last
        if len(self._kept) > self._capacity:
            self._make_room()
        self._news.set()

    def close(self) -> None:
        """Disconnect all watchers: no more events will come."""
        self.is_closed = True
        self._news.set()

    def after(self, event_id: int) -> Sequence[NumberedEvent] | None:
        """The events after that id; None if some are not in the buffer."""
        if not self._gone <= event_id <= self.last:
            return None
        found = self._kept[bisect_right(self._kept, event_id, key=attrgetter("id")) :]
        return None if found and found[0].first <= event_id else found

    async def news(self, event_id: int, seconds: float) -> bool:
        """Wait for an event after that id until the timeout; False if there was none."""
        if event_id != self.last or self.is_closed:
            return True
        if self._news.is_set():  # of events that the caller has
            self._news = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _make_room(self) -> None:
        """Reduce the buffer to half of its capacity."""
        half = self._capacity // 2
        in_the_log = bisect_right(self._kept, self.settled, key=attrgetter("id"))
        kept = self._kept[min(in_the_log, len(self._kept) - half) :]
        if len(kept) > half:
            kept = list(_merge_deltas(kept))
        if len(kept) > half:
            kept = kept[-half:]
        self._gone = kept[0].first - 1
        self._kept = kept


RESET = b'event: Reset\ndata: {"type":"Reset"}\n\n'
"""The requested events are no longer in the buffer: the page reads the conversation again."""
GONE = b'event: Gone\ndata: {"type":"Gone"}\n\n'
"""The conversation was deleted."""
_CHUNK_BYTES = 256 * 1024


def frames(found: Sequence[NumberedEvent]) -> list[bytes]:
    """The events as server-sent events, in chunks large enough to write."""
    chunks, gathered, size = [], [], 0
    for one in found:
        event = one.event
        if type(event) is EntryAppended:
            data = b'{"type":"EntryAppended","entry":%s}' % entry_json(
                event.entry,
                event.place,
                is_effective=not isinstance(event.entry, RollbackEntry),
                prices=event.prices,
                shortened=event.shortened,
            )
        else:
            data = msgspec.json.encode(event)
        name = "TextDelta" if type(event) is RenderedText else type(event).__name__
        gathered.append(b"id: %d\nevent: %s\ndata: %s\n\n" % (one.id, name.encode(), data))
        size += len(data)
        if size >= _CHUNK_BYTES:
            chunks.append(b"".join(gathered))
            gathered, size = [], 0
    return [*chunks, b"".join(gathered)] if gathered else chunks


def _merge_deltas(kept: Sequence[NumberedEvent]) -> Iterator[NumberedEvent]:
    """The same in fewer events: adjacent text is merged, and only the latest progress of a call is kept."""
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
            if isinstance(event, RenderedText) and isinstance(open_one.event, RenderedText):
                open_one = NumberedEvent(one.id, open_one.first, open_one.event.followed_by(event))
                continue
            yield open_one
            open_one = None
        if isinstance(event, TextDelta | ThinkingDelta | RenderedText):
            open_one = one
        else:
            yield one
    if open_one is not None:
        yield open_one
