"""`BodyRelay`: passes on a body of a provider as it arrives, whatever it is, and reads the usage that it reports.

Usage is under `usage` in a JSON body. In the stream of an image or a transcript it is in the last event; that may be some
megabytes long, but its usage is at the end, so the last part of a stream or of a long body is enough.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import msgspec

from antiphon.errors import TransportError
from antiphon.http.client.pushed_body import PushedBody
from antiphon.http.messages import ResponseStream
from antiphon.parts import TokenUsage
from antiphon.providers.engine.reply import StreamReply
from antiphon.providers.engine.response_reader import error_from_transport
from antiphon_gateway.observe.request_trace import RequestTrace

_MAX_USAGE_BYTES = 1024 * 1024
"""Of a longer response, and of a stream, only the end is read for its usage."""
_TAIL_BYTES = 64 * 1024
_LONGEST_USAGE = 4096
_usages = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)').finditer


class BodyRelay:
    """A `StreamSource` that passes on a body as it arrives, and reads the usage that it reports."""

    def __init__(self, reply: StreamReply, trace: RequestTrace, deadline: float, on_end: Callable[[int], None]) -> None:
        self._reply = reply
        self._body: PushedBody | None = reply.push()
        self._status = reply.response.status
        self._trace = trace
        self._deadline = deadline
        self._on_end = on_end
        self._context = copy_context()
        self._client: ResponseStream | None = None
        self._usage = _UsageReader.of(reply.headers.get("content-type", ""))
        self._waiting_since = time.monotonic()

    # What the connection to the client calls.

    def start(self, client: ResponseStream) -> None:
        """Pass on what has arrived, then each piece as it arrives."""
        self._client = client
        if self._body is not None:
            self._body.deliver_to(self)

    def pause(self) -> None:
        """The client reads slowly."""
        if self._body is not None:
            self._body.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._body is not None:
            self._body.resume()

    def cancel(self, error: Exception | None = None) -> None:
        """The client left, the request took too long, or `error` kept the response from being sent."""
        body, self._body, self._client = self._body, None, None
        if body is not None:
            self._reply.release()
            body.abort()
            self._end(self._trace.status_after(error or asyncio.CancelledError(), self._deadline))

    # What the connection to the upstream calls.

    def on_body(self, data: bytes) -> None:
        """More of the body."""
        self._trace.waiting_seconds += time.monotonic() - self._waiting_since
        if self._usage is not None:
            self._usage.feed(data)
        if self._client is not None:
            self._client.write(data)
        self._waiting_since = time.monotonic()

    def on_complete(self) -> None:
        """The last byte was delivered."""
        client, self._client, self._body = self._client, None, None
        self._end(self._status)
        if client is not None:
            client.end_stream()

    def on_failure(self, error: TransportError) -> None:
        """The body broke off: the client sees a truncated response."""
        client, self._client, self._body = self._client, None, None
        self._trace.error = error_from_transport(error, "stream_cut")
        self._end(self._status)
        if client is not None:
            client.abort_stream()

    def _end(self, status: int) -> None:
        trace = self._trace
        trace.waiting_seconds += time.monotonic() - self._waiting_since
        trace.usage = self._usage.close() if self._usage is not None else None
        self._context.run(self._on_end, status)


class _UsageReader:
    """The usage in a response that is passed on: of a short JSON body, or at the end of a long one or of a stream."""

    @classmethod
    def of(cls, content_type: str) -> _UsageReader | None:
        """The reader for a content type; None if it has no usage."""
        if content_type.startswith("application/json"):
            return cls(_MAX_USAGE_BYTES)
        return cls(_TAIL_BYTES) if content_type.startswith("text/event-stream") else None

    def __init__(self, most: int) -> None:
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._most = most
        self._is_cut = most == _TAIL_BYTES

    def feed(self, data: bytes) -> None:
        """More of the response."""
        self._kept.append(data)
        self._size += len(data)
        if self._size > self._most:
            self._most, self._is_cut = _TAIL_BYTES, True
            while self._size - len(self._kept[0]) >= _TAIL_BYTES:
                self._size -= len(self._kept.popleft())

    def close(self) -> TokenUsage | None:
        """What was used; None if nothing is reported."""
        body = b"".join(self._kept)
        self._kept.clear()
        if not self._is_cut:
            return read_any_usage(body)
        starts = [found.end() for found in _usages(body)]
        if not starts:
            return None
        start = starts[-1]
        end = body.find(b"}", start)
        while end >= 0:  # it may have objects inside
            if usage := read_any_usage(b'{"usage":%b}' % body[start : end + 1]):
                return usage
            end = body.find(b"}", end + 1, start + _LONGEST_USAGE)
        return None


def read_any_usage(body: bytes) -> TokenUsage | None:
    """The tokens that a JSON response reports under `usage`, in either of OpenAI's spellings."""
    try:
        usage: Any = msgspec.json.decode(body).get("usage")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return None
    if not isinstance(usage, dict):
        return None
    counts = [
        next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)
        for names in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens",))
    ]
    return (
        TokenUsage(prompt_tokens=counts[0], completion_tokens=counts[1], total_tokens=counts[2])
        if any(counts)
        else None
    )
