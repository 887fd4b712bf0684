"""`PlainLine`: a client's connection, read and answered here as long as what comes is plain.

Nearly every request is a `POST` of JSON with a length, whose head comes in one piece and says each thing once (`plain_head`).
Its answer is written with as few writes as there are moments to write in. Everything else, a chunked or compressed body, a
header that stands twice, an escape in the path, half a head, what is no HTTP at all, is not judged here: the connection is handed
to the general server with every byte that was not answered yet, and stays there. So this is only ever quicker; what is malformed
is refused where it always was.

Invariants.
- A message ends where its one `content-length` says, and is taken apart only if there is no other word about its length.
- One request is answered at a time; what comes meanwhile waits, and no more is read than one piece.
- The head of a stream leaves with what there is of it in the same turn of the event loop, be it all of it, in one write.
- A client that goes away cancels what is done for it. A request that takes too long is cancelled by a timer that serves the
  whole connection: it looks again when it rings, and is not set anew for every request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from antiphon.gateway.config import GatewaySettings
from antiphon.gateway.gateway import Answers
from antiphon.gateway.logs import name_request
from antiphon.gateway.message import Answer, ClientRequest
from antiphon.gateway.plain_head import PlainHead, read_head
from antiphon.providers.errand import Errand

logger = logging.getLogger("antiphon.gateway")

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class Keeper(Protocol):
    """Who keeps the lines of a port: counts them, answers what comes, and knows the limits."""

    @property
    def gateway(self) -> Answers: ...
    @property
    def settings(self) -> GatewaySettings: ...
    def connected(self, transport: asyncio.Transport) -> bool: ...
    def disconnected(self, transport: asyncio.Transport) -> None: ...
    def began(self, transport: asyncio.Transport) -> None: ...
    def ended(self, transport: asyncio.Transport) -> None: ...
    def request_of(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes, peer: str
    ) -> ClientRequest: ...
    def signed(self, answer: Answer, request_id: str) -> Answer: ...
    def too_late(self, path: str, request_id: str) -> Answer: ...
    def body_too_late(self, path: str) -> Answer: ...
    def broken(self, request_id: str) -> Answer: ...


class PlainLine(asyncio.Protocol):
    """One connection. `general` makes the protocol it is handed to when something is not plain."""

    def __init__(self, keeper: Keeper, general: Callable[[], asyncio.Protocol]) -> None:
        self._keeper = keeper
        self._general = general
        self._loop = asyncio.get_running_loop()
        self._peer = ""
        self._head: PlainHead | None = None  # of the request whose body comes
        self._last: PlainHead | None = None  # the one before
        self._pieces: list[bytes] = []
        self._missing = 0  # bytes of that body
        self._ahead: list[bytes] = []
        self._task: Errand | None = None
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._is_late = False
        self._is_last = False
        self._is_busy = self._is_answering = False
        self._unsent: list[bytes] = []  # the beginning of a stream, until this turn of the loop is over
        self._drain: asyncio.Future[None] | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else str(peer or "")
        if not self._keeper.connected(transport):
            transport.write(_TOO_MANY)
            transport.close()
            self._is_last = True

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, and so is what was done for it."""
        del exc
        for timer in (self._timer, self._body_timer):
            if timer is not None:
                timer.cancel()
        self._is_last = True
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()
        if not self._is_answering:  # and never will: nobody else says so
            self._rest()
        self._keeper.disconnected(self._transport)

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_paused = False
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if self._is_last and not self._is_busy:
            return
        if self._task is not None:
            self._ahead.append(data)
            self._transport.pause_reading()
        elif self._head is not None:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing <= 0:
                self._begin(self._head, b"".join(self._pieces))
        elif not self._read(data):
            self._hand_over(data)

    def stop(self) -> None:
        """Take nothing new: close now, or once what is under way is answered."""
        self._is_last = True
        if not self._is_busy:
            self._transport.close()

    async def cut(self, seconds: float) -> None:
        """Give up what is still under way."""
        task = self._task
        self._transport.abort()
        if task is not None:
            task.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await task.ended()

    def _read(self, data: bytes) -> bool:
        """Read the head of a request; False if it is not plain."""
        head = (self._last.again(data) if self._last is not None else None) or read_head(data)
        if head is None or head.length > self._keeper.settings.max_body_bytes:
            return False
        self._last = head
        body = data[head.size :]
        if len(body) >= head.length:
            self._begin(head, body)
        else:
            self._head, self._pieces, self._missing = head, [body], head.length - len(body)
            self._body_timer = self._loop.call_later(self._keeper.settings.body_seconds, self._body_is_late)
            self._work()
        return True

    def _hand_over(self, data: bytes) -> None:
        """Let the general server have the connection, from these bytes on."""
        for timer in (self._timer, self._body_timer):
            if timer is not None:
                timer.cancel()
        protocol = self._general()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)

    def _begin(self, head: PlainHead, body: bytes) -> None:
        """The request is all there."""
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = self._head = None
            self._pieces = []
        self._work()
        if len(body) > head.length:  # the next one came right behind
            self._ahead.append(body[head.length :])
            self._transport.pause_reading()
            body = body[: head.length]
        self._began = time.monotonic()
        if self._timer is None:
            self._timer = self._loop.call_later(self._keeper.settings.request_seconds, self._look)
        request = self._keeper.request_of(head.method, head.path, head.query, head.headers, body, self._peer)
        self._task = Errand(self._answer(request), self._loop)
        self._task.go_on()

    def _work(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._keeper.began(self._transport)

    def _rest(self) -> None:
        self._task = None
        self._is_answering = False
        if self._is_busy:
            self._is_busy = False
            self._keeper.ended(self._transport)

    def _look(self) -> None:
        """Whether what is under way takes too long."""
        self._timer = None
        if self._task is None:
            return  # the next request sets it anew
        left = self._began + self._keeper.settings.request_seconds - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._is_late = True
            self._task.cancel()

    def _body_is_late(self) -> None:
        assert self._head is not None
        self._is_last = True
        self._write_whole(self._keeper.body_too_late(self._head.path))
        self._transport.close()

    async def _answer(self, request: ClientRequest) -> None:
        self._is_answering = True
        name_request(request.request_id)
        is_begun = False
        try:
            try:
                keeper = self._keeper
                answer = keeper.signed(await keeper.gateway.handle(request), request.request_id)
                if isinstance(answer.body, bytes):
                    self._write_whole(answer)
                else:
                    is_begun = True
                    await self._write_stream(answer)
            except asyncio.CancelledError:
                if not self._is_late or self._transport.is_closing():
                    raise
                self._is_last = True
                if is_begun:
                    # A status was told already: that there is no end is all that can still be said.
                    logger.warning("the request took too long; its stream is cut")
                    self._transport.abort()
                else:
                    self._write_whole(self._keeper.too_late(request.path, request.request_id))
            except Exception:
                logger.exception("a request failed outside the gateway")
                self._is_last = True
                if is_begun:
                    self._transport.abort()
                else:
                    self._write_whole(self._keeper.broken(request.request_id))
        finally:
            self._rest()
        if self._is_last:
            self._flush()
            self._transport.close()
        elif self._ahead:
            waiting, self._ahead = b"".join(self._ahead), []
            self._transport.resume_reading()
            self.data_received(waiting)

    def _write_whole(self, answer: Answer) -> None:
        body = answer.body
        assert isinstance(body, bytes)
        self._write(self._head_of(answer, f"content-length: {len(body)}\r\n") + body)

    async def _write_stream(self, answer: Answer) -> None:
        assert not isinstance(answer.body, bytes)
        async with aclosing(answer.body) as pieces:  # type: ignore[type-var]
            self._unsent.append(self._head_of(answer, "transfer-encoding: chunked\r\n"))
            self._loop.call_soon(self._flush)
            async for piece in pieces:
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if self._is_paused:
                    await self._drained()
                if self._transport.is_closing():
                    return
            self._write(b"0\r\n\r\n")

    def _head_of(self, answer: Answer, framing: str) -> bytes:
        if answer.headers.get("connection") == "close":
            self._is_last = True
        elif self._is_last:
            answer.headers["connection"] = "close"
        head = _STATUS_LINES.get(answer.status) or f"HTTP/1.1 {answer.status} \r\n"
        for name, value in answer.headers.items():
            head += f"{name}: {value}\r\n"
        lines = len(answer.headers) + 1
        if head.count("\n") != lines or head.count("\r") != lines:
            raise ValueError("a header of an answer holds a line break")
        return f"{head}{framing}date: {_date(int(time.time()))}\r\n\r\n".encode()

    def _write(self, data: bytes) -> None:
        if self._unsent:
            self._unsent.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))

    def _drained(self) -> Awaitable[None]:
        self._drain = self._loop.create_future()
        return self._drain


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
