"""`LiveConversation`: an open conversation: its log, the running turn, and the events of both.

A turn is a task of the server, not of a request: the client may disconnect, come back and find it running. All writes happen in
the event loop of this process and, if they take longer, under the lock `writing`. If another process writes the same log, the
lock of the store decides, and one of the two gets a conflict.

A log in a remote store is read and written in a thread (`run_store_call`), one at a time and never while a turn runs: the turn
appends in the event loop, and a log has one writer.

The model chosen for a conversation is recorded in its log, so it is the same after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from antiphon.conversation import Agent, Conversation, RunLimits, ToolLoop
from antiphon.conversation.events import EntryAppended as EntryAppendedEvent
from antiphon.conversation.events import LoopEvent, LoopFinished, RoundStarted, TextDelta
from antiphon.conversation.replay import Replay
from antiphon.conversation.turn import TurnIndex
from antiphon.errors import AntiphonError, HistoryError, StoreError
from antiphon.history import ModelOutputEntry, ShortenedResultsEntry
from antiphon.parts import InputPart, ToolCallRequest
from antiphon.prices.table import PriceTable
from antiphon.providers.presets import PRESETS
from antiphon.threads import STORES
from antiphon.wire.output import ProviderError
from antiphon_chat.page.event_stream import (
    GONE,
    RESET,
    EntryAppended,
    EventBuffer,
    TitleWritten,
    TurnFailed,
    TurnStarted,
    frames,
)
from antiphon_chat.page.rendered_text import TextRendering
from antiphon_chat.shared.in_a_line import count_shortened
from antiphon_chat.shared.models import record_model
from antiphon_chat.shared.partial_answers import PartialAnswers

logger = logging.getLogger("antiphon.web")

T = TypeVar("T")
TitleWriter: TypeAlias = "Callable[[LiveConversation], Awaitable[str]]"
"""Writes and stores a title; empty if there is none to store."""

PING_SECONDS = 15.0


class LiveConversation:
    """One conversation, its turns and its watchers."""

    def __init__(
        self,
        chat: Conversation,
        owner: str = "",
        *,
        events: EventBuffer | None = None,
        is_local: bool = True,
        limits: RunLimits | None = None,
        agents: Sequence[Agent] = (),
        partial_answers: PartialAnswers | None = None,
        write_title: TitleWriter | None = None,
        prices: Callable[[], PriceTable | None] = lambda: None,
    ) -> None:
        self.chat = chat
        self._prices = prices
        self._write_title = write_title
        self.owner = owner
        self.loop = ToolLoop(chat, limits=limits, agents=agents)
        self.events = events or EventBuffer()
        self.places = TurnIndex()
        self.writing = asyncio.Lock()
        self.watchers = 0
        self.is_deleted = False
        self.is_running = False
        """Whether a turn is running."""
        self.last_used = time.monotonic()
        self._is_local = is_local
        self._store_lock = asyncio.Lock()
        self._drawing = TextRendering(self.events.add)
        self._partial = (partial_answers or PartialAnswers(None)).writer(chat)
        self._task: asyncio.Task[None] | None = None
        self._replay: Replay | None = None
        self._admit_turn: Callable[[], Awaitable[None]] | None = None
        self._started: asyncio.Future[None] | None = None
        """Waits for the message of the turn to be stored."""
        self._continues_replay = False
        self.wants_title = False
        """Whether the model may write a title after the next answer."""
        self._title_task: asyncio.Task[None] | None = None
        self.failure: TurnFailed | None = None
        """Why the last turn failed, if it did."""
        self.places.update(chat.history.snapshot())
        self.version = chat.history.version
        """Up to which entry events were reported; the log may be slightly ahead."""

    # State.

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed: no turn, watcher or write is active."""
        return not (self.is_running or self.watchers or self.writing.locked() or self._store_lock.locked())

    @property
    def is_unfinished(self) -> bool:
        """Whether a turn stopped in the middle and may be resumed."""
        turn = self.chat.turn
        return not self.is_running and not self.pending and bool(turn.open_calls or turn.needs_model)

    @property
    def pending(self) -> tuple[ToolCallRequest, ...]:
        """The calls that wait for a person."""
        return () if self.is_running else self.loop.pending

    @property
    def _appends_here(self) -> bool:
        """Whether the event loop appends to the log: a turn is running, or a title is being written."""
        return self.is_running or (self._title_task is not None and not self._title_task.done())

    async def run_store_call(self, work: Callable[[], T]) -> T:
        """Read or write the log without blocking other requests."""
        if self._is_local or self._appends_here:
            return work()
        # The caller may be cancelled: the log is not free before this is done.
        return await asyncio.shield(self._in_a_thread(work))

    async def _in_a_thread(self, work: Callable[[], T]) -> T:
        async with self._store_lock:
            return work() if self._appends_here else await STORES.run(work)

    async def refresh(self) -> None:
        """Take in what others appended to the stored conversation, unless a turn is running here."""
        self.last_used = time.monotonic()
        if not self.is_running:
            await self.run_store_call(
                lambda: self.is_running or self.chat.history.refresh()
            )  # a turn may begin before we can
            self.publish_entries()

    def publish_entries(self) -> None:
        """Report entries appended outside a turn; during one, its next event does that."""
        if not self.is_running:
            self._report_entries()

    async def set_model(self, model: str) -> None:
        """Use another model from the next round on."""
        if model != self.chat.model:
            await self.run_store_call(lambda: record_model(self.chat.history, model))
            self.chat.model = model
            self.publish_entries()

    # Turns.

    async def start_turn(self, *content: InputPart) -> int:
        """Send a message, or resume the turn without one. Returns the number of the turn once the message is stored."""
        if self._task is not None and not self.is_running:
            await asyncio.wait([self._task])
        if content and self._replay is not None:  # a person continues
            self._replay.release(self.chat)
            self._replay = None
        await self.refresh()
        self._started = started = asyncio.get_running_loop().create_future()
        async with self._store_lock:
            number = self.places.turn + bool(content)
            self.is_running = True
            self._task = asyncio.create_task(self._play(content, number))
        await started
        return number

    async def start_replay(self, replay: Replay, model: str, admit_turn: Callable[[], Awaitable[None]]) -> int:
        """Run a replay in this conversation, a fork at its point; `admit_turn` is called before each further turn."""
        await self.run_store_call(lambda: replay.start(model, self.chat.history))
        replay.equip(self.chat)
        self._replay, self._admit_turn = replay, admit_turn
        return await self.start_turn()

    async def interrupt(self) -> bool:
        """Stop the running turn and keep the partial answer; False if there is none."""
        if not self.is_running:
            return False
        assert self._task is not None
        interrupted = await self.loop.interrupt()
        await asyncio.wait([self._task])
        return interrupted

    async def _play(self, content: Sequence[InputPart], number: int) -> None:
        started = self._started
        assert started is not None, "made with the task"
        self._report_entries()
        self.events.add(TurnStarted(number))
        try:
            await self.loop.run(*content, on_event=self._on_event, check=False)
            while self._continues_replay:
                await self._next_of_replay()
                await self.loop.run(on_event=self._on_event, check=False)
        except Exception as error:
            self._on_error(error)
            if not started.done():
                started.set_exception(error)
        else:
            self._begin_title()
        finally:
            self.last_used = time.monotonic()
            self.is_running = self._continues_replay = False
            self._partial.close()
            self._report_entries()
            if not started.done():
                started.cancel()

    async def _next_of_replay(self) -> None:
        """Send the next message of the replay again; its turn follows."""
        if self._admit_turn is not None:
            await self._admit_turn()
        assert self._replay is not None, "checked when the turn ended"
        self._replay.advance()
        self._report_entries()
        self.events.add(TurnStarted(self.places.turn))

    def _begin_title(self) -> None:
        """Let the model write a title after the first answer, in the background."""
        if self.wants_title and self._write_title is not None and self.chat.turn.output is not None:
            self._title_task = asyncio.create_task(self._add_title(self._write_title))

    async def _add_title(self, write_title: TitleWriter) -> None:
        title = await write_title(self)
        self.wants_title = False
        self.publish_entries()  # what it used
        if title:
            self.events.add(TitleWritten(title))

    def _on_event(self, event: LoopEvent) -> None:
        if self._started is not None:
            if not self._started.done():
                self._started.set_result(None)
            self._started = None
        match event:
            case EntryAppendedEvent(entry):
                if isinstance(entry, ModelOutputEntry):  # the log has it
                    self._partial.close()
                self._report_entries(entry.sequence_number)
            case TextDelta(text):
                self._partial.add(text)
                self._drawing.feed(text)
            case LoopFinished():
                self._on_end(event)
            case _:
                if isinstance(event, RoundStarted):
                    self.failure = None
                self.events.add(event)

    def _on_end(self, event: LoopFinished) -> None:
        self._continues_replay = (
            self._replay is not None and self._replay.continues_after(event.reason) and self._replay.has_more
        )
        self.is_running = self._continues_replay
        self._report_entries()
        self._drawing.reset()
        self.failure = None if event.error is None else self._failure_of(event.error)
        if self.failure is not None:
            self.events.add(self.failure)
        self.events.add(event)

    def _on_error(self, error: Exception) -> None:
        """The turn ended with an error that is not the provider's: a full disk, a second writer, or a bug."""
        message = str(error)
        if not isinstance(error, AntiphonError):
            logger.exception("[%s] a turn failed inside the chat", self.chat.id)
            message = f"the chat failed ({type(error).__name__}); its log says more"
        elif isinstance(error, StoreError | HistoryError):
            logger.warning("[%s] a turn was ended by the store: %s", self.chat.id, error)
        if self.is_running:
            self._on_end(LoopFinished("failed", error=ProviderError(message, "server", code=type(error).__name__)))

    def _failure_of(self, error: ProviderError) -> TurnFailed:
        report = self.chat.report
        tried = report.attempts[-1] if report.attempts else None
        provider = tried.provider if tried else report.origin.provider
        preset = PRESETS.get(provider)
        last = self.chat.history.effective[-1] if self.chat.history.effective else None
        return TurnFailed(
            provider=provider,
            model=(tried.model if tried else "") or report.origin.model or self.chat.model,
            message=error.message,
            kind=error.kind,
            status=error.status if error.status is not None else tried.status if tried else None,
            attempts=len(report.attempts),
            is_partial=isinstance(last, ModelOutputEntry) and bool(last.response_markdown),
            key_variables=preset.secret_variables if preset else (),
        )

    def _report_entries(self, up_to: int | None = None) -> None:
        """Report the entries that were not reported yet, up to `up_to`. An entry that a tool appends in a thread may be
        announced after a later one."""
        snapshot = self.chat.history.current
        if snapshot.version == self.version:
            return
        for entry, place in self.places.update(snapshot, up_to):
            self.version = entry.sequence_number
            prices = shortened = None
            if isinstance(entry, ModelOutputEntry):
                self._drawing.reset()
                prices = self._prices()
            elif isinstance(entry, ShortenedResultsEntry):
                shortened = count_shortened(snapshot.effective, entry)
            self.events.add(EntryAppended(entry, place, prices, shortened))

    # Watchers.

    async def watch(self, after: int | None, seconds: float, ping: float = PING_SECONDS) -> AsyncIterator[bytes]:
        """The events after id `after` (default: those not in the log), as an event stream of at most `seconds`."""
        self.watchers += 1
        try:
            cursor = self.events.settled if after is None else after
            yield b": watching\n\n"
            ends = time.monotonic() + seconds
            while (left := ends - time.monotonic()) > 0:
                if not await self.events.news(cursor, min(ping, left)):
                    yield b": ping\n\n"
                    continue
                found = self.events.after(cursor)
                if found is None:
                    yield RESET
                    return
                if found:
                    cursor = found[-1].id
                    for chunk in frames(found):
                        yield chunk
                if self.events.is_closed:
                    if self.is_deleted:
                        yield GONE
                    return
        finally:
            self.watchers -= 1
            self.last_used = time.monotonic()

    async def close(self, grace: float = 0.0) -> None:
        """Disconnect the watchers and end the turn, which gets `grace` seconds to finish."""
        self.events.close()
        if self._title_task is not None:
            self._title_task.cancel()
        if self._task is not None and not self._task.done():
            if grace:
                await asyncio.wait([self._task], timeout=grace)
            await self.interrupt()
            await asyncio.wait([self._task])
