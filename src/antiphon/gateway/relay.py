"""The way back of a stream: pieces of the upstream's bytes in, pieces for the client out.

Where both speak the same format the bytes pass as they came; what they say is skimmed beside, for usage and for whether they came
to an end. Otherwise they are read into deltas and written in the client's format. While the upstream is silent the client gets
comments, so that nobody on the way takes the line for dead. A stream that breaks ends with an error in the client's format,
never as if it was finished.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Protocol

import msgspec
from msgspec import Struct, structs

from antiphon.errors import TransportError
from antiphon.gateway.passage import Passage
from antiphon.gateway.skimmer import WholeEvents
from antiphon.gateway.upstream import StreamReply
from antiphon.wire import Format
from antiphon.wire.delta import Assembler, Failed, ModelOutputDelta, Started, UsageReported
from antiphon.wire.loss import Loss
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.sse import SseReader
from antiphon.wire.tool_calls import CallRestorer

COMMENT = b": keep-alive\n\n"
_MOST_BEHIND_THE_END = 64 * 1024
"""What an upstream may say behind its last event: a `[DONE]`, some blanks. More is not passed on."""

Scrub = Callable[[ProviderError], ProviderError]


class Voice(Protocol):
    """What the client hears of what the upstream said. `comment` is what it hears while nothing is said."""

    comment: bytes

    @property
    def losses(self) -> list[Loss]:
        """What could not be said."""

    def hear(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        """The bytes for the client."""

    def end(self, failed: Failed | None) -> bytes:
        """The last bytes; with an error, if the stream broke off."""


class SameVoice:
    """The upstream's own bytes, in whole events: half of one is held, for a comment or an error may come before the rest."""

    comment = COMMENT
    losses: list[Loss] = []  # noqa: RUF012 - bytes that pass as they came lose nothing

    def __init__(self, wire: Format, asked: str) -> None:
        self._wire = wire
        self._asked = asked
        self._events = WholeEvents()

    def hear(self, piece: bytes, _: list[ModelOutputDelta]) -> bytes:
        return self._events.feed(piece)

    def end(self, failed: Failed | None) -> bytes:
        return self._events.close() if failed is None else self._wire.stream_writer(self._asked).write(failed)


class TranslatedVoice:
    """The same, told in the client's format and in the words of its request."""

    comment = COMMENT

    def __init__(
        self,
        wire: Format,
        asked: str,
        restorer: CallRestorer,
        id_of: Callable[[str], str],
        *,
        hides_usage: bool = False,
    ) -> None:
        self._writer = wire.stream_writer(asked)
        self._hides_usage = hides_usage  # a chat client that did not ask for it may fail on a chunk without choices
        self._asked = asked
        self._restorer = restorer
        self._id_of = id_of

    @property
    def losses(self) -> list[Loss]:
        return self._writer.losses

    def hear(self, _: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        write = self._writer.write
        if deltas and isinstance(deltas[0], Started):
            started = structs.replace(deltas[0], id=self._id_of(deltas[0].id), model=self._asked)
            deltas = [started, *deltas[1:]]
        if self._hides_usage:
            deltas = [delta for delta in deltas if not isinstance(delta, UsageReported)]
        return b"".join([write(said) for delta in deltas for said in self._restorer.delta(delta)])

    def end(self, failed: Failed | None) -> bytes:
        last = self._writer.write(failed) if failed is not None else b""
        return last + self._writer.close()


class KeepingVoice:
    """Another voice, and what it said: `output` is the whole answer, `body` the response as a Responses client got it."""

    def __init__(self, voice: Voice) -> None:
        self.body = b""
        self.comment = voice.comment
        self._voice = voice
        self._assembler = Assembler()

    @property
    def output(self) -> ModelOutput:
        return self._assembler.output

    @property
    def losses(self) -> list[Loss]:
        return self._voice.losses

    def hear(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        for delta in deltas:
            self._assembler.add(delta)
        return self._noted(self._voice.hear(piece, deltas))

    def end(self, failed: Failed | None) -> bytes:
        return self._noted(self._voice.end(failed))

    def _noted(self, said: bytes) -> bytes:
        if b"response.completed" in said or b"response.incomplete" in said:
            for event in SseReader().feed(said):
                if event.event in (b"response.completed", b"response.incomplete"):
                    self.body = bytes(msgspec.json.decode(event.data, type=_Completed).response)
        return said


class _Completed(Struct):
    response: msgspec.Raw


class ArrayVoice:
    """Another voice's events as one JSON array: Gemini's stream, where `alt=sse` was not asked for."""

    comment = b"\n"

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._events = SseReader()
        self._is_begun = False

    @property
    def losses(self) -> list[Loss]:
        return self._voice.losses

    def hear(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        return self._framed(self._voice.hear(piece, deltas))

    def end(self, failed: Failed | None) -> bytes:
        return self._framed(self._voice.end(failed)) + (b"\n]" if self._is_begun else b"[]")

    def _framed(self, data: bytes) -> bytes:
        framed = b""
        for event in self._events.feed(data) if data else ():
            framed += (b",\r\n" if self._is_begun else b"[") + event.data
            self._is_begun = True
        return framed


class _Silence:
    """Waits for pieces, but not for ever. One timer serves the whole stream: it looks again when it rings, and is not set anew
    for every piece."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._since = 0.0
        self._is_long = False

    async def broken_by(self, pieces: AsyncIterator[bytes]) -> bytes:
        """The next piece. Raises `TimeoutError` if it does not come in time; it can be waited for again."""
        # Kept here and not in a local variable: a traceback that the task keeps would refer back to the task.
        self._waiting, self._since, self._is_long = asyncio.current_task(self._loop), self._loop.time(), False
        assert self._waiting is not None
        before = self._waiting.cancelling()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)
        try:
            return await anext(pieces)
        except BaseException as error:
            # Only our own cancellation becomes a timeout; anybody else's stays one.
            if self._is_long and self._waiting.uncancel() <= before and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from None
            raise
        finally:
            self._waiting = None

    async def __aenter__(self) -> _Silence:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._waiting is None:
            return  # the client is slow, not the upstream; the next wait sets it anew
        left = self._since + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._is_long = True
            self._waiting.cancel()


async def relayed(
    reply: StreamReply, voice: Voice, passage: Passage, *, scrub: Scrub, keep_alive: float
) -> AsyncGenerator[bytes, None]:
    """The stream for the client. Closed early, it closes the upstream's connection at once."""
    async with aclosing(reply), _Silence(keep_alive) as silence:
        behind = 0
        body, reader = reply.pieces, reply.reader
        piece, deltas = b"".join([*reply.held, reply.unread]), reply.deltas
        if reply.unread and not reader.is_over:
            deltas = [*deltas, *reader.feed(reply.unread)]
        while True:
            failed = _quoting(deltas, scrub)
            if failed is not None:
                piece, deltas = b"", deltas[:-1]
                passage.error = failed.error
            passage.hear(deltas)
            if said := voice.hear(piece, deltas):
                yield said
            if failed is not None:
                break
            piece, deltas = b"", []
            waiting_since = time.monotonic()
            try:
                piece = await silence.broken_by(body)
            except TimeoutError:
                passage.waited += time.monotonic() - waiting_since
                if reader.is_over:
                    break
                yield voice.comment
                continue
            except (StopAsyncIteration, TransportError) as ending:
                passage.waited += time.monotonic() - waiting_since
                if not reader.is_over:
                    deltas = reader.close(ending if isinstance(ending, TransportError) else None)
                    if isinstance(deltas[-1], Failed):
                        failed = Failed(scrub(deltas[-1].error))
                        deltas[-1:] = []
                        passage.error = failed.error
                    passage.hear(deltas)
                    if said := voice.hear(b"", deltas):
                        yield said
                break
            passage.waited += time.monotonic() - waiting_since
            if not reader.is_over:
                deltas = reader.feed(piece)
                continue
            behind += len(piece)
            if behind > _MOST_BEHIND_THE_END:
                break
        if said := voice.end(failed):
            yield said


def _quoting(deltas: list[ModelOutputDelta], scrub: Scrub) -> Failed | None:
    """The error that ends `deltas`, if it quotes a secret of ours: without it. The upstream's own bytes may not pass then."""
    last = deltas[-1] if deltas else None
    if not isinstance(last, Failed):
        return None
    clean = scrub(last.error)
    return None if clean is last.error else Failed(clean)
