"""`relay`: upstream bytes in, client bytes out.

If both sides use the same format the bytes pass unchanged and are only scanned for usage and the end; otherwise they are read
into deltas and encoded again. While the upstream is silent the client gets comments, so that no proxy closes the connection. A
stream that breaks ends with an error in the client's format, never as if it was complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from antiphon.errors import TransportError
from antiphon.gateway.generate.encoders import StreamEncoder
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.providers.engine.reply import StreamReply
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.output import ProviderError

_MAX_TRAILING_BYTES = 64 * 1024
"""What an upstream may send after its last event: a `[DONE]`, some blanks. More is not passed on."""

Scrub = Callable[[ProviderError], ProviderError]


class _IdleTimeout:
    """Waits for pieces with a timeout. One timer serves the whole stream: it checks again when it fires, and is not reset
    for every piece."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._since = 0.0
        self._is_long = False

    async def next_piece(self, pieces: AsyncIterator[bytes]) -> bytes:
        """The next piece. Raises `TimeoutError` if it does not come in time; it can be waited for again."""
        # Kept here and not in a local variable: a traceback that the task keeps would refer back to the task.
        self._waiting, self._since, self._is_long = asyncio.current_task(self._loop), self._loop.time(), False
        assert self._waiting is not None
        before = self._waiting.cancelling()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._check)
        try:
            return await anext(pieces)
        except BaseException as error:
            # Only our own cancellation becomes a timeout; any other stays a cancellation.
            if self._is_long and self._waiting.uncancel() <= before and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from None
            raise
        finally:
            self._waiting = None

    async def __aenter__(self) -> _IdleTimeout:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if self._waiting is None:
            return  # the client is slow, not the upstream; the next wait sets it again
        left = self._since + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._is_long = True
            self._waiting.cancel()


async def relay(
    reply: StreamReply, encoder: StreamEncoder, trace: RequestTrace, *, scrub: Scrub, keep_alive: float
) -> AsyncGenerator[bytes, None]:
    """The stream for the client. Closed early, it closes the upstream's connection at once."""
    async with aclosing(reply), _IdleTimeout(keep_alive) as idle:
        trailing_bytes = 0
        body, reader = reply.pieces, reply.reader
        piece, deltas = b"".join([*reply.held, reply.unread]), reply.deltas
        if reply.unread and not reader.is_finished:
            deltas = [*deltas, *reader.feed(reply.unread)]
        while True:
            failed = _scrub_terminal_error(deltas, scrub)
            if failed is not None:
                piece, deltas = b"", deltas[:-1]
                trace.error = failed.error
            trace.observe(deltas)
            if data := encoder.feed(piece, deltas):
                yield data
            if failed is not None:
                break
            piece, deltas = b"", []
            waiting_since = time.monotonic()
            try:
                piece = await idle.next_piece(body)
            except TimeoutError:
                trace.waiting_seconds += time.monotonic() - waiting_since
                if reader.is_finished:
                    break
                yield encoder.comment
                continue
            except (StopAsyncIteration, TransportError) as ending:
                trace.waiting_seconds += time.monotonic() - waiting_since
                if not reader.is_finished:
                    deltas = reader.close(ending if isinstance(ending, TransportError) else None)
                    if isinstance(deltas[-1], Failed):
                        failed = Failed(scrub(deltas[-1].error))
                        deltas[-1:] = []
                        trace.error = failed.error
                    trace.observe(deltas)
                    if data := encoder.feed(b"", deltas):
                        yield data
                break
            trace.waiting_seconds += time.monotonic() - waiting_since
            if not reader.is_finished:
                deltas = reader.feed(piece)
                continue
            trailing_bytes += len(piece)
            if trailing_bytes > _MAX_TRAILING_BYTES:
                break
        if data := encoder.finish(failed):
            yield data


def _scrub_terminal_error(deltas: list[ModelOutputDelta], scrub: Scrub) -> Failed | None:
    """The error that ends `deltas`, without our secret, if it quotes one. The upstream's own bytes must not pass then."""
    last = deltas[-1] if deltas else None
    if not isinstance(last, Failed):
        return None
    clean = scrub(last.error)
    return None if clean is last.error else Failed(clean)
