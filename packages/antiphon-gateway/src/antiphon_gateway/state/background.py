"""Answers in the background: a client starts one, leaves, and later polls it, follows its events or cancels it.

The gateway runs the generation itself, as a stream, whatever the format of the upstream: an upstream's own background mode would
tie the answer to one provider and one key. `BackgroundAnswer` takes the place of the client's connection: it collects the events,
so that any number of clients can follow them from any position. How a format shows an answer that is queued or in progress is its
`AnswerShape`; the rest is the same for all formats.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Literal, Protocol, TypeAlias

from antiphon.errors import AntiphonError
from antiphon.http.body import Governor, Hold
from antiphon.http.messages import Response, ResponseStream, StreamSource
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.sse import SseEvent, SseReader
from antiphon_gateway.errors import INTERNAL_ERROR, overloaded
from antiphon_gateway.state.answers import AnswerStore
from antiphon_gateway.threads import STATE

logger = logging.getLogger("antiphon.gateway")

MAX_FOLLOWABLE = 100
"""How many ended answers keep their events, for clients that follow them late."""
SHARE_SECONDS = 0.5
"""How often a worker stores the events of an answer for other workers, and looks whether it was cancelled at one of them."""

Ending: TypeAlias = Literal["cancelled", "failed"]
AnswerKey: TypeAlias = tuple[str, str]
"""The owner and the id of an answer."""


class AnswerShape(Protocol):
    """How a format shows one answer that is not complete."""

    def queued(self) -> bytes:
        """The object before anything has happened."""

    def in_event(self, event: SseEvent) -> bytes | None:
        """The object that an event of the stream contains; None if it has none."""

    def refused(self, response: Response) -> ProviderError:
        """The error of a response that is not a stream."""

    def ended(self, last: bytes, ending: Ending, error: ProviderError | None) -> bytes:
        """The object of an answer that was not completed; `last` is the object before."""


class BackgroundAnswer:
    """One answer that is being generated. It is the `ResponseStream` of its generation."""

    def __init__(self, shape: AnswerShape, hold: Hold, make_room: Callable[[], None] = lambda: None) -> None:
        """`hold` counts the events, after `make_room` if too many bytes wait."""
        self.hold = hold
        self._make_room = make_room
        self.body = shape.queued()
        """The object as it is now."""
        self.ending: Ending | None = None
        """Why it ended before it was complete."""
        self.is_over = False
        self.events: list[bytes] = []
        self.shared = 0
        """How many of them other workers can read."""
        self._shape = shape
        self._reader = SseReader()
        self._followers: list[_Follower] = []
        self._source: StreamSource | None = None
        self._ended = asyncio.Event()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()

    async def run(self, respond: Callable[[], Awaitable[Response]]) -> None:
        """Generate the answer. Returns when it has ended."""
        try:
            response = await respond()
            body = response.body
            if isinstance(body, bytes):
                self.end("failed", self._shape.refused(response))
            elif isinstance(body, AsyncIterator):
                async with aclosing(body) as pieces:  # type: ignore[type-var]
                    async for piece in pieces:
                        self.write(piece)
                self.end_stream()
            else:
                self._source = body
                body.start(self)
                await self._ended.wait()
        except asyncio.CancelledError:
            self.end("cancelled")
            raise
        except Exception:
            logger.exception("internal error while generating an answer in the background")
            self.end("failed", INTERNAL_ERROR)
        finally:
            source, self._source = self._source, None
            if source is not None and self.ending is not None:
                source.cancel()

    def follow(self, after: int = -1) -> StreamSource:
        """The events after the one with index `after`, those to come included."""
        return _Follower(self, self._followers, after + 1)

    # What the generation calls.

    def write(self, data: bytes) -> None:
        """More of the stream."""
        if self.is_over:
            return
        events = self._reader.feed(data)
        for event in events:
            encoded = encode_event(event)
            if refusal := self._count(len(encoded)):
                self.end("failed", overloaded(refusal))
                return
            self.events.append(encoded)
            found = self._shape.in_event(event)
            if found is not None:
                self.body = found
        for follower in tuple(self._followers):
            follower.send(data if not events else b"")

    def _count(self, size: int) -> str:
        if not self.hold.grow(size):
            return ""
        self._make_room()
        return self.hold.grow(size)

    def end_stream(self) -> None:
        """The stream is complete."""
        self._close()

    def abort_stream(self) -> None:
        """The stream broke by a defect of ours."""
        self.end("failed", INTERNAL_ERROR)

    def end(self, ending: Ending, error: ProviderError | None = None) -> None:
        """End it before it is complete."""
        if not self.is_over:
            self.ending = ending
            self.body = self._shape.ended(self.body, ending, error)
            self._close()

    def _close(self) -> None:
        self.is_over = True
        self._ended.set()
        for follower in tuple(self._followers):
            follower.send(b"")


class _Follower:
    """A client that follows an answer from a position in its events."""

    def __init__(self, answer: BackgroundAnswer, followers: list[_Follower], position: int) -> None:
        self._answer = answer
        self._followers = followers
        self._position = position
        self._client: ResponseStream | None = None
        self._is_paused = False

    def start(self, client: ResponseStream) -> None:
        self._client = client
        self._followers.append(self)
        self.send(b"")

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self.send(b"")

    def cancel(self, error: Exception | None = None) -> None:
        del error
        self._client = None
        if self in self._followers:
            self._followers.remove(self)

    def send(self, comment: bytes) -> None:
        """Write what is new, or a comment if there is nothing."""
        client = self._client
        if client is None or self._is_paused:
            return
        events = self._answer.events
        data = b"".join(events[self._position :]) or comment
        self._position = max(self._position, len(events))
        if data:
            client.write(data)
        if self._answer.is_over:
            self.cancel()
            client.end_stream()


class BackgroundAnswers:
    """The answers of this process, by owner and id."""

    def __init__(self, store: AnswerStore) -> None:
        self._store = store
        self._answers: dict[AnswerKey, BackgroundAnswer] = {}
        self._tasks: dict[AnswerKey, asyncio.Task[None]] = {}

    async def start(
        self,
        key: AnswerKey,
        shape: AnswerShape,
        respond: Callable[[], Awaitable[Response]],
        *,
        seconds: float,
        request: bytes = b"",
        hold: Hold | None = None,
    ) -> BackgroundAnswer:
        """Start an answer to the body `request`, which gets `seconds`. `respond` gives its stream.

        `hold` counts the request until the answer has ended. Raises `StateLimitReached`.
        """
        owner, answer_id = key
        hold = hold or Governor().hold(owner)
        try:
            answer = BackgroundAnswer(shape, hold.another(), partial(self._make_room, 0, owner))
            await STATE.run(self._store.begin, answer_id, owner, answer.body, seconds=seconds, request=request)
        except BaseException:
            hold.release()
            raise
        self._answers[key] = answer
        self._tasks[key] = asyncio.create_task(self._run(key, answer, respond, seconds, hold))
        return answer

    def get(self, key: AnswerKey) -> BackgroundAnswer | None:
        """An answer of this process; None if it is not here, or ended long ago."""
        return self._answers.get(key)

    async def cancel(self, key: AnswerKey) -> bool:
        """Cancel an answer, and wait until it has ended. Returns whether it was running in this process."""
        task, answer = self._tasks.get(key), self._answers.get(key)
        if task is None or answer is None:
            return False
        answer.end("cancelled")
        await asyncio.wait({task})
        return True

    def forget(self, key: AnswerKey) -> None:
        """Drop the events of an answer."""
        answer = self._answers.pop(key, None)
        if answer is not None:
            answer.hold.release()

    async def drain(self, grace: float) -> None:
        """Wait until the answers in progress have ended, at most `grace` seconds: a client polls for them elsewhere later."""
        if tasks := list(self._tasks.values()):
            await asyncio.wait(tasks, timeout=grace)

    async def aclose(self) -> None:
        """Cancel all."""
        tasks = list(self._tasks.values())
        for answer in self._answers.values():
            answer.end("cancelled")
        if tasks:
            await asyncio.wait(tasks)

    async def _run(
        self,
        key: AnswerKey,
        answer: BackgroundAnswer,
        respond: Callable[[], Awaitable[Response]],
        seconds: float,
        hold: Hold,
    ) -> None:
        owner, answer_id = key
        watch = asyncio.create_task(self._watch(key, answer))
        try:
            run = asyncio.create_task(answer.run(respond))
            ended = asyncio.create_task(answer.wait())
            await asyncio.wait({run, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not answer.is_over:
                answer.end("failed", ProviderError(f"the answer was not complete after {seconds:g} s", "timeout"))
            if answer.ending is not None:
                run.cancel()
            await asyncio.wait({run, ended})
        finally:
            await asyncio.wait({watch})  # else its last call could end after the ones that follow, or not at all
            try:
                await self._share(key, answer)  # first: a follower who sees the end has seen all events
                await STATE.run(self._store.finish, answer_id, owner, answer.body)
            except Exception:
                logger.exception("the end of a background answer could not be stored")
            hold.release()
            self._tasks.pop(key, None)
            if key not in self._answers:
                answer.hold.release()  # it was deleted meanwhile
            self._make_room()

    async def _watch(self, key: AnswerKey, answer: BackgroundAnswer) -> None:
        """Until the answer ends, share its events, and end it when a client cancelled it at another worker."""
        owner, answer_id = key
        while self._store.is_shared:
            with suppress(TimeoutError):
                await asyncio.wait_for(answer.wait(), SHARE_SECONDS)
            if answer.is_over:
                return
            await self._share(key, answer)
            try:
                stored = await STATE.run(self._store.find, answer_id, owner)
            except AntiphonError:
                logger.exception("whether a background answer was cancelled at another worker is not known; retrying")
            else:
                if stored is None or stored.is_cancelled:
                    answer.end("cancelled")

    async def _share(self, key: AnswerKey, answer: BackgroundAnswer) -> None:
        """Store the events that are not stored yet, for followers at other workers."""
        first, events = answer.shared, answer.events[answer.shared :]
        if not events or not self._store.is_shared:
            return
        owner, answer_id = key
        try:
            await STATE.run(self._store.add_events, answer_id, owner, first, events)
        except AntiphonError:
            logger.exception("events of a background answer could not be stored; only this worker can show them")
        else:
            answer.shared += len(events)

    def _make_room(self, most: int = MAX_FOLLOWABLE, owner: str | None = None) -> None:
        """Drop the events of ended answers, the first one first, until `most` are left: of all clients, or of one."""
        ended = [key for key in self._answers if key not in self._tasks and owner in (None, key[0])]
        for key in ended[: max(0, len(ended) - most)]:
            self.forget(key)


async def follow_stored(
    store: AnswerStore, key: AnswerKey, after: int, *, comment: bytes, silence: float, cut: bytes
) -> AsyncIterator[bytes]:
    """The events of an answer of another worker after the one with index `after`, those to come included.

    `comment` is sent after each `silence` seconds without events, `cut` at the end if the worker died.
    """
    owner, answer_id = key
    silent = 0.0
    while True:
        stored = await STATE.run(store.find, answer_id, owner)
        events = await STATE.run(store.events, answer_id, owner, after)
        if events:
            after += len(events)
            silent = 0.0
            yield b"".join(events)
        if stored is None or not stored.is_open:
            if stored is not None and stored.status == "overdue":
                yield cut
            return
        silent += SHARE_SECONDS
        if silent >= silence:
            silent = 0.0
            yield comment
        await asyncio.sleep(SHARE_SECONDS)


def encode_event(event: SseEvent) -> bytes:
    """An event as it is sent."""
    data = b"data: %b\n\n" % event.data.replace(b"\n", b"\ndata: ")
    return b"event: %b\n%b" % (event.event, data) if event.event else data
