"""`ResponseWriter`: the response in progress on a client connection, from its head to its last chunk.

A stream begins with a batch: its head and what is written in the same turn of the event loop leave in one packet. The handler of
the request learns of its end before the last bytes are written: a client that has them may ask for the record at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from http import HTTPStatus
from typing import TYPE_CHECKING

from antiphon.http.messages import BODILESS, CODEC, ERRORS, Response, StreamSource, http_date, write_fields
from antiphon.http.server.application import Refusal
from antiphon.http.server.request_parser import IncomingRequest

if TYPE_CHECKING:
    from antiphon.http.server.listener import Listener

logger = logging.getLogger("antiphon.http")

_BATCH_BYTES, _BATCH_PIECES = 16 * 1024, 64
"""A piece of this size, or so many pieces, end the first batch of a stream: only what is written can be paused."""
_LAST_CHUNK, _CHUNKED = b"0\r\n\r\n", "transfer-encoding: chunked\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class ResponseWriter(asyncio.Protocol):
    """The half of a connection that writes. It is the `ResponseStream` of the response in progress."""

    _transport: asyncio.Transport

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._current: IncomingRequest | None = None  # the request that is answered
        self._source: StreamSource | None = None
        self._status = 0  # no reference to the response: that would be a cycle, by its source and the request
        self._is_streaming = self._is_chunked = False
        self._sends_body = True
        self._batch: list[bytes] = []  # the start of a stream, until this turn of the loop is over
        self._closes = False  # after the current response

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Write the end of a response, and wait until all of it has left."""

    def write(self, data: bytes) -> None:
        """Send more of a stream."""
        if not data or not self._is_streaming or not self._sends_body:
            return  # an empty chunk would end the stream
        piece = b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data
        if self._batch:
            self._batch.append(piece)
            if len(piece) >= _BATCH_BYTES or len(self._batch) >= _BATCH_PIECES:
                self._flush_batch()
        elif not self._transport.is_closing():
            self._transport.write(piece)

    def end_stream(self) -> None:
        """The stream is complete."""
        if not self._is_streaming:
            return
        current = self._current
        if current is not None and current.handler is not None:
            current.handler.end(self._status)
        last = _LAST_CHUNK if self._is_chunked and self._sends_body else b""
        self._is_streaming, self._source = False, None
        batch, self._batch = self._batch, []
        self._send(b"".join([*batch, last]))

    def abort_stream(self) -> None:
        """Truncate the stream."""
        self._drop_source()
        self._transport.abort()

    def _start(self, source: StreamSource) -> None:
        if not self._sends_body:
            self._drop_source()
            self.end_stream()
            return
        try:
            source.start(self)
        except Exception:
            logger.exception("internal error while starting a stream")
            self.abort_stream()
        self._flush_batch()

    def _drop_source(self, error: Exception | None = None) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.cancel(error)

    def _send_whole(self, response: Response) -> None:
        body = response.body
        assert isinstance(body, bytes), "it is not a stream"
        if self._is_streaming:  # its head was sent early
            self.write(body)
            self.end_stream()
            return
        framing = "" if response.status in BODILESS else f"content-length: {len(body)}\r\n"
        try:
            head = self._head(response, framing)
        except ValueError:  # a header that no head can carry
            assert self._current is not None, "it is answered"
            logger.exception("internal error while answering a request")
            self._fail(self.listener.internal_error(self._current.request))
            return
        self._status = response.status
        self._send(head + body if self._sends_body and framing else head)

    def _begin_stream(self, response: Response) -> None:
        if self._is_streaming:
            return  # it was begun early
        assert self._current is not None, "it is answered"
        self._is_chunked = not self._current.is_http_10
        if not self._is_chunked:
            self._closes = True  # its end is that of the connection
        self._batch = [self._head(response, _CHUNKED if self._is_chunked else "")]
        self._status, self._is_streaming = response.status, True

    def _head(self, response: Response, framing: str) -> bytes:
        headers, current = response.headers, self._current
        assert current is not None, "it is answered"
        headers.setdefault("x-request-id", current.request.request_id)
        headers.setdefault("server", "antiphon")
        if "origin" in current.request.headers:
            headers.update(self.listener.application.page_headers(current.request))
        if headers.get("connection") == "close":
            self._closes = True
        elif self._closes or not current.is_complete:
            self._closes = True  # what has not arrived of a body is discarded, with all that follows
            headers["connection"] = "close"
        elif current.is_http_10:
            headers["connection"] = "keep-alive"
        status_line = _STATUS_LINES.get(response.status) or f"HTTP/1.1 {response.status} \r\n"
        date = http_date(int(time.time()))
        return f"{status_line}{write_fields(headers)}{framing}date: {date}\r\n\r\n".encode(CODEC, ERRORS)

    def _flush_batch(self) -> None:
        batch, self._batch = self._batch, []
        if batch and not self._transport.is_closing():
            self._transport.write(b"".join(batch))

    def _fail(self, failure: Refusal) -> None:
        """Answer with an error instead; if the status was sent already, a truncated response is the only possible signal."""
        self._closes = True
        if self._is_streaming and not self._batch:
            self.abort_stream()
        else:
            current = self._current
            assert current is not None, "it is answered"
            self._batch, self._is_streaming = [], False
            response = self.listener.application.refuse(current.request, failure)
            if current.handler is not None:
                current.handler.end(response.status, response.error)
            self._send_whole(response)
