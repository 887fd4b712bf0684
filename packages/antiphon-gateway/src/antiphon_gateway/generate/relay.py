"""`Relay`: upstream bytes in, client bytes out, by plain calls.

The connection to the upstream calls `on_body` with the bytes it read; a `Channel` makes of them what the client gets, and that is
written to the client's connection in the same turn of the event loop. The relay owns everything else about the way: pausing with
the client, keep-alives in a silence, the time spent waiting, and the end. A stream that breaks has one meaning, whatever it
carries: another target finishes it where that is possible (`Failover`), else it ends with an error in the client's format, else
(a file) the connection is cut. It never looks complete. A timeout is 504, a client that left 499.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from math import inf
from typing import Any, Protocol

from antiphon.errors import TransportError
from antiphon.http.body import PausedBody
from antiphon.http.messages import ClientRequest, Response, ResponseStream
from antiphon.http.timers import LazyTimer
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed
from antiphon.wire.output import ProviderError
from antiphon_gateway.generate.channels import Channel, StreamFailed
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.observe.record import Record

_MAX_TRAILING_BYTES = 64 * 1024
"""What an upstream may send after its last event: a `[DONE]`, some blanks. More is not passed on."""


class Failover(Protocol):
    """Lets another target finish a stream that broke."""

    @property
    def stall_seconds(self) -> float:
        """A silence that counts as a break."""

    def may_continue(self, error: ProviderError) -> bool:
        """Whether another target may finish the answer."""

    async def next_reply(self, error: ProviderError) -> StreamReply:
        """The stream that continues. Raises `UpstreamFailed` if there is none."""


class Relay:
    """A `StreamSource` that passes on the rest of `reply` through `channel`. `deadline` is that of the request.

    `on_end` is called once, with the status of the request: `status` unless something else ended it. `before_end`, if given, is
    awaited before the last event is written, because a client that reads it may ask for the stored answer at once.
    """

    def __init__(
        self,
        reply: StreamReply,
        channel: Channel,
        record: Record,
        *,
        deadline: float,
        on_end: Callable[[int], None],
        frame: StreamFrame | None = None,
        status: int = 200,
        before_end: Callable[[], Coroutine[Any, Any, None]] | None = None,
        failover: Failover | None = None,
    ) -> None:
        self.reply = reply
        self._is_open = True  # the upstream is not released
        self._body: PausedBody | None = reply.response
        self._channel = channel
        self._record = record
        self._deadline = deadline
        self._on_end: Callable[[int], None] | None = on_end
        self._frame = frame if channel.fills_silence else None
        self._status = status
        self._before_end = before_end
        self._failover = failover
        self._is_continuing = False  # it waits for the stream that continues
        self._held: list[bytes] | None = None  # from the end of the answer on, if that must wait for `before_end`
        self._context = copy_context()  # callbacks run in that of the connection; log lines name the request
        self._client: ResponseStream | None = None
        self._timer: LazyTimer | None = None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._silent_since = self._heard_at = 0.0  # of the client, and of the upstream; in the loop's time
        self._waiting_since = time.monotonic()
        self._trailing_bytes = 0
        self._is_paused = False

    # What the connection to the client calls.

    def start(self, client: ResponseStream) -> None:
        """Pass on what was read so far, then each piece as it arrives."""
        if self._is_open:
            self._client = client
            self._begin(self.reply)

    def pause(self) -> None:
        """The client reads slowly."""
        self._is_paused = True
        if self._body is not None:
            self._body.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._is_paused = False
        self._silent_since = self._heard_at = self._loop.time()
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
        self._release()
        if self._on_end is not None:
            self._finish(self._record.status_after(error or asyncio.CancelledError(), self._deadline))

    # What the connection to the upstream calls.

    def on_body(self, data: bytes) -> None:
        """More of the stream."""
        now = time.monotonic()
        self._record.waiting_seconds += now - self._waiting_since
        self._silent_since = self._heard_at = now
        channel = self._channel
        try:
            if channel.is_finished:
                self._trailing_bytes += len(data)
            passed = channel.feed(data)
            if self._before_end is not None:
                self._hold_or_write(passed)
            elif passed and self._client is not None:
                self._client.write(passed)
            if self._trailing_bytes > _MAX_TRAILING_BYTES:
                self._end(None)
        except StreamFailed as failure:
            self._break(failure)
        except Exception as error:
            self._crash(error)
        self._waiting_since = time.monotonic()

    def on_complete(self) -> None:
        """The upstream ended the stream."""
        self._end_of_body(None)

    def on_failure(self, error: TransportError) -> None:
        """The connection to the upstream broke, or timed out."""
        self._end_of_body(error)

    def _begin(self, reply: StreamReply) -> None:
        self._waiting_since = time.monotonic()
        try:
            self._hold_or_write(self._channel.begin(reply))
        except StreamFailed as failure:
            self._break(failure)
        except Exception as error:
            self._crash(error)
        reply.held, reply.deltas, reply.unread = [], [], b""
        if self._body is None:  # it has ended, or waits for another target
            return
        self._silent_since = self._heard_at = self._loop.time()
        self._body.deliver_to(self)
        if self._is_open and self._timer is None and self._frame is not None:  # it has not arrived as a whole
            self._timer = LazyTimer(self._loop, self._due, self._on_due)
            self._timer.start()

    def _hold_or_write(self, data: bytes) -> None:
        if self._before_end is not None and (self._held is not None or self._channel.is_ending):
            self._held = [*(self._held or ()), data]
        elif data and self._client is not None:
            self._client.write(data)

    def _end_of_body(self, trouble: TransportError | None) -> None:
        if not self._is_open or self._is_continuing:
            return
        self._record.waiting_seconds += time.monotonic() - self._waiting_since
        try:
            self._hold_or_write(self._channel.end(trouble))
            self._end(None)
        except StreamFailed as failure:
            self._break(failure)
        except Exception as defect:
            self._crash(defect)

    # A stream that breaks.

    def _break(self, failure: StreamFailed) -> None:
        """Another target finishes the stream, or it ends with the error."""
        self._hold_or_write(failure.data)
        failover, error, reply, body = self._failover, failure.error, self.reply, self._body
        if failover is None or not self._is_open or not failover.may_continue(error):
            self._end(error)
            return
        self._is_continuing, self._body = True, None
        self._channel = self._channel.continued()
        if reply.attempt is not None:
            reply.attempt.failed(error)
        reply.release()
        if body is not None:
            body.abort()
        self._task = self._context.run(self._loop.create_task, self._continue(failover, error))

    async def _continue(self, failover: Failover, error: ProviderError) -> None:
        try:
            reply = await failover.next_reply(error)
        except UpstreamFailed as failure:
            self._task, self._is_continuing = None, False
            self._end(failure.error)
        except Exception as defect:
            self._task = None
            self._crash(defect)
        else:
            self._task, self._is_continuing = None, False
            self.reply, self._body = reply, reply.response
            self._begin(reply)
            if self._is_paused and self._body is not None:
                self._body.pause()

    # The end.

    def _end(self, error: ProviderError | None) -> None:
        """Write the last bytes and end the stream."""
        if not self._is_open:
            return
        channel, is_cut = self._channel, False
        last: bytes | None = channel.close() if error is None else channel.fail(error)
        if error is not None:
            self._record.error = error
            is_cut = last is None
        data = b"".join([*(self._held or ()), last or b""])
        self._release()
        if self._before_end is None:
            self._write(data)
            self._finish(self._status, is_complete=not is_cut)
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
            self._finish(self._status)

    def _write(self, data: bytes) -> None:
        if data and self._client is not None:
            self._client.write(data)

    def _crash(self, error: Exception) -> None:
        """A defect of ours: it is not blamed on the upstream or the client."""
        self._release()
        self._finish(self._record.status_after(error, self._deadline), is_complete=False)
        error.__traceback__ = None  # its frames hold the request

    def _release(self) -> None:
        """Let go of the upstream."""
        is_open, self._is_open = self._is_open, False
        body, self._body = self._body, None  # it refers to this object
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_open and body is not None:
            self.reply.release()
            body.abort()

    def _finish(self, status: int, *, is_complete: bool = True) -> None:
        client, self._client = self._client, None
        on_end, self._on_end, self._before_end, self._failover = self._on_end, None, None, None
        if on_end is not None:
            self._context.run(on_end, status)
        if client is not None and is_complete:
            client.end_stream()
        elif client is not None:
            client.abort_stream()

    # Silence.

    def _due(self) -> float:
        if self._is_paused or self._frame is None:
            return inf
        due = self._silent_since + self._frame.interval
        if self._failover is None or self._is_continuing:
            return due
        return min(due, self._heard_at + self._failover.stall_seconds)

    def _on_due(self) -> None:
        now, failover = self._loop.time(), self._failover
        if self._channel.is_finished and not self._is_continuing:
            self._end(None)  # the upstream does not close a stream that has ended
            return
        if failover is not None and not self._is_continuing and now >= self._heard_at + failover.stall_seconds:
            stalled = ProviderError(
                f"no data for {failover.stall_seconds:g} s (stream stalled)", "timeout", code="stalled"
            )
            if failover.may_continue(stalled):
                self._record.waiting_seconds += time.monotonic() - self._waiting_since
                self._fail_stalled(stalled)
            self._heard_at = now  # it is waited for on
        if self._frame is not None and now >= self._silent_since + self._frame.interval:
            self._silent_since = now
            if self._client is not None:
                self._client.write(self._frame.keep_alive())
        if self._timer is not None:
            self._timer.start()

    def _fail_stalled(self, error: ProviderError) -> None:
        try:
            self._hold_or_write(self._channel.end(TransportError(error.message, "stalled")))
        except StreamFailed as failure:
            self._break(StreamFailed(error, failure.data))
        except Exception as defect:
            self._crash(defect)


class EarlyStart:
    """Begins the response to a streaming request while its providers are silent.

    A provider may withhold even its headers, and a retry or a fallback adds to that. Clients and proxies give up on a connection
    without a byte, so after `hold` seconds the client gets the head of a stream (`opening`) and keep-alives. Nothing is shown by
    that: the call continues with its attempts as before. Only the status is decided, so a later error is an event of the stream.
    """

    def __init__(
        self, request: ClientRequest, opening: Callable[[], Response], frame: StreamFrame, *, hold: float
    ) -> None:
        self._request = request
        self._opening = opening
        self._frame = frame
        self._stream: ResponseStream | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(hold, self._tick)

    def stop(self) -> bool:
        """Send nothing more. Whether the response has begun."""
        self._timer.cancel()
        return self._stream is not None

    def _tick(self) -> None:
        if self._stream is None:
            begin = self._request.begin_early
            response = self._opening()
            self._stream = begin(response) if begin is not None else None
        if self._stream is not None:
            self._stream.write(self._frame.keep_alive())
            self._timer = self._loop.call_later(self._frame.interval, self._tick)
