"""The traffic of the gateway bench: request bodies, a scripted upstream and a load generator, on bare asyncio protocols.

`python -m bench.gateway.traffic` is the upstream: it speaks Chat Completions, prints its port and ends when its standard input
is closed. Its answers are prepared bytes. A stream has 107 events, at the end a tool call; each is an HTTP chunk and a write of
its own. For a model called `…-slowly` they come 1 ms apart, and one called `…-briefly` sends a few events in two writes.

The load generator sends one request after the other over keep-alive connections and checks every answer: a wrong one ends the
measurement. `latencies` sends requests with pauses over one connection.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from bench.workload.agent_request import chat_request
from bench.workload.streams import chat_call

MODEL, SLOW_MODEL, SHORT_MODEL, ANTHROPIC_MODEL = "gpt-4o", "gpt-4o-slowly", "gpt-4o-briefly", "claude-sonnet-4-5"
EVENTS, SHORT_EVENTS = 107, 12
CONNECTIONS = 4
ANSWER = "Rain in Oslo until the evening, seven degrees."
LAST_WORD = "word98."
_BETWEEN_EVENTS_MS = 1.0
_BETWEEN_WRITES_MS = 0.2
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_STREAMS = re.compile(rb'"stream": ?true').search
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_TIMEOUT_SECONDS = 60.0


class WrongAnswer(Exception):
    """A gateway did not pass on what the upstream sent."""


class RequestCase(Struct, frozen=True):
    """A kind of request, and what every answer to it must contain."""

    path: str
    body: bytes
    expected: tuple[bytes, ...]

    def to_bytes(self, port: int, headers: Mapping[str, str]) -> bytes:
        """The HTTP request."""
        fields = {
            "host": f"127.0.0.1:{port}",
            "accept": "*/*",
            "content-type": "application/json",
            **headers,
            "content-length": str(len(self.body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n".encode() + self.body


def request_cases() -> dict[str, RequestCase]:
    """The requests, by name."""
    small = {"model": MODEL, "messages": [{"role": "user", "content": "Is it raining in Oslo?"}]}
    anthropic = {**small, "model": ANTHROPIC_MODEL, "max_tokens": 1_000}
    whole = (ANSWER.encode(),)
    streamed = (b"word0 ", LAST_WORD.encode(), b"[DONE]")
    expected = (b"word0 ", LAST_WORD.encode(), b"message_stop")
    return {
        "small": _chat(small, whole),
        "stream": _chat({**small, "stream": True}, streamed),
        "agent": _chat(chat_request(), whole),
        "agent stream": _chat({**chat_request(), "stream": True}, streamed),
        "translated": RequestCase("/v1/messages", msgspec.json.encode(anthropic), whole),
        "translated stream": RequestCase("/v1/messages", msgspec.json.encode({**anthropic, "stream": True}), expected),
        "short stream": _chat({**small, "model": SHORT_MODEL, "stream": True}, (b"word0 ", b"[DONE]")),
        "slow stream": _chat({**small, "model": SLOW_MODEL, "stream": True}, streamed),
    }


def _chat(body: dict[str, Any], expected: tuple[bytes, ...]) -> RequestCase:
    return RequestCase("/v1/chat/completions", msgspec.json.encode(body), expected)


class HttpMessage:
    """One HTTP message as it arrives. No side sends a second one before the first is answered."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._left = 0
        self._has_head = self._is_chunked = False

    def feed(self, data: bytes) -> bool:
        """Add bytes; whether the message is complete."""
        self._pieces.append(data)
        if self._has_head:
            self._left -= len(data)
        elif not self._begin():
            return False
        if self._is_chunked:
            return b"".join(self._pieces[-8:]).endswith(_LAST_CHUNK)
        return self._left <= 0

    def _begin(self) -> bool:
        joined = self.data
        head, end, body = joined.partition(b"\r\n\r\n")
        if not end:
            return False
        length = _LENGTH.search(head)
        self._has_head, self._is_chunked = True, _CHUNKED.search(head) is not None
        self._left = (int(length[1]) if length is not None else 0) - len(body)
        return True

    @property
    def data(self) -> bytes:
        """What has arrived."""
        return b"".join(self._pieces)


class HttpConnection(asyncio.Protocol, ABC):
    """A connection that delivers whole messages to `on_message`."""

    def __init__(self) -> None:
        self._message = HttpMessage()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._message.feed(data):
            whole, self._message = self._message.data, HttpMessage()
            self.on_message(whole)

    @abstractmethod
    def on_message(self, message: bytes) -> None:
        """A message is complete."""


class Upstream(HttpConnection):
    """The scripted provider: one connection."""

    def on_message(self, message: bytes) -> None:
        if not _STREAMS(message):
            self.transport.write(WHOLE)
        elif SLOW_MODEL.encode() in message:
            self._write_slowly(iter(STREAM))
        elif SHORT_MODEL.encode() in message:
            self.transport.write(b"".join(SHORT_STREAM[:4]))
            rest = b"".join(SHORT_STREAM[4:])
            asyncio.get_running_loop().call_later(_BETWEEN_WRITES_MS / 1e3, self.transport.write, rest)
        else:
            for piece in STREAM:
                self.transport.write(piece)

    def _write_slowly(self, pieces: Iterator[bytes]) -> None:
        for piece in islice(pieces, 1):
            self.transport.write(piece)
            asyncio.get_running_loop().call_later(_BETWEEN_EVENTS_MS / 1e3, self._write_slowly, pieces)


def _whole() -> bytes:
    message = {"role": "assistant", "content": ANSWER, "refusal": None}
    body = msgspec.json.encode(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": _USAGE,
        }
    )
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _stream() -> list[bytes]:
    calls = chat_call()
    words = [f"word{number} " for number in range(EVENTS - 4 - len(calls))] + [LAST_WORD]
    texts: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    events = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "tool_calls"}]}
        for delta in (*texts, *calls, {})
    ]
    data = [*(msgspec.json.encode(event) for event in events), b"[DONE]"]
    assert len(data) == EVENTS
    lines = [b"data: %b\n\n" % piece for piece in data]
    chunks = [b"%x\r\n%b\r\n" % (len(line), line) for line in lines]
    start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [start, *chunks, b"0\r\n\r\n"]


_USAGE = {"prompt_tokens": 12, "completion_tokens": 11, "total_tokens": 23}
WHOLE, STREAM = _whole(), _stream()
_END = len(chat_call()) + 3  # the call, the finish, [DONE] and the last chunk
SHORT_STREAM = [*STREAM[: SHORT_EVENTS - _END + 2], *STREAM[-_END:]]


class _LoadConnection(HttpConnection):
    """One connection of the load: it repeats the request until the time is over."""

    def __init__(self, request: bytes, case: RequestCase, until: float) -> None:
        super().__init__()
        self.answered = 0
        self.done = asyncio.get_running_loop().create_future()
        self._request = request
        self._case = case
        self._until = until

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._request)

    def on_message(self, message: bytes) -> None:
        if not all(part in message for part in self._case.expected):
            self._end(WrongAnswer(message[:300].decode(errors="replace")))
            return
        self.answered += 1
        if time.monotonic() < self._until:
            self.transport.write(self._request)
        else:
            self._end(None)

    def connection_lost(self, _: Exception | None) -> None:
        self._end(WrongAnswer("the connection was closed"))

    def _end(self, error: Exception | None) -> None:
        self.transport.close()
        if not self.done.done():
            self.done.set_result(None) if error is None else self.done.set_exception(error)


async def run_load(
    port: int, case: RequestCase, headers: Mapping[str, str], seconds: float, connections: int = CONNECTIONS
) -> int:
    """Send requests for `seconds`; the number of answers. Raises `WrongAnswer`."""
    loop = asyncio.get_running_loop()
    request, until = case.to_bytes(port, headers), time.monotonic() + seconds
    clients = [
        (await loop.create_connection(lambda: _LoadConnection(request, case, until), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    try:
        async with asyncio.timeout(seconds + _TIMEOUT_SECONDS):
            await asyncio.gather(*(client.done for client in clients))
    except TimeoutError:
        raise WrongAnswer(f"no answer within {_TIMEOUT_SECONDS:g} s") from None
    return sum(client.answered for client in clients)


class _SingleRequests(HttpConnection):
    """A connection that sends one request at a time."""

    def __init__(self, case: RequestCase) -> None:
        super().__init__()
        self._case = case
        self.answer: asyncio.Future[float] | None = None

    def send(self, request: bytes) -> asyncio.Future[float]:
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answer

    def on_message(self, message: bytes) -> None:
        assert self.answer is not None
        if all(part in message for part in self._case.expected):
            self.answer.set_result(time.perf_counter())
        else:
            self.answer.set_exception(WrongAnswer(message[:300].decode(errors="replace")))

    def connection_lost(self, _: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(WrongAnswer("the connection was closed"))


async def latencies(port: int, case: RequestCase, headers: Mapping[str, str], count: int, pause: float) -> list[float]:
    """Send `count` requests with pauses; the seconds each answer took. Raises `WrongAnswer`."""
    request, seconds = case.to_bytes(port, headers), []
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(lambda: _SingleRequests(case), "127.0.0.1", port)
    try:
        async with asyncio.timeout(count * pause + _TIMEOUT_SECONDS):
            for _ in range(count):
                began = time.perf_counter()
                seconds.append(await connection.send(request) - began)
                await asyncio.sleep(pause)
    except TimeoutError:
        raise WrongAnswer(f"no answer within {_TIMEOUT_SECONDS:g} s") from None
    finally:
        transport.close()
    return seconds


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
