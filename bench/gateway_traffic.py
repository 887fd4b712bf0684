"""The traffic of the gateway's bench: bodies, a scripted upstream, and a load that counts. Raw sockets, for cheapness.

`python -m bench.gateway_traffic` is the upstream: it speaks Chat Completions, prints its port, and ends when its standard input
does. Its answers are bytes made beforehand. A stream is 107 events, each an HTTP chunk and a write of its own, one right after
the other; for a model called `…-slowly` each comes by itself, as they do in practice. A model called `…-briefly` says a few
events in two writes.

The load asks over kept-alive connections, one request after the other, and looks at every answer: one that does not hold
what the upstream sent ends the measurement. `waits` asks now and then over one connection, and reports how long each answer took.
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

from bench.conversation import chat_request

MODEL, SLOW_MODEL, SHORT_MODEL, ANTHROPIC_MODEL = "gpt-4o", "gpt-4o-slowly", "gpt-4o-briefly", "claude-sonnet-4-5"
EVENTS, SHORT_EVENTS = 107, 12
CONNECTIONS = 4
ANSWER = "Rain in Oslo until the evening, seven degrees."
LAST_WORD = "word103."
_SAID_WITHIN_MS = 1.0
_BETWEEN_WRITES_MS = 0.2
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_STREAMS = re.compile(rb'"stream": ?true').search
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_PATIENCE = 60.0


class AnswerWrong(Exception):
    """A contestant did not pass on what the upstream sent."""


class Ask(Struct, frozen=True):
    """A kind of request: where to, with what, and what every answer to it holds."""

    path: str
    body: bytes
    holds: tuple[bytes, ...]

    def sent(self, port: int, headers: Mapping[str, str]) -> bytes:
        """The request as it is on the wire."""
        fields = {
            "host": f"127.0.0.1:{port}",
            "accept": "*/*",
            "content-type": "application/json",
            **headers,
            "content-length": str(len(self.body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n".encode() + self.body


def asks() -> dict[str, Ask]:
    """The work, by name."""
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
        "translated": Ask("/v1/messages", msgspec.json.encode(anthropic), whole),
        "translated stream": Ask("/v1/messages", msgspec.json.encode({**anthropic, "stream": True}), expected),
        "short stream": _chat({**small, "model": SHORT_MODEL, "stream": True}, (b"word0 ", b"[DONE]")),
        "slow stream": _chat({**small, "model": SLOW_MODEL, "stream": True}, streamed),
    }


def _chat(body: dict[str, Any], holds: tuple[bytes, ...]) -> Ask:
    return Ask("/v1/chat/completions", msgspec.json.encode(body), holds)


class Message:
    """One HTTP message as it comes in. Our peers never send a second one before the first is answered."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._left = 0
        self._has_head = self._is_chunked = False

    def feed(self, data: bytes) -> bool:
        """Take what came; whether that was the end."""
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
        """What came so far."""
        return b"".join(self._pieces)


class Line(asyncio.Protocol, ABC):
    """One connection; messages are taken whole."""

    def __init__(self) -> None:
        self._message = Message()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._message.feed(data):
            whole, self._message = self._message.data, Message()
            self.received(whole)

    @abstractmethod
    def received(self, message: bytes) -> None:
        """A message is there."""


class Upstream(Line):
    """The scripted provider: one connection."""

    def received(self, message: bytes) -> None:
        if not _STREAMS(message):
            self.transport.write(WHOLE)
        elif SLOW_MODEL.encode() in message:
            self._say(iter(STREAM))
        elif SHORT_MODEL.encode() in message:
            self.transport.write(b"".join(SHORT_STREAM[:4]))
            rest = b"".join(SHORT_STREAM[4:])
            asyncio.get_running_loop().call_later(_BETWEEN_WRITES_MS / 1e3, self.transport.write, rest)
        else:
            for piece in STREAM:
                self.transport.write(piece)

    def _say(self, pieces: Iterator[bytes]) -> None:
        for piece in islice(pieces, 1):
            self.transport.write(piece)
            asyncio.get_running_loop().call_later(_SAID_WITHIN_MS / 1e3, self._say, pieces)


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
    words = [f"word{number} " for number in range(EVENTS - 4)] + [LAST_WORD]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in words), {}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    events = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]}
        for delta in deltas
    ]
    data = [*(msgspec.json.encode(event) for event in events), b"[DONE]"]
    assert len(data) == EVENTS
    lines = [b"data: %b\n\n" % piece for piece in data]
    chunks = [b"%x\r\n%b\r\n" % (len(line), line) for line in lines]
    start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [start, *chunks, b"0\r\n\r\n"]


_USAGE = {"prompt_tokens": 12, "completion_tokens": 11, "total_tokens": 23}
WHOLE, STREAM = _whole(), _stream()
SHORT_STREAM = [*STREAM[: SHORT_EVENTS - 2], *STREAM[-4:]]


class _Client(Line):
    """One connection of the load: it asks again until the time is over."""

    def __init__(self, sent: bytes, ask: Ask, until: float) -> None:
        super().__init__()
        self.answered = 0
        self.over = asyncio.get_running_loop().create_future()
        self._sent = sent
        self._ask = ask
        self._until = until

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._sent)

    def received(self, message: bytes) -> None:
        if not all(part in message for part in self._ask.holds):
            self._end(AnswerWrong(message[:300].decode(errors="replace")))
            return
        self.answered += 1
        if time.monotonic() < self._until:
            self.transport.write(self._sent)
        else:
            self._end(None)

    def connection_lost(self, _: Exception | None) -> None:
        self._end(AnswerWrong("the connection was closed"))

    def _end(self, error: Exception | None) -> None:
        self.transport.close()
        if not self.over.done():
            self.over.set_result(None) if error is None else self.over.set_exception(error)


async def load(port: int, ask: Ask, headers: Mapping[str, str], seconds: float, connections: int = CONNECTIONS) -> int:
    """Ask for so long; how many answers came. Raises `AnswerWrong`."""
    loop = asyncio.get_running_loop()
    sent, until = ask.sent(port, headers), time.monotonic() + seconds
    clients = [
        (await loop.create_connection(lambda: _Client(sent, ask, until), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    try:
        async with asyncio.timeout(seconds + _PATIENCE):
            await asyncio.gather(*(client.over for client in clients))
    except TimeoutError:
        raise AnswerWrong(f"no answer within {_PATIENCE:g} s") from None
    return sum(client.answered for client in clients)


class _Patient(Line):
    """One connection that asks on demand."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask
        self.answer: asyncio.Future[float] | None = None

    def say(self, sent: bytes) -> asyncio.Future[float]:
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(sent)
        return self.answer

    def received(self, message: bytes) -> None:
        assert self.answer is not None
        if all(part in message for part in self._ask.holds):
            self.answer.set_result(time.perf_counter())
        else:
            self.answer.set_exception(AnswerWrong(message[:300].decode(errors="replace")))

    def connection_lost(self, _: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(AnswerWrong("the connection was closed"))


async def waits(port: int, ask: Ask, headers: Mapping[str, str], count: int, pause: float) -> list[float]:
    """Ask so often, with pauses; the seconds that each answer took. Raises `AnswerWrong`."""
    sent, taken = ask.sent(port, headers), []
    transport, line = await asyncio.get_running_loop().create_connection(lambda: _Patient(ask), "127.0.0.1", port)
    try:
        async with asyncio.timeout(count * pause + _PATIENCE):
            for _ in range(count):
                began = time.perf_counter()
                taken.append(await line.say(sent) - began)
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AnswerWrong(f"no answer within {_PATIENCE:g} s") from None
    finally:
        transport.close()
    return taken


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
