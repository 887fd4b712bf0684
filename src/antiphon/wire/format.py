"""`Format`: one wire format with everything it can do, its modules loaded when they are first used.

A format is a package of these modules, each of which reads and writes one thing; `plain` only reads it more quickly:

    request.py        read_request(body) -> ModelRequest         write_request(request, losses, **options) -> body
    plain.py          read_plain(bytes) -> ModelRequest, the same as read_request would give, or None
    rules.py          check_request(body) -> violations
    response.py       read_response(body) -> ModelOutput         write_response(output, losses) -> body
    errors.py         read_error(body, status) -> ProviderError  write_error(error) -> body
    stream.py         StreamReader: feed(bytes), close() -> deltas
    stream_writer.py  StreamWriter(model): write(delta), close() -> bytes

Two of them can also tell in `outline.py` what is to be known of a body that is passed on as it is.

Writers append to the list of losses they are given; strictness and decoding bytes are done here, once for all formats.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import msgspec

from antiphon.errors import WireError
from antiphon.history.usage import TokenUsage
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.loss import Loss, LossyTranslation
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.rules import Violation


class Written(NamedTuple):
    """A body, and what could not be said in it."""

    body: dict[str, Any]
    losses: list[Loss]


class Encoded(NamedTuple):
    """A body as bytes, and what could not be said in it."""

    data: bytes
    losses: list[Loss]


_BYTES = (bytes, bytearray, memoryview)
_OUTLINED = ("openai-chat", "anthropic")
_EMBEDDING = ("anthropic", "gemini")
"""The formats that write a call's arguments as an object: composed bodies hold them as raw JSON, in structs."""


class StreamReader(Protocol):
    """Bytes in, deltas out, however the bytes are cut."""

    def feed(self, data: bytes) -> list[ModelOutputDelta]: ...
    def close(self) -> list[ModelOutputDelta]:
        """The stream ended: what was held back, and `Failed` if it should not have ended here."""


class StreamWriter(Protocol):
    """Deltas in, the bytes of a stream out. `losses` grows with what the format cannot say."""

    losses: list[Loss]

    def write(self, delta: ModelOutputDelta) -> bytes: ...
    def close(self) -> bytes:
        """The end of the stream; an error if no terminal delta was written."""


class Format:
    """One wire format. Bodies may be given as bytes or as decoded JSON."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._modules: dict[str, Any] = {}

    def read_request(self, body: dict[str, Any] | bytes) -> ModelRequest:
        """A request body in neutral terms. Raises `WireError` if it is none of this format."""
        plain = self._module("plain").read_plain(body) if isinstance(body, _BYTES) else None
        request: ModelRequest = self._module("request").read_request(self._decoded(body)) if plain is None else plain
        return request

    def outline_request(self, body: bytes) -> ModelRequest | None:
        """The model, whether it streams, and the order of calls and results (see `wire.outline`); None: read it whole."""
        outline: ModelRequest | None = self._module("outline").read_outline(body) if self.name in _OUTLINED else None
        return outline

    def write_request(self, request: ModelRequest, *, strict: bool = False, **options: Any) -> Written:
        """A body this format accepts, and the losses. With `strict`, a loss raises `LossyTranslation`."""
        body, losses = self.compose_request(request, **options)
        if strict and losses:
            raise LossyTranslation(losses)
        return Written(_values(body) if self.name in _EMBEDDING else body, losses)

    def encode_request(self, request: ModelRequest, *, strict: bool = False, **options: Any) -> Encoded:
        """The same as bytes, which is the quicker way: a call's arguments are put in as they are, and not read."""
        body, losses = self.compose_request(request, **options)
        if strict and losses:
            raise LossyTranslation(losses)
        return Encoded(msgspec.json.encode(body), losses)

    def compose_request(self, request: ModelRequest, **options: Any) -> Written:
        """A body for `msgspec.json.encode` alone: it may hold structs, and `msgspec.Raw` where JSON is put in as it is."""
        losses: list[Loss] = []
        return Written(self._module("request").write_request(request, losses, **options), losses)

    def read_response(self, body: dict[str, Any] | bytes) -> ModelOutput:
        """A response body in neutral terms."""
        output: ModelOutput = self._module("response").read_response(self._decoded(body))
        return output

    def read_usage(self, body: bytes) -> TokenUsage | None:
        """What an answer cost, and little else of it is read. Raises `WireError` if it is none of this format."""
        usage: TokenUsage | None = self._module("outline").read_usage_alone(body) if self.name in _OUTLINED else None
        return self.read_response(body).usage if usage is None else usage

    def write_response(self, output: ModelOutput, *, strict: bool = False) -> Written:
        """A response body as this format's clients expect it, and the losses."""
        data, losses = self.encode_response(output, strict=strict)
        return Written(msgspec.json.decode(data), losses)

    def encode_response(self, output: ModelOutput, *, strict: bool = False) -> Encoded:
        """The same as bytes."""
        losses: list[Loss] = []
        body = self._module("response").write_response(output, losses)
        if strict and losses:
            raise LossyTranslation(losses)
        return Encoded(msgspec.json.encode(body), losses)

    def read_error(self, body: Any, status: int | None = None) -> ProviderError:
        """What an error body says; never raises, whatever the body is."""
        error: ProviderError = self._module("errors").read_error(body, status)
        return error

    def write_error(self, error: ProviderError) -> dict[str, Any]:
        """An error in this format's own shape."""
        body: dict[str, Any] = self._module("errors").write_error(error)
        return body

    def stream_reader(self) -> StreamReader:
        """A new reader for one stream."""
        reader: StreamReader = self._module("stream").StreamReader()
        return reader

    def stream_writer(self, model: str = "") -> StreamWriter:
        """A new writer for one stream; `model` is the name the client asked for."""
        writer: StreamWriter = self._module("stream_writer").StreamWriter(model)
        return writer

    def check_request(self, body: Any, *, advisories: bool = False, **options: Any) -> list[Violation]:
        """The rules of the API that a body breaks; advisories on demand. Whatever the JSON is, it is looked at."""
        if isinstance(body, _BYTES):
            body = _json(body)
        violations: list[Violation] = self._module("rules").check_request(body, advisories=advisories, **options)
        return violations

    def _decoded(self, body: dict[str, Any] | bytes) -> dict[str, Any]:
        value: Any = body
        if isinstance(body, _BYTES):
            value = _json(body)
        if not isinstance(value, dict):
            raise WireError(f"a body of {self.name} is an object, not {_kind(value)}")
        return value

    def _module(self, name: str) -> Any:
        """One of the format's modules."""
        module = self._modules.get(name)
        if module is None:
            module = self._modules[name] = import_module(f"antiphon.wire.{self.name.replace('-', '_')}.{name}")
        return module

    def __repr__(self) -> str:
        return f"<Format {self.name}>"


def _values(body: dict[str, Any]) -> dict[str, Any]:
    """A composed body as plain values."""
    data = msgspec.json.encode(body)
    try:
        values: dict[str, Any] = msgspec.json.decode(data)
    except msgspec.DecodeError:
        values = json.loads(data)  # a model may write a number that no float holds; it is sent as it is
    return values


def _json(data: bytes | bytearray | memoryview) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from error


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
