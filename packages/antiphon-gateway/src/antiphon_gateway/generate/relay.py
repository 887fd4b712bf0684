"""`Relay`: upstream bytes in, client bytes out, by plain calls.

The connection to the upstream calls `on_body` with the bytes it read; they are encoded and written to the client's connection
in the same turn of the event loop. If both sides use the same format the bytes pass unchanged and are only scanned for usage and
the end; otherwise they are read into deltas and encoded again. While the upstream is silent the client gets comments, so that no
proxy closes the connection. A stream that breaks ends with an error in the client's format, never as if it was complete, unless a
`Rescue` finds another target that finishes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from math import inf
from typing import Any, Protocol

from antiphon.errors import TransportError
from antiphon.http.client.pushed_body import PushedBody
from antiphon.http.lazy_timer import LazyTimer
from antiphon.http.messages import ResponseStream
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta
from antiphon.wire.output import ProviderError
from antiphon_gateway.generate.early_start import KeepAlive
from antiphon_gateway.generate.encoders import StreamEncoder
from antiphon_gateway.observe.request_trace import RequestTrace

_MAX_TRAILING_BYTES = 64 * 1024
"""What an upstream may send after its last event: a `[DONE]`, some blanks. More is not passed on."""

Scrub = Callable[[ProviderError], ProviderError]


class Rescue(Protocol):
    """Lets another target finish a stream that broke. Every delta goes through `feed`."""

    def feed(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]: ...
    def may_continue(self, error: ProviderError) -> bool: ...
    async def next_reply(self, error: ProviderError) -> StreamReply:
        """The stream that continues. Raises `UpstreamFailed` if there is none."""


class Relay:
    """A `StreamSource` that passes on the rest of `reply`. `deadline` is that of the request, on the monotonic clock.

    `on_end` is called once, with the status of the request. `before_end`, if given, is awaited before the last event is written,
    because a client that reads it may ask for the stored answer at once.
    """

    def __init__(
        self,
        reply: StreamReply,
        encoder: StreamEncoder,
        trace: RequestTrace,
        *,
        scrub: Scrub,
        keep_alive: KeepAlive,
        deadline: float,
        on_end: Callable[[int], None],
        before_end: Callable[[], Coroutine[Any, Any, None]] | None = None,
        rescue: Rescue | None = None,
    ) -> None:
        self._rescue = rescue
        self._is_continuing = False  # it waits for the stream that continues
        self._reply: StreamReply | None = reply
        self._body: PushedBody | None = reply.push()
        self._reader = reply.reader
        self._encoder = encoder
        self._trace = trace
        self._scrub = scrub
        self._keep_alive = keep_alive
        self._deadline = deadline
        self._on_end: Callable[[int], None] | None = on_end
        self._before_end = before_end
        self._last_event: list[bytes] | None = None  # from the end of the answer on, if it must wait for `before_end`
        self._context = copy_context()  # callbacks run in that of the connection; log lines name the request
        self._client: ResponseStream | None = None
        self._timer: LazyTimer | None = None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._silent_since = 0.0  # in the loop's time
        self._waiting_since = time.monotonic()
        self._trailing_bytes = 0
        self._is_paused = False

    # What the connection to the client calls.

    def start(self, client: ResponseStream) -> None:
        """Pass on what was read so far, then each piece as it arrives."""
        reply = self._reply
        if reply is None:
            return
        self._client = client
        self._begin(reply)

    def _begin(self, reply: StreamReply) -> None:
        self._waiting_since = time.monotonic()
        try:
            deltas = reply.deltas
            if reply.unread and not self._reader.is_finished:
                deltas = [*deltas, *self._reader.feed(reply.unread)]
            self._pass_on(b"".join([*reply.held, reply.unread]), deltas)
        except Exception as error:
            self._crash(error)
        reply.held, reply.deltas, reply.unread = [], [], b""
        if self._reply is None:
            return
        self._silent_since = self._loop.time()
        if self._timer is None:
            self._timer = LazyTimer(self._loop, self._comment_due, self._on_silence)
            self._timer.start()
        if self._body is not None:
            self._body.deliver_to(self)

    def pause(self) -> None:
        """The client reads slowly."""
        self._is_paused = True
        if self._body is not None:
            self._body.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._is_paused = False
        self._silent_since = self._loop.time()
        if self._timer is not None:
            self._timer.start()
        if self._body is not None:
            self._body.resume()

    def cancel(self, error: Exception | None = None) -> None:
        """The client left, the request took too long, or `error` kept the response from being sent."""
        self._client = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._close()
        if self._on_end is not None:
            self._finish(self._trace.status_after(error or asyncio.CancelledError(), self._deadline))

    # What the connection to the upstream calls.

    def on_body(self, data: bytes) -> None:
        """More of the stream."""
        trace = self._trace
        trace.waiting_seconds += time.monotonic() - self._waiting_since
        self._silent_since = self._loop.time()
        try:
            reader = self._reader
            if not reader.is_finished:
                self._pass_on(data, reader.feed(data))
            else:
                self._trailing_bytes += len(data)
                if self._trailing_bytes > _MAX_TRAILING_BYTES:
                    self._end(None)
                else:
                    self._pass_on(data, [])
        except Exception as error:
            self._crash(error)
        self._waiting_since = time.monotonic()

    def on_complete(self) -> None:
        """The upstream ended the stream."""
        self._end_of_body(None)

    def on_failure(self, error: TransportError) -> None:
        """The connection to the upstream broke, or timed out."""
        self._end_of_body(error)

    def _pass_on(self, piece: bytes, deltas: list[ModelOutputDelta]) -> None:
        """Encode and write. An error that quotes our secret is replaced, and ends the stream."""
        failed = None
        if deltas:
            if self._rescue is None:
                failed = _scrub_terminal_error(deltas, self._scrub)
                if failed is not None:
                    piece, deltas = b"", deltas[:-1]
                    self._trace.error = failed.error
            else:
                deltas = self._rescue.feed(deltas)
                if deltas and isinstance(deltas[-1], Failed):
                    failed, deltas = Failed(self._scrub(deltas[-1].error)), deltas[:-1]
            self._trace.observe(deltas)
        data = self._encoder.feed(piece, deltas)
        if self._before_end is not None and self._last_event is None and self._is_last(deltas):
            self._last_event = []
        if self._last_event is not None:
            self._last_event.append(data)
        elif data and self._client is not None:
            self._client.write(data)
        if failed is not None:
            self._break(failed)

    def _is_last(self, deltas: list[ModelOutputDelta]) -> bool:
        return self._reader.is_finished or any(isinstance(delta, Finished) for delta in deltas)

    def _break(self, failed: Failed) -> None:
        """The stream broke: another target finishes it, or it ends with the error."""
        rescue, reply, body = self._rescue, self._reply, self._body
        if rescue is None or reply is None or not rescue.may_continue(failed.error):
            self._trace.error = failed.error
            self._end(failed)
            return
        self._is_continuing, self._body = True, None
        if reply.attempt is not None:
            reply.attempt.failed(failed.error)
        reply.release()
        if body is not None:
            body.abort()
        self._task = self._context.run(self._loop.create_task, self._continue(rescue, failed.error))

    async def _continue(self, rescue: Rescue, error: ProviderError) -> None:
        try:
            reply = await rescue.next_reply(error)
        except UpstreamFailed as failure:
            self._task, self._is_continuing = None, False
            self._trace.error = failure.error
            self._end(Failed(failure.error))
        except Exception as defect:
            self._task = None
            self._crash(defect)
        else:
            self._task, self._is_continuing = None, False
            self._reply, self._reader, self._body = reply, reply.reader, reply.push()
            self._begin(reply)
            if self._is_paused and self._body is not None:
                self._body.pause()

    def _end_of_body(self, error: TransportError | None) -> None:
        if self._reply is None or self._is_continuing:
            return
        self._trace.waiting_seconds += time.monotonic() - self._waiting_since
        try:
            failed = None
            if not self._reader.is_finished:
                deltas = self._reader.close(error)
                if isinstance(deltas[-1], Failed):
                    failed = Failed(self._scrub(deltas[-1].error))
                    deltas = deltas[:-1]
                self._pass_on(b"", deltas)
            if self._task is not None:
                return  # what was left showed that this is another answer
            if failed is not None:
                self._break(failed)
            else:
                self._end(None)
        except Exception as defect:
            self._crash(defect)

    # The end.

    def _end(self, failed: Failed | None) -> None:
        """Write the last bytes and end the stream."""
        if self._reply is None:
            return
        data = b"".join([*(self._last_event or ()), self._encoder.finish(failed)])
        self._close()
        if self._before_end is None:
            self._write(data)
            self._finish(200)
        else:
            self._task = self._context.run(self._loop.create_task, self._run_before_end(self._before_end, data))

    async def _run_before_end(self, before_end: Callable[[], Coroutine[Any, Any, None]], data: bytes) -> None:
        try:
            await before_end()
        except Exception as error:
            self._task = None
            self._write(data)
            self._crash(error)
        else:
            self._task = None
            self._write(data)
            self._finish(200)

    def _write(self, data: bytes) -> None:
        if data and self._client is not None:
            self._client.write(data)

    def _crash(self, error: Exception) -> None:
        """A defect of ours: it is not blamed on the upstream or the client."""
        self._close()
        self._finish(self._trace.status_after(error, self._deadline), is_complete=False)
        error.__traceback__ = None  # its frames hold the request

    def _close(self) -> None:
        """Release the upstream."""
        reply, body = self._reply, self._body
        self._reply = self._body = None  # the body refers to this object
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if reply is not None and body is not None:
            reply.release()
            body.abort()

    def _finish(self, status: int, *, is_complete: bool = True) -> None:
        client, self._client = self._client, None
        on_end, self._on_end, self._before_end = self._on_end, None, None
        if on_end is not None:
            self._context.run(on_end, status)
        if client is not None and is_complete:
            client.end_stream()
        elif client is not None:
            client.abort_stream()

    # Silence.

    def _comment_due(self) -> float:
        return inf if self._is_paused else self._silent_since + self._keep_alive.interval

    def _on_silence(self) -> None:
        if self._reader.is_finished and not self._is_continuing:
            self._end(None)  # the upstream does not close a stream that has ended
            return
        self._silent_since = self._loop.time()
        if self._client is not None:
            self._client.write(self._keep_alive.next())
        if self._timer is not None:
            self._timer.start()


def _scrub_terminal_error(deltas: list[ModelOutputDelta], scrub: Scrub) -> Failed | None:
    """The error that ends `deltas`, without our secret, if it quotes one. The upstream's own bytes must not pass then."""
    last = deltas[-1]
    if not isinstance(last, Failed):
        return None
    clean = scrub(last.error)
    return None if clean is last.error else Failed(clean)
