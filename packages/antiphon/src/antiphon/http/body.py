"""`PausedBody`: a body on its way, in bounded memory: the only queue of bytes with a waiter, for both ends of HTTP.

A connection feeds it. One reader takes it: by `async for`, as a whole, or a receiver of callbacks (`deliver_to`), which
gets each piece in the turn of the event loop that read it, without waking a task. With too many bytes unread the connection stops
reading. `read_bounded` is the only loop that reads a whole body.

`Governor` limits the bytes that wait in a process, in all and for each client: request bodies, messages of WebSockets, the
answers that a WebSocket can continue, answers in the background, fetched media. Received bytes count, not declared ones: a
client that announces much and sends little takes nothing from the others. A `Hold` is given back when nothing needs its bytes
any more, or when the client has left. One of several clients gets at most half, so that the others are always served. Requests
that have shown no key, where keys are needed, share a small part.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from msgspec import Struct

from antiphon.errors import TransportError

PAUSE_BYTES = 256 * 1024
"""With more unread bytes than this, reading from the socket is paused."""
_WHOLE_BYTES = 256 * 1024 * 1024
"""A body that is awaited as a whole is handed over when it is longer than this: its reader refuses it."""
_ERROR_BYTES = 1024 * 1024
_LONG_PIECE = 16 * 1024

logger = logging.getLogger("antiphon.http")


class BodyReceiver(Protocol):
    """Gets a body as it arrives, and either `on_complete` or `on_failure`."""

    def on_body(self, data: bytes) -> None: ...
    def on_complete(self) -> None:
        """The last byte was delivered."""

    def on_failure(self, error: TransportError) -> None:
        """The body ended too early."""


class Flow(Protocol):
    """Where a body comes from."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None:
        """The rest is not wanted."""


class BodyTooLong(TransportError):
    """A body that is longer than its reader takes."""


class PausedBody:
    """A body as far as it has arrived."""

    length: int | None = None
    """The declared length; None if it is not known."""
    flow: Flow | None = None
    """Where it comes from."""
    receiver: BodyReceiver | None = None
    """What it is delivered to."""
    is_whole = False
    """Whether its reader is woken only when it is complete."""
    is_over = False
    """Whether nothing more will arrive."""
    waiter: asyncio.Future[None] | None = None
    """Done when more has arrived, or nothing more will. Cancelling it loses nothing."""
    _unread: Sequence[bytes | bytearray] = ()
    _size = 0
    _failure: TransportError | None = None
    _is_paused = False

    # What the connection calls: it is a `BodyReceiver`.

    def on_body(self, data: bytes) -> None:
        """More of the body has arrived."""
        if self.receiver is not None:
            self.receiver.on_body(data)
            return
        if self.is_over:
            return
        self._unread = add_piece(self._unread, data) if self._unread else (data,)
        self._size += len(data)
        if self.is_whole:
            if self._size <= _WHOLE_BYTES:
                return
            self.is_whole = False
        if self._size > PAUSE_BYTES and not self._is_paused and self.flow is not None:
            self._is_paused = True
            self.flow.pause()
        if self.waiter is not None:
            self.wake()

    def on_complete(self) -> None:
        """The last byte has arrived."""
        self.is_over = True
        waiter = self.waiter
        if self.receiver is not None:
            self.receiver.on_complete()
        elif waiter is not None and not waiter.done():  # as in `wake`
            self.waiter = None
            waiter.set_result(None)

    def on_failure(self, error: TransportError) -> None:
        """The rest will never arrive."""
        if self.is_over:
            return
        self.is_over, self._failure = True, error
        if self.receiver is not None:
            self.receiver.on_failure(error)
        else:
            self.wake()

    # What its reader calls.

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._unread:
            if self._failure is not None:
                raise copy_failure(self._failure)
            if self.is_over:
                raise StopAsyncIteration
            await self.wait()
        return self._take()

    def deliver_to(self, receiver: BodyReceiver) -> None:
        """Deliver it to a receiver, from the first unread byte on. It must not be read as well."""
        self.receiver = receiver
        if self._unread:
            receiver.on_body(self._take())
        if self._failure is not None:
            receiver.on_failure(self._failure)
        elif self.is_over:
            receiver.on_complete()

    def pause(self) -> None:
        """Stop reading from the socket."""
        if not self.is_over and self.flow is not None:
            self.flow.pause()

    def resume(self) -> None:
        """Read from the socket again."""
        if not self.is_over and self.flow is not None:
            self.flow.resume()

    def abort(self) -> None:
        """It is not read any more: what has not arrived is not wanted, and nothing more is delivered."""
        self._unread, self._size, self.receiver = (), 0, None
        if not self.is_over:
            self.is_over = True
            if self.flow is not None:
                self.flow.abort()
        self.wake()

    def _take(self) -> bytes:
        data, self._unread, self._size = b"".join(self._unread), (), 0
        if self._is_paused:
            self._is_paused = False
            self.resume()
        return data

    def wait(self) -> asyncio.Future[None]:
        """A new `waiter`."""
        waiter = self.waiter = asyncio.get_running_loop().create_future()
        return waiter

    def wake(self) -> None:
        """Let the reader look."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


async def read_bounded(body: PausedBody, max_bytes: int) -> bytes:
    """The whole body; it is aborted if it is too long. Raises `BodyTooLong`, or `TransportError` if it ends too early."""
    pieces: Sequence[bytes | bytearray] = ()
    size = 0
    try:
        if body.is_over and body._failure is None:  # all of it is here
            pieces, size = body._unread, body._size
            body._unread, body._size = (), 0
        else:
            async for piece in body:
                pieces, size = add_piece(pieces, piece), size + len(piece)
                if size > max_bytes:
                    break
        if size > max_bytes:
            raise BodyTooLong("the response is too long", "connection_lost")
        return b"".join(pieces)
    finally:
        if not body.is_over:
            body.abort()


async def read_error(body: PausedBody) -> bytes:
    """The body of a response with an error status; empty if it cannot be read: the status is enough."""
    try:
        return await read_bounded(body, _ERROR_BYTES)
    except TransportError:
        return b""


def add_piece(pieces: Sequence[bytes | bytearray], data: bytes) -> list[bytes | bytearray]:
    """The pieces with one more. A short one is added to a short one before it: each object costs more than it contains."""
    kept = pieces if isinstance(pieces, list) else list(pieces)
    if len(data) >= _LONG_PIECE or not kept or len(kept[-1]) >= _LONG_PIECE:
        kept.append(data)
    elif isinstance(kept[-1], bytearray):
        kept[-1] += data
    else:
        kept[-1] = bytearray(kept[-1]) + data
    return kept


class IteratedFlow:
    """The `Flow` of a body that comes from an iterator, such as a model in this process: a task reads it."""

    def __init__(self, body: PausedBody, pieces: AsyncGenerator[bytes, None]) -> None:
        self._may_run = asyncio.Event()
        self.pause, self.resume = self._may_run.clear, self._may_run.set
        self.resume()
        self._task = asyncio.get_running_loop().create_task(self._run(body, pieces))

    def abort(self) -> None:
        """The rest is not wanted."""
        if self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self, body: PausedBody, pieces: AsyncGenerator[bytes, None]) -> None:
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    body.on_body(piece)
                    if body.is_over:
                        return  # aborted by its receiver
                    await self._may_run.wait()
        except TransportError as error:
            body.on_failure(copy_failure(error))
        except Exception:
            logger.exception("internal error while receiving a response")
            body.on_failure(TransportError("internal error while receiving the response", "internal_error"))
        else:
            body.on_complete()


def copy_failure(error: TransportError) -> TransportError:
    """The error without a traceback, which would keep the frames of the request alive."""
    return TransportError(str(error), error.code)


MEBIBYTE: Final = 1024 * 1024
_WORKING_SHARE = 1.5
"""The limits while requests are worked on: these count several times, as they came, parsed and written again."""


class Governor:
    """Bytes in use out of `limit`, which may change. `is_shared` is whether there are several clients.

    `setting` is the name of the limit where people change it.
    """

    def __init__(
        self,
        limit: int = sys.maxsize,
        *,
        is_shared: Callable[[], bool] = lambda: False,
        setting: str = "max_buffered_bytes",
    ) -> None:
        self.limit = limit
        self._setting = setting
        self._is_shared = is_shared
        self.used = 0
        self.used_by: dict[str | None, int] = {}

    def hold(self, owner: str | None = "") -> Hold:
        """Nothing yet, for the client of that name; None: for one that has shown no key."""
        return Hold(self, owner)

    def most(self, owner: str | None) -> int:
        """The most bytes that a client may hold."""
        if owner is None:
            return min(MEBIBYTE, self.limit // 8)
        return self.limit // 2 if self._is_shared() else self.limit

    def excess(self, owner: str | None, size: int, share: float = 1.0, *, is_alone: bool = False) -> str:
        """Why a client may not hold `size` more bytes; empty if it may.

        `share` of the limits counts; for the only request of a client (`is_alone`) that of all clients alone.
        """
        if self.used + size > self.limit * share:
            return f"too many bytes wait on this server ({self._setting} = {self.limit:,}); retry later"
        most = self.most(owner)
        if not is_alone and self.used_by.get(owner, 0) + size > most * share:
            whose = "requests without a key" if owner is None else "this client's requests"
            return f"too many bytes of {whose} wait (at most {most:,}, by {self._setting}); retry later"
        return ""


class Hold(Struct, eq=False):
    """What one thing that waits has in use, for the client `owner`."""

    _governor: Governor
    owner: str | None
    size: int = 0

    def grow(self, size: int, *, is_copy: bool = False) -> str:
        """Count `size` more bytes. Returns why that is refused, and counts nothing; empty if they are counted.

        `is_copy`: of what is held already, which working on it takes. Copies may be half as much as everything that waits. A
        request that is alone is always worked on: it was accepted.
        """
        governor, owner = self._governor, self.owner
        # While less than half is in use by all, no client with a key has too much.
        if (governor.used + size) * 2 > governor.limit or owner is None:
            if not is_copy:
                refusal = governor.excess(owner, size)
            elif self.size == governor.used:
                refusal = ""
            else:
                is_alone = self.size == governor.used_by.get(owner)
                refusal = governor.excess(owner, size, _WORKING_SHARE, is_alone=is_alone)
            if refusal:
                return refusal
        self.size += size
        governor.used += size
        governor.used_by[owner] = governor.used_by.get(owner, 0) + size
        return ""

    def another(self) -> Hold:
        """A hold of the same client, with nothing in it."""
        return Hold(self._governor, self.owner)

    def move(self) -> Hold:
        """A new hold with everything that is in this one, for what outlives it."""
        moved = self.another()
        moved.size, self.size = self.size, 0
        return moved

    def take_over(self, other: Hold) -> None:
        """Move everything of another hold of the same client into this one."""
        self.size, other.size = self.size + other.size, 0

    def release(self) -> None:
        """Give everything back."""
        size, self.size = self.size, 0
        if size:
            governor, owner = self._governor, self.owner
            governor.used -= size
            left = governor.used_by[owner] - size
            if left:
                governor.used_by[owner] = left
            else:
                del governor.used_by[owner]
