"""Answers in the background: a client starts one, leaves, and later polls it, follows its events or cancels it.

The gateway runs the generation itself, as a stream, whatever the format of the upstream: an upstream's own background mode would
tie the answer to one provider and one key. `BackgroundAnswer` takes the place of the client's connection: it collects the events,
so that any number of clients can follow them from any position. When it has ended, the store has all of it, for this worker as
for the others. How a format shows an answer that is queued or in progress is its `AnswerShape`; the rest is the same for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from msgspec import structs

from antiphon.errors import AntiphonError
from antiphon.http.body import Hold
from antiphon.http.messages import Response
from antiphon.wire import Format
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.sse import SseEvent, SseReader
from antiphon_gateway.errors import overloaded
from antiphon_gateway.state.answers import EVENT_SECONDS, AnswerStore, Events, StoredAnswer
from antiphon_gateway.state.generated import SHAPES, AnswerShape, GeneratedAnswer, encode_event
from antiphon_gateway.threads import STATE

logger = logging.getLogger("antiphon.gateway")

SHARE_SECONDS = 0.5
"""How often a worker shares an answer with other workers, and they look for its events."""
_OVERDUE = ProviderError("the process that generated this answer has ended", "server")

AnswerKey: TypeAlias = tuple[str, str]
"""The owner and the id of an answer."""


class BackgroundAnswer(GeneratedAnswer):
    """One answer that is generated for any number of clients, here and at other workers.

    `hold` counts its request and its events, until the store has the whole answer.
    """

    task: asyncio.Task[None]
    """Done when it has ended, and its end was stored."""

    def __init__(self, key: AnswerKey, shape: AnswerShape, store: AnswerStore, hold: Hold) -> None:
        super().__init__(shape)
        self.key = key
        self.owner, self.id = key
        self.hold = hold
        self.events: list[bytes] = []
        self.change = asyncio.Event()
        """Set, and replaced by another one, when there are more events, and when it has ended."""
        self._store = store
        self._stored = 0  # how many of the events the store has

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, but not longer. Whether it has."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
        return self.is_over

    async def run(self, respond: Callable[[], Awaitable[Response]], seconds: float) -> bool:
        """Generate the answer, for at most so many seconds. Returns whether the store has all of it."""
        watch = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(seconds):
                await self.generate(respond)
        except TimeoutError:
            self.end("failed", ProviderError(f"the answer was not complete after {seconds:g} s", "timeout"))
        await asyncio.wait({watch})  # else its last call could end after the following one
        try:
            await STATE.run(self._store.finish, self.id, self.owner, self.body, self.unstored())
        except Exception:
            logger.exception("the end of a background answer could not be stored; only this worker can show it")
            return False
        return True

    async def _watch(self) -> None:
        """Until it ends, share its events with other workers, and end it when a client cancelled it at one of them."""
        while not await self.wait(SHARE_SECONDS):
            events = self.unstored()
            try:
                may_go_on = await STATE.run(self._store.share, self.id, self.owner, events)
            except AntiphonError:
                logger.exception(
                    "events of a background answer could not be stored, or it is not known whether it was cancelled at "
                    "another worker; retrying"
                )
            else:
                self._stored += len(events[1])
                if not may_go_on:
                    self.end("cancelled")

    def unstored(self, last: bytes = b"") -> Events:
        """The events that the store may not have yet, and those in `last`, which will follow them."""
        return self._stored, [*self.events[self._stored :], *map(encode_event, SseReader().feed(last))]

    def on_event(self, event: SseEvent) -> None:
        """Keep an event for those who follow the answer."""
        encoded = encode_event(event)
        refusal = self.hold.grow(len(encoded))
        if refusal and not self.is_over:
            self.end("failed", overloaded(refusal))
            return
        self.events.append(encoded)
        self._tell()

    def end_stream(self) -> None:
        """The stream is complete."""
        super().end_stream()
        self._tell()

    def _tell(self) -> None:
        self.change.set()
        self.change = asyncio.Event()


class BackgroundAnswers:
    """The answers that this process generates, by owner and id."""

    def __init__(self, store: AnswerStore) -> None:
        self._store = store
        self._answers: dict[AnswerKey, BackgroundAnswer] = {}

    async def start(
        self, answer: BackgroundAnswer, respond: Callable[[], Awaitable[Response]], seconds: float, request: bytes
    ) -> None:
        """Start an answer to the body `request`, which gets `seconds`. `respond` gives its stream. Raises `StateLimitReached`."""
        try:
            answer.body = answer.shape.queued()
            await STATE.run(self._store.begin, answer.id, answer.owner, answer.body, request)
        except BaseException:
            answer.hold.release()
            raise
        self._answers[answer.key] = answer
        answer.task = asyncio.create_task(self._run(answer, respond, seconds))

    async def find(self, key: AnswerKey, format_name: str) -> StoredAnswer | None:
        """What is known of an answer as it is now: also one that is not in the background. One whose process died has failed."""
        owner, answer_id = key
        answer = self._answers.get(key)  # before the store is asked: once it is not here, that has all of it
        stored = await STATE.run(self._store.find, answer_id, owner)
        if stored is not None and answer is not None:
            return structs.replace(stored, body=answer.body)
        if stored is not None and stored.status == "overdue":
            shape = SHAPES[format_name](answer_id, b"")
            return structs.replace(stored, body=shape.ended(stored.body, "failed", _OVERDUE))
        return stored

    async def follow(self, key: AnswerKey, after: int, wire: Format, silence: float) -> AsyncIterator[bytes]:
        """The events of an answer after the one with index `after`, those to come included, from here or another worker.

        A keep-alive is sent after each `silence` seconds without events, an error at the end if the worker died.
        """
        answer, position, silent = self._answers.get(key), after + 1, 0.0
        pause = SHARE_SECONDS if answer is None else silence
        while True:
            if answer is None:
                change = asyncio.Event()  # that never comes
                events, is_over = await self._stored_events(key, position, wire)
            else:
                change, events, is_over = answer.change, answer.events[position:], answer.is_over
            if events:
                position += len(events)
                silent = 0.0
                yield b"".join(events)
            if is_over:
                return
            try:
                await asyncio.wait_for(change.wait(), pause)
            except TimeoutError:
                silent += pause
                if silent >= silence:
                    silent = 0.0
                    yield wire.spec.keep_alive

    async def _stored_events(self, key: AnswerKey, position: int, wire: Format) -> tuple[list[bytes], bool]:
        """The stored events of an answer from a position on, and whether there will be no more."""
        owner, answer_id = key
        stored = await self.find(key, wire.name)  # before its events: at its end all of them are stored
        events = await STATE.run(self._store.events, answer_id, owner, position - 1)
        if stored is not None and stored.status == "overdue":
            end = SHAPES[wire.name](answer_id, b"").end_event(stored.body, position + len(events))
            events.append(encode_event(end))
        return events, stored is None or stored.status != "running"

    async def cancel(self, key: AnswerKey) -> bytes | None:
        """Cancel an answer, and wait until it has ended. Returns its object; None if it was not running in this process."""
        answer = self._answers.get(key)
        if answer is None or answer.task.done():
            return None
        answer.end("cancelled")
        await asyncio.wait({answer.task})
        return answer.body

    def forget(self, key: AnswerKey) -> None:
        """Drop an answer that has ended."""
        answer = self._answers.pop(key, None)
        if answer is not None:
            answer.hold.release()

    async def drain(self, grace: float) -> None:
        """Wait until the answers in progress have ended, at most `grace` seconds: a client polls for them elsewhere later."""
        if tasks := [answer.task for answer in self._answers.values()]:
            await asyncio.wait(tasks, timeout=grace)

    async def aclose(self) -> None:
        """Cancel all."""
        answers = list(self._answers.values())
        for answer in answers:
            answer.end("cancelled")
        if answers:
            await asyncio.wait([answer.task for answer in answers])

    async def _run(self, answer: BackgroundAnswer, respond: Callable[[], Awaitable[Response]], seconds: float) -> None:
        if await answer.run(respond, seconds):
            self.forget(answer.key)
        else:
            asyncio.get_running_loop().call_later(EVENT_SECONDS, self.forget, answer.key)
