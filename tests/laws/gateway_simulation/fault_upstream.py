"""A strict upstream whose faults have names, and that writes down what became of every request it got.

The model of the gateway law reads `Attempt`s: which provider was asked, with which key, for which model, and what it did. A fault
says what the gateway can know of it (`Outcome`): an answer, a failure of some kind, or an answer that breaks after its beginning.
"""

from __future__ import annotations

import gzip
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field, structs

from antiphon.parts import Text, TokenUsage
from antiphon.wire.delta import PartStarted, Started, UsageReported, deltas_from_output
from antiphon.wire.output import ModelOutput
from gateway.strict_upstream import CLOSED, StrictUpstream
from providers.scripted_server import Received, Reply

Outcome: TypeAlias = Literal[
    "answered", "broken", "broken or stream_cut", "lost",
    "authentication", "rate_limit", "server", "overloaded", "invalid_request", "stream_cut", "unparsable", "timeout",
]  # fmt: skip
"""What a request came to: an answer, an answer that broke after its beginning, a reused connection that closed without a byte, or
the kind of its failure."""

FAULTS: dict[str, tuple[Outcome, Outcome]] = {
    "": ("answered", "answered"),
    "401": ("authentication", "authentication"),
    "401 echo": ("authentication", "authentication"),
    "429 for 1 s": ("rate_limit", "rate_limit"),
    "429 for 90 s": ("rate_limit", "rate_limit"),
    "500": ("server", "server"),
    "500 echo": ("server", "server"),
    "529": ("overloaded", "overloaded"),
    "400 echo": ("invalid_request", "invalid_request"),
    "closed": ("server", "server"),
    "reset": ("server", "server"),
    "cut in half": ("stream_cut", "broken"),
    "reset in half": ("stream_cut", "broken or stream_cut"),
    "empty": ("stream_cut", "stream_cut"),
    "unparsable": ("unparsable", "unparsable"),
    "stall": ("timeout", "timeout"),
    "stall in half": ("timeout", "broken"),
    "lost idle connection": ("answered", "answered"),
    "gzip in two members": ("answered", "answered"),
    "trickle": ("answered", "answered"),
    "slow trickle": ("answered", "answered"),
    "empty block": ("stream_cut", "stream_cut"),
    "error in stream": ("overloaded", "overloaded"),
}
"""By name: the outcome of a request for a whole answer, and for a stream."""

RETRY_AFTER = {"429 for 1 s": 1.0, "429 for 90 s": 90.0}


class Attempt(Struct, frozen=True, kw_only=True):
    """A request as an upstream got it."""

    provider: str
    key: str
    model: str
    streams: bool
    fault: str
    outcome: Outcome
    refusal: str = ""
    """Why it was refused by a rule of the API, where that was not the fault."""
    body: bytes
    at: float = field(default_factory=time.monotonic)


class FaultUpstream(StrictUpstream):
    """One provider. `queue` names the faults of its next answers; `trace` is shared by all upstreams, in the order of time."""

    def __init__(self, name: str, format_name: str, keys: Iterable[str], trace: list[Attempt]) -> None:
        super().__init__(format_name, keys)
        self.name = name
        self.queue: deque[str] = deque()
        self.trace = trace
        self.text = ""
        """What it answers."""
        self.parts: tuple[object, ...] = ()
        """What it answers beside the text."""
        self.usage = TokenUsage()
        self._known: set[int] = set()
        self.answer = lambda request: ModelOutput(
            parts=(Text(self.text), *self.parts),  # type: ignore[arg-type]
            stop_reason="tool_calls" if self.parts else "end",
            id="answer-1",
            model=request.model,
            usage=self.usage,
        )

    def stream(self, output: ModelOutput, *, has_usage: bool = True) -> bytes:
        """As it is, in larger pieces where the answer is long."""
        size = 5 if len(self.text) < 10_000 else 65_536
        writer = self.wire.stream_writer(output.model)
        deltas = (
            delta for delta in deltas_from_output(output, size) if has_usage or not isinstance(delta, UsageReported)
        )
        return b"".join([*map(writer.write, deltas), writer.close()])

    def _reply(self, received: Received) -> Reply:
        is_reused = received.connection in self._known
        self._known.add(received.connection)
        fault = self.queue.popleft() if self.queue else ""
        streams = "stream" in received.target or b'"stream":true' in received.body.replace(b" ", b"")
        if fault in ("lost idle connection", "closed", "reset") and is_reused:
            self._write_down(received, fault, "lost", streams=streams)
            return Reply(status=0, is_reset=fault == "reset")
        reply = self._answered(received)
        refusal = self.refused.pop() if self.refused else ""
        outcome: Outcome
        if refusal:
            fault, outcome = "", "authentication" if reply.status == 401 else "invalid_request"
        else:
            reply = DO[fault](self, received, reply)
            outcome = FAULTS[fault][streams]
        self._write_down(received, fault, outcome, streams=streams, refusal="" if reply.status == 401 else refusal)
        return reply

    def _write_down(
        self, received: Received, fault: str, outcome: Outcome, *, streams: bool, refusal: str = ""
    ) -> None:
        header, scheme = self.credential
        self.trace.append(
            Attempt(
                provider=self.name,
                key=received.headers.get(header, "").removeprefix(scheme),
                model=_model(received),
                streams=streams,
                fault=fault,
                outcome=outcome,
                refusal=refusal,
                body=received.body,
            )
        )

    def _embedded(self, received: Received) -> Reply:
        reply = super()._embedded(received)
        if reply.status != 200:
            return reply
        usage = {"prompt_tokens": self.usage.prompt_tokens, "total_tokens": self.usage.prompt_tokens}
        return structs.replace(reply, body=msgspec.json.encode({**msgspec.json.decode(reply.body), "usage": usage}))


def _model(received: Received) -> str:
    if "/models/" in received.target:
        return received.target.split("/models/")[1].partition(":")[0]
    try:
        return str(msgspec.json.decode(received.body).get("model", ""))
    except (msgspec.DecodeError, AttributeError):
        return ""


_EMPTY_BLOCKS = {
    "anthropic": b'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, '
    b'"content_block": {"type": "text", "text": ""}}\n\n',
    "openai-chat": b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": ""}}]}\n\n',
    "gemini": b'data: {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}}]}\n\n',
}
"""A part that begins and says nothing; the writer of Responses writes one by itself."""


def _echo(upstream: FaultUpstream, received: Received, status: int) -> Reply:
    """An error that repeats every header of the request."""
    headers = "; ".join(f"{name}={value}" for name, value in received.headers.items())
    kinds = {400: "invalid_request", 401: "authentication", 500: "server"}
    return upstream.error(status, kinds[status], f"refused a request with {headers}")  # type: ignore[arg-type]


def _half(reply: Reply, **changes: object) -> Reply:
    return structs.replace(reply, **{"body": reply.body[: len(reply.body) // 2], **changes})


def _empty_block(upstream: FaultUpstream, reply: Reply) -> Reply:
    """The answer begins, shows nothing yet, and breaks off."""
    if reply.has_length:
        return structs.replace(reply, cut_after=len(reply.body) // 2)
    writer = upstream.wire.stream_writer("m")
    begun = writer.write(Started("answer-1", "m")) + writer.write(PartStarted(0, Text("")))
    begun += _EMPTY_BLOCKS.get(upstream.format, b"")
    return structs.replace(reply, body=begun, cut_after=len(begun))


def _two_members(reply: Reply) -> Reply:
    middle = len(reply.body) // 2
    body = gzip.compress(reply.body[:middle]) + gzip.compress(reply.body[middle:])
    return structs.replace(reply, body=body, headers={**reply.headers, "content-encoding": "gzip"})


def _unparsable(reply: Reply) -> Reply:
    return structs.replace(reply, body=b'{"id": "answer-1", "choices"' if reply.has_length else b"data: {\n\n")


DO: dict[str, Callable[[FaultUpstream, Received, Reply], Reply]] = {
    "": lambda upstream, received, reply: reply,
    "401": lambda upstream, received, reply: upstream.error(401, "authentication", "not now"),
    "401 echo": lambda upstream, received, reply: _echo(upstream, received, 401),
    "429 for 1 s": lambda upstream, received, reply: upstream.error(429, "rate_limit", "slow down", retry_after="1"),
    "429 for 90 s": lambda upstream, received, reply: upstream.error(429, "rate_limit", "slow down", retry_after="90"),
    "500": lambda upstream, received, reply: upstream.error(500, "server", "our fault"),
    "500 echo": lambda upstream, received, reply: _echo(upstream, received, 500),
    "529": lambda upstream, received, reply: upstream.error(529, "overloaded", "Overloaded"),
    "400 echo": lambda upstream, received, reply: _echo(upstream, received, 400),
    "closed": lambda upstream, received, reply: CLOSED,
    "reset": lambda upstream, received, reply: Reply(status=0, is_reset=True),
    "cut in half": lambda upstream, received, reply: structs.replace(reply, cut_after=len(reply.body) // 2),
    "reset in half": lambda upstream, received, reply: _half(reply, is_reset=True, has_length=False),
    "empty": lambda upstream, received, reply: structs.replace(reply, body=b""),
    "unparsable": lambda upstream, received, reply: _unparsable(reply),
    "stall": lambda upstream, received, reply: Reply(status=0, hangs=True),
    "stall in half": lambda upstream, received, reply: _half(reply, hangs=True, has_length=False),
    "lost idle connection": lambda upstream, received, reply: reply,
    "gzip in two members": lambda upstream, received, reply: _two_members(reply),
    "trickle": lambda upstream, received, reply: structs.replace(
        reply, piece=max(97, len(reply.body) // 40), pause=0.001
    ),
    "slow trickle": lambda upstream, received, reply: structs.replace(
        reply, piece=len(reply.body) // 20 + 1, pause=0.02
    ),
    "empty block": lambda upstream, received, reply: _empty_block(upstream, reply),
    "error in stream": lambda upstream, received, reply: (
        upstream.error(529, "overloaded", "Overloaded")
        if reply.has_length
        else upstream.error_in_stream("overloaded", "Overloaded")
    ),
}
"""What each fault does to the answer."""
