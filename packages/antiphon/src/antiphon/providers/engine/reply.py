"""What a call brings: a `WholeReply`, or a `StreamReply` that has begun and continues.

A stream counts as an answer from its first visible delta on (`wire.delta.is_visible`). What was read up to there is kept in the
reply, as bytes and as deltas: the gateway passes the bytes on, the library reads the deltas.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from antiphon.errors import TransportError
from antiphon.http.client.request import HttpResponse
from antiphon.providers.engine.response_reader import ResponseReader
from antiphon.wire.call_restorer import CallRestorer
from antiphon.wire.delta import Failed, ModelOutputDelta, is_visible
from antiphon.wire.output import ProviderError

EMPTY_RESPONSE = ProviderError("provider returned an empty response", "stream_cut")
CUT_STREAM = ProviderError("the stream ended without a terminal event", "stream_cut")
_DRAIN_SECONDS = 0.1


class UpstreamFailed(Exception):
    """A call, or one attempt of it, brought no answer."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.message)
        self.error = error


class WholeReply(Struct):
    """A complete response. `content` is what `UpstreamRequest.read` made of the body."""

    body: bytes
    headers: Mapping[str, str]
    content: Any = None

    async def aclose(self) -> None:
        """Nothing is open."""


class OutputReader(Protocol):
    """Reads the rest of a stream. `is_finished` after the terminal delta."""

    @property
    def is_finished(self) -> bool: ...
    def feed(self, data: bytes) -> list[ModelOutputDelta]: ...
    def close(self, trouble: TransportError | None = None) -> list[ModelOutputDelta]: ...


class StreamOwner(Protocol):
    """The attempt that a stream belongs to."""

    def failed(self, error: ProviderError) -> ProviderError: ...
    def close(self) -> None: ...


class StreamReply(Struct):
    """A response that continues. `held` are the bytes read so far and `deltas` their content; `unread` arrived with them, and
    `pieces` has the rest: the body of the response, which may be delivered by callbacks instead."""

    held: list[bytes]
    deltas: list[ModelOutputDelta]
    headers: Mapping[str, str]
    reader: OutputReader
    response: HttpResponse
    attempt: StreamOwner | None = None
    unread: bytes = b""
    restorer: CallRestorer | None = None
    """Restores the tool names of the caller, in `batches`."""
    pieces: AsyncIterator[bytes] = None  # type: ignore[assignment]  # set below
    """The bytes after `held` and `unread`. Cancelling a read loses nothing."""

    def __post_init__(self) -> None:
        self.pieces = self.response

    @property
    def is_event_stream(self) -> bool:
        """Whether it is an event stream and not one body."""
        return not isinstance(self.reader, ResponseReader) or self.reader.is_event_stream

    @property
    def problem(self) -> ProviderError | None:
        """Why a stream that has ended is not an answer."""
        if not self.reader.is_finished or any(map(is_visible, self.deltas)):
            return None
        last = self.deltas[-1]
        return last.error if isinstance(last, Failed) else EMPTY_RESPONSE

    async def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """All deltas, in batches as their bytes arrived; the last of them is terminal. A failure is reported to the key."""
        reader, body = self.reader, self.pieces
        try:
            deltas, self.deltas = self.deltas, []
            if self.unread and not reader.is_finished:
                deltas = [*deltas, *reader.feed(self.unread)]
            while True:
                if deltas:
                    yield self._restored(deltas)
                if reader.is_finished:
                    break
                try:
                    deltas = reader.feed(await anext(body))
                except StopAsyncIteration:
                    deltas = reader.close()
                except TransportError as error:
                    deltas = reader.close(error)
            await _drain(body)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Release it; closes the connection if the response had not ended."""
        if self.attempt is not None:
            self.attempt.close()
        self.response.abort()

    def release(self) -> None:
        """The attempt is over; the body is aborted by its receiver."""
        if self.attempt is not None:
            self.attempt.close()

    def _restored(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        last = deltas[-1]
        if isinstance(last, Failed) and self.attempt is not None:
            deltas[-1] = Failed(self.attempt.failed(last.error))
        if self.restorer is None:
            return deltas
        return [restored for delta in deltas for restored in self.restorer.delta(delta)]


class DeltaReply(Protocol):
    """A reply that the library reads."""

    def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]: ...
    async def aclose(self) -> None: ...


Reply: TypeAlias = WholeReply | StreamReply | DeltaReply
Outcome: TypeAlias = tuple[Reply | None, ProviderError | None]
"""Of an attempt: a reply, and why it is not an answer. There is no reply without an error."""


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read the rest if it arrives at once, so that the connection can be reused; otherwise it is closed."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in body:
                pass
    except (TimeoutError, TransportError):
        pass
