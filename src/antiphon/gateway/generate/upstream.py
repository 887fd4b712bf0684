"""`Upstream`: a `Provider` as the gateway calls it: a body goes in, and a response that was checked comes out.

Several attempts may be needed: another key, or a retry (`providers.retry`). A streamed response is held until its first visible
event. What fails before that (an error in a 200, an empty or cut stream) is an ordinary failure, followed by a retry or another
provider. A stream that is silent for longer than the hold is passed on to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from antiphon.errors import TransportError
from antiphon.providers.call import Attempt
from antiphon.providers.credentials.pool import Lease
from antiphon.providers.engine.attempt import UpstreamAttempt
from antiphon.providers.engine.attempt import UpstreamFailed as UpstreamFailed
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.response_reader import ResponseReader, error_from_transport, read_whole
from antiphon.providers.transport.request import HttpResponse
from antiphon.wire import Format
from antiphon.wire.delta import Failed, ModelOutputDelta, is_visible
from antiphon.wire.openai_chat.dialects import DIALECTS
from antiphon.wire.output import ProviderError

_EMPTY_RESPONSE = ProviderError("provider returned an empty response", "stream_cut")
_FIRST_EVENTS_BYTES = 1024
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024


class WholeReply(Struct, frozen=True):
    """A complete response."""

    body: bytes
    headers: Mapping[str, str]


class OutputReader(Protocol):
    """Reads the rest of a stream. `is_finished` after the terminal delta."""

    @property
    def is_finished(self) -> bool: ...
    def feed(self, data: bytes) -> list[ModelOutputDelta]: ...
    def close(self, trouble: TransportError | None = None) -> list[ModelOutputDelta]: ...


class StreamReply(Struct):
    """A response that continues. `held` are the bytes read so far and `deltas` their content; `unread` arrived with them, and
    `pieces` has the rest."""

    held: list[bytes]
    deltas: list[ModelOutputDelta]
    headers: Mapping[str, str]
    reader: OutputReader
    response: HttpResponse
    lease: Lease | None
    unread: bytes = b""

    @property
    def is_event_stream(self) -> bool:
        """Whether it is an event stream and not one body."""
        return not isinstance(self.reader, ResponseReader) or self.reader.is_event_stream

    @property
    def pieces(self) -> AsyncIterator[bytes]:
        """The bytes after `held` and `unread`. Cancelling a read loses nothing."""
        return self.response.body

    async def aclose(self) -> None:
        """Release it; closes the connection if the response had not ended."""
        if self.lease is not None:
            self.lease.release()
        await self.response.aclose()


class Upstream(Provider):
    """One provider, called with request bytes."""

    @property
    def reports_stream_usage(self) -> bool:
        """Whether the usage of a stream can be requested (`include_usage` of Chat Completions)."""
        dialect = DIALECTS.get(self.preset.dialect or "compatible")
        return self.format == "openai-chat" and dialect is not None and dialect.has_stream_options

    @property
    def accepts_unchanged_bodies(self) -> bool:
        """Whether a body of its format can be sent unchanged: the host has no dialect of its own."""
        return self.format != "openai-chat" or self.preset.dialect in (
            None,
            "",
            "openai",
            "azure",
            "compatible",
            "codebuddy",
        )

    async def ask(
        self,
        model: str,
        body: Sequence[bytes],
        *,
        streams: bool,
        headers: Mapping[str, str],
        attempts: list[Attempt],
        address: str | None = None,
    ) -> WholeReply | StreamReply:
        """Send a body and wait for a checked response. Raises `UpstreamFailed`. Each attempt is added to `attempts`."""
        plan = self.retry_plan(model)
        url = address or self.url_for(model, streams)
        while True:
            should_retry = None
            if plan.begin_attempt():
                attempt = UpstreamAttempt(self, plan, self.request(plan, url, body, headers))
                reply = await self._reply(attempt, plan.lease, streams=streams)
                should_retry = attempt.should_retry
                attempts.append(attempt.record(model))
                if reply is not None:
                    return reply
            delay = plan.delay_after_failure(should_retry)
            if delay is None:
                raise UpstreamFailed(plan.final_error())
            if delay:
                await asyncio.sleep(delay)

    async def _reply(
        self, attempt: UpstreamAttempt, lease: Lease | None, *, streams: bool
    ) -> WholeReply | StreamReply | None:
        """The response to one attempt; None if it failed, then the plan has the error."""
        try:
            response = await attempt.open()
            reply: WholeReply | StreamReply | None = None
            try:
                reply = await (self._stream(response, lease) if streams else _whole(self.wire, response))
            except TransportError as error:
                raise UpstreamFailed(error_from_transport(error, "stream_cut")) from None
            except UpstreamFailed as failure:
                raise UpstreamFailed(attempt.with_retry_after(failure.error)) from None
            finally:
                if not isinstance(reply, StreamReply):
                    await response.aclose()
        except UpstreamFailed as failure:
            attempt.failed(failure.error)
            return None
        except BaseException:
            attempt.release()
            raise
        attempt.succeeded()
        return reply

    async def _stream(self, response: HttpResponse, lease: Lease | None) -> StreamReply:
        reader = ResponseReader(self.wire)
        held: list[bytes] = []
        deltas: list[ModelOutputDelta] = []
        has_visible, unread = False, b""
        body = response.body
        with contextlib.suppress(TimeoutError):  # the model is thinking: pass the stream on
            async with asyncio.timeout(self.hold):
                while not reader.is_finished and not has_visible:
                    try:
                        piece, unread = _first_events(unread or await anext(body))
                        held.append(piece)
                        fresh = reader.feed(piece)
                    except StopAsyncIteration:
                        fresh = reader.close()
                    deltas += fresh
                    has_visible = any(map(is_visible, fresh))
        if reader.is_finished and not has_visible:
            last = deltas[-1]
            raise UpstreamFailed(last.error if isinstance(last, Failed) else _EMPTY_RESPONSE)
        return StreamReply(held, deltas, response.headers, reader, response, lease, unread)


async def _whole(wire: Format, response: HttpResponse) -> WholeReply:
    data = await _read(response)
    if data.strip() == b"{}":
        raise UpstreamFailed(_EMPTY_RESPONSE)
    if data.lstrip()[:1] != b"{" or b'"error"' in data[:2048]:  # does not look like an answer: parse it
        last = read_whole(wire, data)[-1]
        if isinstance(last, Failed):
            raise UpstreamFailed(last.error)
    return WholeReply(data, response.headers)


def _first_events(piece: bytes) -> tuple[bytes, bytes]:
    """The first events of a piece, and the rest: the first ones are enough to find a visible delta."""
    end = piece.find(b"\n\n", _FIRST_EVENTS_BYTES) + 2
    return (piece, b"") if end < _FIRST_EVENTS_BYTES else (piece[:end], piece[end:])


async def _read(response: HttpResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.body:
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_RESPONSE_BYTES:
            raise TransportError("the response is too long", "connection_lost")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
