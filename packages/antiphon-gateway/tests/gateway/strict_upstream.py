"""A provider that refuses what the real one refuses: over real sockets, in one format, with its statuses and its words.

Every request is held to the address, the credential and the rules of the API (`check_request`); the first rule that is broken is
in the provider's words. What is accepted is answered by `answer`, as a stream or as a whole body. `faults` come first: each
takes the place of one answer, or is done to it (a stream that is cut, dripped, or never ends).
"""

from __future__ import annotations

import gzip
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from antiphon.parts import Text, TokenUsage, text_of
from antiphon.wire import formats
from antiphon.wire.delta import Failed, Finished, UsageReported, deltas_from_output
from antiphon.wire.output import ErrorKind, ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from providers.scripted_server import Received, Reply, ScriptedServer

Fault: TypeAlias = Reply | Callable[[Reply], Reply]
"""In place of an answer, or done to one."""

USAGE = TokenUsage(prompt_tokens=11, completion_tokens=7, total_tokens=18)

_ADDRESSES = {
    "openai-chat": re.compile(r"/v1/chat/completions"),
    "openai-responses": re.compile(r"/v1/responses"),
    "anthropic": re.compile(r"/v1/messages(\?beta=true)?"),
    "gemini-interactions": re.compile(r"/v1beta/interactions"),
    "gemini": re.compile(r"/v1beta/models/[^/:]+:(generateContent|streamGenerateContent\?alt=sse)"),
}
_CREDENTIALS = {
    "openai-chat": ("authorization", "Bearer "),
    "openai-responses": ("authorization", "Bearer "),
    "anthropic": ("x-api-key", ""),
    "gemini": ("x-goog-api-key", ""),
    "gemini-interactions": ("x-goog-api-key", ""),
}
_WRONG_KEY = {
    "openai-chat": "Incorrect API key provided: {key}. You can find your API key at the account page.",
    "openai-responses": "Incorrect API key provided: {key}. You can find your API key at the account page.",
    "anthropic": "invalid x-api-key",
    "gemini": "API key not valid. Please pass a valid API key.",
    "gemini-interactions": "API key not valid. Please pass a valid API key.",
}


class StrictUpstream:
    """One provider. `keys` are the credentials it knows; `answer` says what a request is answered with."""

    def __init__(self, format_name: str, keys: Iterable[str] = ()) -> None:
        self.format = format_name
        self.wire = formats[format_name]
        self.keys = set(keys)
        self.answer: Callable[[ModelRequest], ModelOutput] = echo
        self.faults: deque[Fault] = deque()
        self.may_fail: Callable[[Received], bool] = lambda _: True
        """Which requests meet the faults."""
        self.refused: list[str] = []
        """Why requests were refused, in the words they were refused with."""
        self.piece = 0
        """How many bytes of a stream go out at a time; 0: all at once."""
        self.streams_only = False
        """Whether it refuses requests for a whole answer."""
        self._server = ScriptedServer(self._reply)
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        """As the provider's own SDK takes it."""
        return self._server.url + ("/v1" if self.format.startswith("openai") else "")

    @property
    def credential(self) -> tuple[str, str]:
        """The header that carries the key, and its prefix before the key."""
        return _CREDENTIALS[self.format]

    @property
    def received(self) -> list[Received]:
        """Every request."""
        return self._server.received

    @property
    def gone(self) -> threading.Event:
        """Set when a client left while the upstream hung."""
        return self._server.gone

    @property
    def bodies(self) -> list[Any]:
        """Every request body."""
        return [msgspec.json.decode(request.body) for request in self.received]

    def clear(self) -> None:
        """Forget what was."""
        self.received.clear()
        self.refused.clear()
        self.faults.clear()
        self.gone.clear()
        self.answer = echo
        self.piece = 0

    def __enter__(self) -> StrictUpstream:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def _reply(self, received: Received) -> Reply:
        with self._lock:
            fault = self.faults.popleft() if self.faults and self.may_fail(received) else None
        if isinstance(fault, Reply):
            return fault
        reply = self._answered(received)
        return reply if fault is None else fault(reply)

    def _answered(self, received: Received) -> Reply:
        if re.search(r"/count_tokens$|:countTokens$|/input_tokens$", received.target):
            counted = msgspec.json.encode({"input_tokens": 11, "totalTokens": 11})
            return Reply(body=counted, content_type="application/json", has_length=True)
        if received.target == "/v1/embeddings" and self.format.startswith("openai"):
            return self._embedded(received)
        if not _ADDRESSES[self.format].fullmatch(received.target):
            return self._refusal(404, "not_found", f"there is nothing at {received.target}")
        if (refusal := self._wrong_key(received)) is not None:
            return refusal
        if received.headers.get("content-type", "").partition(";")[0] != "application/json":
            return self._refusal(415, "invalid_request", "Unsupported content type")
        body = msgspec.json.decode(received.body)
        named: dict[str, Any] = (
            {"model": received.target.split("/")[3].partition(":")[0]} if self.format == "gemini" else {}
        )
        broken = self.wire.check_request(body, **named)
        if broken:
            return self._refusal(400, "invalid_request", f"{broken[0].path}: {broken[0].message}")
        streams = "stream" in received.target if self.format == "gemini" else bool(body.get("stream"))
        if self.streams_only and not streams:
            return self._refusal(400, "invalid_request", "Non-stream chat request is currently not supported")
        output = self.answer(self.wire.read_request(body))
        has_usage = self.format != "openai-chat" or bool((body.get("stream_options") or {}).get("include_usage"))
        return self.spoken(output, streams=streams, has_usage=has_usage)

    def _wrong_key(self, received: Received) -> Reply | None:
        header, scheme = self.credential
        key = received.headers.get(header, "").removeprefix(scheme)
        if self.keys and key not in self.keys:
            return self._refusal(401, "authentication", _WRONG_KEY[self.format].format(key=key))
        return None

    def _embedded(self, received: Received) -> Reply:
        body = msgspec.json.decode(received.body)
        if (refusal := self._wrong_key(received)) is not None:
            return refusal
        made = {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.5]}],
            "model": body["model"],
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        }
        return Reply(body=msgspec.json.encode(made), content_type="application/json", has_length=True)

    def spoken(self, output: ModelOutput, *, streams: bool, has_usage: bool = True) -> Reply:
        """An output as this provider says it."""
        if not streams:
            data, _ = self.wire.encode_response(output)
            return Reply(body=data, content_type="application/json", has_length=True)
        return Reply(body=self.stream(output, has_usage=has_usage), piece=self.piece)

    def stream(self, output: ModelOutput, *, has_usage: bool = True) -> bytes:
        """The bytes of a streamed output. OpenAI's Chat Completions tell the usage only where it is asked for."""
        writer = self.wire.stream_writer(output.model)
        deltas = (delta for delta in deltas_from_output(output, 5) if has_usage or not isinstance(delta, UsageReported))
        return b"".join([*map(writer.write, deltas), writer.close()])

    def _refusal(self, status: int, kind: ErrorKind, message: str) -> Reply:
        self.refused.append(message)
        return self.error(status, kind, message)

    def error(self, status: int, kind: ErrorKind, message: str, **headers: str) -> Reply:
        """An error as this provider says it."""
        body = self.wire.write_error(ProviderError(message, kind, status=status))
        return Reply(
            status=status,
            body=msgspec.json.encode(body),
            content_type="application/json",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            has_length=True,
        )

    def error_in_stream(self, kind: ErrorKind, message: str, after: ModelOutput | None = None) -> Reply:
        """A stream with status 200 that says nothing but an error, or sends it after the beginning of an answer."""
        writer = self.wire.stream_writer("m")
        deltas = [delta for delta in deltas_from_output(after, 5) if not isinstance(delta, Finished)] if after else []
        return Reply(body=b"".join(map(writer.write, [*deltas, Failed(ProviderError(message, kind))])))


def echo(request: ModelRequest) -> ModelOutput:
    """The last words of the request."""
    return text_answer(f"echo: {text_of(request.messages[-1].parts) or 'nothing'}", request.model)


def text_answer(text: str, model: str = "m") -> ModelOutput:
    """A short answer."""
    return ModelOutput(parts=(Text(text),), stop_reason="end", id="answer-1", model=model, usage=USAGE)


def cut(after: int) -> Fault:
    """The stream ends after so many bytes."""
    return lambda reply: structs.replace(reply, cut_after=after)


def reset(after: int) -> Fault:
    """The connection is reset after so many bytes."""
    return lambda reply: structs.replace(reply, body=reply.body[:after], is_reset=True)


def hang(after: int = 0) -> Fault:
    """Nothing more comes after so many bytes (0: no head either), until the client goes away."""
    if not after:
        return Reply(status=0, hangs=True)
    return lambda reply: structs.replace(reply, body=reply.body[:after], hangs=True, has_length=False)


def trickle(piece: int, pause: float) -> Fault:
    """So many bytes at a time."""
    return lambda reply: structs.replace(reply, piece=piece, pause=pause)


def late(seconds: float) -> Fault:
    """The head comes so much later."""
    return lambda reply: structs.replace(reply, delay=seconds)


def many_times(count: int) -> Fault:
    """The whole stream again and again, as if it had no end."""
    return lambda reply: structs.replace(reply, body=reply.body * count)


def called(content_type: str) -> Fault:
    """The body under another name."""
    return lambda reply: structs.replace(reply, content_type=content_type)


def gzipped(reply: Reply) -> Reply:
    """The body compressed."""
    return structs.replace(
        reply, body=gzip.compress(reply.body), headers={**reply.headers, "content-encoding": "gzip"}, cut_after=None
    )


EMPTY = Reply(body=b"")
CLOSED = Reply(status=0)
PAGE = Reply(body=b"<html><head><title>Bad gateway</title></head><body>nginx</body></html>", content_type="text/html")
ERROR_PAGE = structs.replace(PAGE, status=502)
