"""`Relay`: upstream bytes in, client bytes out, by plain calls.

The connection to the upstream calls `on_body` with the bytes it read; a `Channel` makes of them what the client gets, and that is
written to the client's connection in the same turn of the event loop. The relay owns everything else about the way: pausing with
the client, keep-alives in a silence, the time spent waiting, and the end. A stream that breaks has one meaning, whatever it
carries: another target finishes it where that is possible (`StreamFailover`), else it ends with an error in the client's format,
else (a file) the connection is cut. It never looks complete. A timeout is 504, a client that left 499.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from math import inf

from msgspec import Struct, field

from antiphon.errors import TransportError
from antiphon.http.messages import ResponseStream
from antiphon.http.timers import LazyTimer
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed, error_from_transport
from antiphon.wire.output import ProviderError
from antiphon_gateway.generate.answer_keeper import AnswerKeeper
from antiphon_gateway.generate.channels import Channel, StreamFailed, is_response_loss
from antiphon_gateway.generate.failover import StreamFailover
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.observe.record import Record

_MAX_TRAILING_BYTES = 64 * 1024
"""What an upstream may send after its last event: a `[DONE]`, some blanks. More is not passed on."""


class Relay(Struct, eq=False):
    """A `StreamSource` that passes on the rest of `reply` through `channel`."""

    reply: StreamReply
    channel: Channel
    record: Record
    deadline: float
    """That of the request."""
    on_end: Callable[[int], None] | None
    """Is called once, with the status of the request: `status` unless something else ended it."""
    frame: StreamFrame | None = None
    """Fills a silence; None: nothing may be sent between the bytes of the body."""
    status: int = 200
    recording: AnswerKeeper | None = None
    """Keeps the answer before its end is written, because a client that reads it may ask for the stored answer at once."""
    failover: StreamFailover | None = None
    """Lets another target finish a stream that broke."""

    _is_open: bool = True  # the upstream is not released
    _is_continuing: bool = False  # it is, and another one is waited for
    _is_paused: bool = False
    _held: list[bytes] | None = None  # from the end of the answer on, if that must wait for the `recording`
    _context: Context = field(
        default_factory=copy_context
    )  # callbacks run in that of the connection; log lines name the request
    _client: ResponseStream | None = None
    _timer: LazyTimer | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _task: asyncio.Task[None] | None = None
    _silent_since: float = 0.0  # the client; in the loop's time
    _heard_at: float = 0.0  # from the upstream; in the loop's time
    _waiting_since: float = field(default_factory=time.monotonic)
    _trailing_bytes: int = 0

    # What the connection to the client calls.

    def start(self, client: ResponseStream) -> None:
        """Pass on what was read so far, then each piece as it arrives."""
        if self._is_open:
            self._client = client
            self._begin(self.reply)

    def pause(self) -> None:
        """The client reads slowly."""
        self._is_paused = True
        self.reply.response.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._is_paused = False
        self._silent_since = self._heard_at = self._loop.time()
        if self._timer is not None:
            self._timer.start()
        self.reply.response.resume()

    def cancel(self, error: Exception | None = None) -> None:
        """The client left, the request took too long, or `error` kept the response from being sent."""
        self._client = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._release()
        if self.on_end is not None:
            self._finish(self.record.status_after(error or asyncio.CancelledError(), self.deadline))

    # What the connection to the upstream calls.

    def on_body(self, data: bytes) -> None:
        """More of the stream."""
        now = time.monotonic()
        self.record.waiting_seconds += now - self._waiting_since
        self._silent_since = self._heard_at = now
        channel = self.channel
        try:
            if channel.is_finished:
                self._trailing_bytes += len(data)
            passed = channel.feed(data)
            if self.recording is not None:
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
            self._hold_or_write(self.channel.begin(reply))
        except StreamFailed as failure:
            self._break(failure)
        except Exception as error:
            self._crash(error)
        reply.held, reply.deltas, reply.unread = [], [], b""
        self._silent_since = self._heard_at = self._loop.time()
        if self._is_open and not self._is_continuing:
            reply.response.deliver_to(self)
        if self._is_open and self._timer is None and self.frame is not None:  # it has not arrived as a whole
            self._timer = LazyTimer(self._loop, self._due, self._on_due)
            self._timer.start()

    def _hold_or_write(self, data: bytes) -> None:
        if self.recording is not None and (self._held is not None or self.recording.is_ending):
            self._held = [*(self._held or ()), data]
        elif data and self._client is not None:
            self._client.write(data)

    def _end_of_body(self, trouble: TransportError | None) -> None:
        if not self._is_open or self._is_continuing:
            return
        self.record.waiting_seconds += time.monotonic() - self._waiting_since
        try:
            self._hold_or_write(self.channel.end(trouble))
            self._end(None)
        except StreamFailed as failure:
            self._break(failure)
        except Exception as defect:
            self._crash(defect)

    # A stream that breaks.

    def _break(self, failure: StreamFailed) -> None:
        """Another target finishes the stream, or it ends with the error."""
        self._hold_or_write(failure.data)
        failover, error, reply = self.failover, failure.error, self.reply
        if failover is None or not self._is_open or not failover.may_continue(error):
            self._end(error)
            return
        self._is_continuing = True
        self.channel = self.channel.continued()
        if reply.attempt is not None:
            reply.attempt.failed(error)
        reply.release()
        reply.response.abort()
        self._task = self._context.run(self._loop.create_task, self._continue(failover, error))

    async def _continue(self, failover: StreamFailover, error: ProviderError) -> None:
        try:
            reply = await failover.next_reply(error)
        except UpstreamFailed as failure:
            self._task = None
            self._end(failure.error)
        except Exception as defect:
            self._task = None
            self._crash(defect)
        else:
            self._task, self._is_continuing, self.reply = None, False, reply
            self._begin(reply)
            if self._is_paused:
                reply.response.pause()

    # The end.

    def _end(self, error: ProviderError | None) -> None:
        """Write the last bytes and end the stream."""
        if not self._is_open:
            return
        channel, is_cut = self.channel, False
        last: bytes | None = channel.close() if error is None else channel.fail(error)
        if error is not None:
            self.record.error = error
            is_cut = last is None
        data = b"".join([*(self._held or ()), last or b""])
        self._release()
        if self.recording is None:
            self._write(data)
            self._finish(self.status, is_complete=not is_cut)
        else:
            self._task = self._context.run(self._loop.create_task, self._keep(self.recording, data))

    async def _keep(self, recording: AnswerKeeper, data: bytes) -> None:
        try:
            await recording.keep_stream(data)
        except Exception as error:
            self._task = None
            self._write(data)
            self._crash(error)
        else:
            self._task = None
            self._write(data)
            self._finish(self.status)

    def _write(self, data: bytes) -> None:
        if data and self._client is not None:
            self._client.write(data)

    def _crash(self, error: Exception) -> None:
        """A defect of ours: it is not blamed on the upstream or the client."""
        self._release()
        self._finish(self.record.status_after(error, self.deadline), is_complete=False)
        error.__traceback__ = None  # its frames hold the request

    def _release(self) -> None:
        """Let go of the upstream."""
        is_open, self._is_open = self._is_open, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_open and not self._is_continuing:
            self.reply.release()
            self.reply.response.abort()

    def _finish(self, status: int, *, is_complete: bool = True) -> None:
        client, self._client = self._client, None
        on_end, failover = self.on_end, self.failover
        self.on_end = self.recording = self.failover = None
        if failover is not None:
            failover.close()
        if on_end is not None:
            self.record.losses = [*self.record.losses, *filter(is_response_loss, self.channel.losses)]
            self._context.run(on_end, status)
        if client is not None and is_complete:
            client.end_stream()
        elif client is not None:
            client.abort_stream()

    # Silence.

    def _due(self) -> float:
        if self._is_paused or self.frame is None:
            return inf
        due = self._silent_since + self.frame.interval
        if self.failover is None or self._is_continuing:
            return due
        return min(due, self._heard_at + self.failover.stall_seconds)

    def _on_due(self) -> None:
        now, failover = self._loop.time(), self.failover
        if self.channel.is_finished and not self._is_continuing:
            self._end(None)  # the upstream does not close a stream that has ended
            return
        if failover is not None and not self._is_continuing and now >= self._heard_at + failover.stall_seconds:
            stalled = TransportError(f"no data for {failover.stall_seconds:g} s (stream stalled)", "stalled")
            if failover.may_continue(error_from_transport(stalled)):
                self._end_of_body(stalled)
            self._heard_at = now  # it is waited for on
        if self.frame is not None and now >= self._silent_since + self.frame.interval:
            self._silent_since = now
            if self._client is not None:
                self._client.write(self.frame.keep_alive())
        if self._timer is not None:
            self._timer.start()
