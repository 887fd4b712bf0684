"""`Format`: one wire format with everything it can do, its modules loaded when they are first used.

A format is a package whose `__init__` has its `SPEC` and whose modules have the same names in every format:

    request.py        READER (of bytes and of values), Writer; for speed: scan_request
    rules             RULES (one entry per rule), check_request
    response.py       read_response, write_response; for speed: scan_usage
    errors.py         read_error, write_error
    stream_reader.py, stream_writer.py    StreamReader, StreamWriter
    dialects, native_text, namespaces    where the spec says so

`register("package.name")` adds such a package. Decoding bytes and strict mode are here, once for all formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, Unpack, cast

import msgspec
from msgspec import UNSET, Struct

from antiphon.errors import WireError
from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import NativeExtras, TokenUsage
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.loss import Loss, Losses, LossyTranslation
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.rules import Violation, json_type_name
from antiphon.wire.spec import FormatSpec, HostDialect, load_spec
from antiphon.wire.tools.namespaces import flatten

if TYPE_CHECKING:
    from antiphon.wire.capabilities import CapabilityTable
    from antiphon.wire.request_writer import RequestWriter


class Written(NamedTuple):
    """A body, and what it could not express."""

    body: dict[str, Any]
    losses: list[Loss]


class Encoded(NamedTuple):
    """A body as bytes, and what it could not express."""

    data: bytes
    losses: list[Loss]


class WriteOptions(Struct, frozen=True, kw_only=True):
    """What a writer or checker must know about the target. A format rejects the options it does not have."""

    model: str = ""
    """The model named in the URL, if it is not the request's own (gemini)."""
    dialect: str | HostDialect = ""
    """The host's variant of the format (openai-chat, anthropic)."""
    version: str = ""
    """The `anthropic-version` header (anthropic)."""
    capabilities: CapabilityTable | None = None
    """What models accept, if not only the built-in facts (every format)."""
    reasoning_as_text: bool = False
    """Whether readable reasoning of other formats is sent as labelled text instead of being dropped (all formats)."""


class WriteKeywords(TypedDict, total=False):
    """The same as keyword arguments."""

    model: str
    dialect: str | HostDialect
    version: str
    reasoning_as_text: bool
    capabilities: CapabilityTable | None


_COMMON_OPTIONS = frozenset({"reasoning_as_text", "capabilities"})
DEFAULT_OPTIONS = WriteOptions()


class StreamReader(Protocol):
    """Bytes in, deltas out, however the bytes are cut."""

    def feed(self, data: bytes) -> list[ModelOutputDelta]: ...
    def close(self) -> list[ModelOutputDelta]:
        """The stream ended: the deltas still pending, and `Failed` if it was not complete."""


class StreamWriter(Protocol):
    """Deltas in, the bytes of a stream out. `losses` grows with what the format cannot express."""

    losses: list[Loss]

    def write(self, delta: ModelOutputDelta) -> bytes: ...
    def write_all(self, deltas: Iterable[ModelOutputDelta]) -> bytes:
        """The same for some deltas."""

    def resume(self, first: bytes, last: bytes) -> None:
        """Go on with a stream that the upstream began with the event `first`, up to the events `last`."""

    def close(self) -> bytes:
        """The end of the stream; an error if no terminal delta was written."""


class StreamNormalizer(Protocol):
    """Corrects the events of a stream for the official client of the format."""

    def feed(self, events: bytes) -> bytes:
        """Whole events in; the same bytes out if they need no correction."""


_CHUNK = 16


def list_of_entries(messages: Any) -> list[Any]:
    """The messages of a body. Raises `WireError` if they are not a list."""
    if type(messages) is not list:
        raise WireError(f"messages: expected an array, got {json_type_name(messages)}")
    return messages


class RequestReader:
    """Reads bodies with a list of entries under `key`, and the named parameters beside it.

    `fit` makes the shape of one entry; `entries_of` the list of a value under `key`, or raises `WireError`; `build` the request
    of the entries and the rest of the body. Parameters are in alphabetical order, so that bytes and values give the same request.
    """

    def __init__(
        self,
        key: str,
        entry: Any,
        parameters: Iterable[str],
        fit: Callable[[Any], Any],
        entries_of: Callable[[Any], list[Any]],
        build: Callable[[list[Any], dict[str, Any]], ModelRequest],
    ) -> None:
        self._key, self._fit, self._entries_of, self._build = key, fit, entries_of, build
        self._names = tuple(sorted({*parameters} - {key}))
        fields: list[tuple[str, Any, Any]] = [(name, Any, UNSET) for name in self._names]
        whole = msgspec.defstruct("Body", [(key, list[entry]), *fields], forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(whole).decode
        self._values = attrgetter(key, *self._names)
        self._list = msgspec.defstruct("Entries", [("entries", list[entry])], gc=False)  # its decoder is cached

    def decode(self, data: bytes) -> ModelRequest | None:
        """The request in the bytes of a body; None if it must be decoded to plain values first."""
        try:
            body = self._decode(data)
        except NOT_JSON:
            return None
        entries, *values = self._values(body)
        given = compress(zip(self._names, values, strict=True), map(is_not, values, repeat(UNSET)))  # few of many are
        return self._build(entries, dict(given))

    def read(self, body: dict[str, Any]) -> ModelRequest:
        """The request in a body of plain values."""
        entries = self.shapes_of(self._entries_of(body.get(self._key)))
        return self._build(entries, {name: body[name] for name in sorted(body, key=str) if name != self._key})

    def shapes_of(self, entries: list[Any]) -> list[Any]:
        """The shapes of entries of plain values. One that does not fit costs its neighbours a second conversion, not all."""
        try:
            whole: Any = msgspec.convert({"entries": entries}, self._list)
        except NOT_JSON:
            if len(entries) <= _CHUNK:
                return [self._fit(entry) for entry in entries]
            chunks = [entries[start : start + _CHUNK] for start in range(0, len(entries), _CHUNK)]
            return [shape for chunk in chunks for shape in self.shapes_of(chunk)]
        found: list[Any] = whole.entries
        return found


_BYTES = (bytes, bytearray, memoryview)


class Format:
    """One wire format. Bodies may be bytes or decoded JSON."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self._package = package
        self._module: Callable[[str], Any] = cache(self._load)

    @cached_property
    def spec(self) -> FormatSpec:
        """What the format declares about itself."""
        return load_spec(self._package)

    def find_dialect(self, dialect: str | HostDialect) -> HostDialect | None:
        """What a host accepts that differs from the others; None if hosts of the format do not differ. Raises `WireError`."""
        if "dialect" not in self.spec.options or not dialect:
            return None
        return cast(HostDialect, self._module("dialects").get_dialect(dialect))

    def read_request(self, body: dict[str, Any] | bytes) -> ModelRequest:
        """A request body in neutral terms. Raises `WireError` if it is not a request of this format."""
        reader = getattr(self._module("request"), "READER", None)
        if reader is None:  # an API that only clients speak
            return cast(ModelRequest, self._module("request").read_request(self._decode(body)))
        request = reader.decode(body) if isinstance(body, _BYTES) else None
        return reader.read(self._decode(body)) if request is None else request  # type: ignore[no-any-return]

    def scan_request(self, body: bytes) -> ModelRequest | None:
        """A request without its content; None unless that is only text, calls and results in an order that the API accepts.

        It has only the model, the stream with its options as they came, and whether reasoning is requested.
        """
        scan = getattr(self._module("request"), "scan_request", None)
        return None if scan is None else scan(body)

    def write_request(
        self, request: ModelRequest, *, strict: bool = False, **options: Unpack[WriteKeywords]
    ) -> Written:
        """A body this format accepts, and the losses. With `strict`, a loss raises `LossyTranslation`."""
        body, losses = self.build_request(request, WriteOptions(**options) if options else DEFAULT_OPTIONS, strict)
        return Written(_decode_body(self.encode(body, request.messages)), losses)

    def encode_request(
        self, request: ModelRequest, *, strict: bool = False, **options: Unpack[WriteKeywords]
    ) -> Encoded:
        """The same as bytes, which is faster: a call's arguments are embedded without being parsed."""
        body, losses = self.build_request(request, WriteOptions(**options) if options else DEFAULT_OPTIONS, strict)
        return Encoded(self.encode(body, request.messages), losses)

    def encode(self, body: Any, messages: Sequence[Message]) -> bytes:
        """The bytes of what was built of `messages`. Raises `WireError` for text that is not Unicode, and for endless nesting."""
        try:
            return msgspec.json.encode(body)
        except UnicodeEncodeError as error:
            raise surrogate_error(self.name, messages) from error
        except RecursionError as error:
            raise WireError(f"{self.name}: the body is nested too deeply to be written") from error

    def build_request(
        self, request: ModelRequest, options: WriteOptions = DEFAULT_OPTIONS, strict: bool = False
    ) -> Written:
        """A body for `msgspec.json.encode` only: it may hold structs and `msgspec.Raw`."""
        if options is not DEFAULT_OPTIONS:
            self._check_options(options)
        losses: list[Loss] = Losses()
        flat = None
        if request.source is not None and not self.spec.has_tool_namespaces and (flat := flatten(request)) is not None:
            request = flat.request
        body = self._module("request").Writer(request, losses, options).write(request.messages)
        if flat is not None:
            losses = [flat.locate(loss) for loss in losses]
        if strict and losses:
            raise LossyTranslation(losses)
        return Written(body, losses)

    def request_writer(self, request: ModelRequest, losses: Losses, options: WriteOptions) -> RequestWriter:
        """The writer of a request that gets its messages one by one."""
        self._check_options(options)
        return cast("RequestWriter", self._module("request").Writer(request, losses, options))

    def read_response(self, body: dict[str, Any] | bytes) -> ModelOutput:
        """A response body in neutral terms."""
        return cast(ModelOutput, self._module("response").read_response(self._decode(body)))

    def scan_usage(self, body: bytes) -> TokenUsage | None:
        """The usage of a response, reading little else of it. Raises `WireError` if it is not a response of this format."""
        scan = getattr(self._module("response"), "scan_usage", None)
        usage = None if scan is None else scan(body)
        return self.read_response(body).usage if usage is None else usage

    def read_usage(self, raw: Any) -> TokenUsage | None:
        """The counts of a usage object; None if it is none."""
        return cast("TokenUsage | None", self._module("response").read_usage(raw))

    def write_response(self, output: ModelOutput, *, strict: bool = False) -> Written:
        """A response body as this format's clients expect it, and the losses."""
        data, losses = self.encode_response(output, strict=strict)
        return Written(_decode_body(data), losses)

    def encode_response(self, output: ModelOutput, *, strict: bool = False) -> Encoded:
        """The same as bytes."""
        losses = Losses()
        body = self._module("response").write_response(output, losses)
        if strict and losses:
            raise LossyTranslation(losses)
        return Encoded(self.encode(body, (Message("assistant", output.parts),)), losses)

    def read_error(self, body: Any, status: int | None = None) -> ProviderError:
        """The error in a body; never raises, whatever the body is."""
        return cast(ProviderError, self._module("errors").read_error(body, status))

    def write_error(self, error: ProviderError) -> dict[str, Any]:
        """An error body of this format."""
        return cast(dict[str, Any], self._module("errors").write_error(error))

    def stream_reader(self) -> StreamReader:
        """A new reader for one stream."""
        return cast(StreamReader, self._module("stream_reader").StreamReader())

    def stream_writer(self, model: str = "") -> StreamWriter:
        """A new writer for one stream; `model` is the name the client asked for, written instead of the provider's."""
        return cast(StreamWriter, self._module("stream_writer").StreamWriter(model))

    def request_settings(self, body: bytes) -> dict[str, Any]:
        """The settings of a request that its response repeats; empty where responses of the format repeat none."""
        if not self.spec.repeats_settings:
            return {}
        return cast(dict[str, Any], self._module("response").request_settings(self._decode(body)))

    def repeat_settings(self, native: NativeExtras | None, settings: Mapping[str, Any]) -> NativeExtras | None:
        """The extras of a response with the settings of its request."""
        if not self.spec.repeats_settings:
            return native
        own = (native or {}).get(self.name, {})
        return {**(native or {}), self.name: self._module("response").with_settings(own, settings)}

    def stream_normalizer(self) -> StreamNormalizer | None:
        """A new normalizer for a stream that is forwarded in its own format; None if the format needs none."""
        if not self.spec.normalizes_streams:
            return None
        return cast(StreamNormalizer, self._module("stream_reader").StreamNormalizer())

    def check_request(
        self, body: Any, *, advisories: bool = False, **options: Unpack[WriteKeywords]
    ) -> list[Violation]:
        """The rules of the API that a body breaks, whatever the JSON is; advisories on request."""
        if isinstance(body, _BYTES):
            body = _decode_body(body)
        checked = WriteOptions(**options)
        self._check_options(checked)
        return cast(list[Violation], self._module("rules").check_request(body, checked, advisories=advisories))

    def _check_options(self, options: WriteOptions) -> None:
        if options != DEFAULT_OPTIONS:
            for name in options.__struct_fields__:
                if getattr(options, name) and name not in self.spec.options | _COMMON_OPTIONS:
                    raise WireError(f"{self.name} has no option {name!r}")

    def _decode(self, body: dict[str, Any] | bytes) -> dict[str, Any]:
        value: Any = body
        if isinstance(body, _BYTES):
            value = _decode_body(body)
        if not isinstance(value, dict):
            raise WireError(f"{self.name}: expected a JSON object as the body, got {json_type_name(value)}")
        return value

    def _load(self, module: str) -> Any:
        """A module of the format, which is loaded when it is first used."""
        return import_module(f"{self._package}.{module}")

    def __repr__(self) -> str:
        return f"<Format {self.name}>"


def surrogate_error(name: str, messages: Sequence[Message]) -> WireError:
    """The error for text that is not Unicode; it names the part, if the text is in one."""
    path = "the body"
    for index, message in enumerate(messages):
        for position, part in enumerate(message.parts):
            try:
                msgspec.json.encode(part)
            except UnicodeEncodeError:
                path = f"messages[{index}].parts[{position}]"
                break
    return WireError(f"{name}: {path} has a lone surrogate, which is not valid Unicode; replace it before writing")


def _decode_body(data: bytes | bytearray | memoryview) -> Any:
    try:
        return decode_json(data)
    except NOT_JSON as error:
        raise WireError(f"not valid JSON: {_lone_surrogate(bytes(data), str(error)) or error}") from error


_find_lone_surrogate = re.compile(
    rb"\\u[dD][89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89aAbB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
).search


def _lone_surrogate(data: bytes, error: str) -> str:
    """What is wrong with half a surrogate pair, which near the end of a body is reported as missing data; else empty."""
    half = _find_lone_surrogate(data) if "surrogate" in error or "truncated" in error else None
    if half is None:
        return ""
    return f"{half[0].decode()} at byte {half.start()} is a lone surrogate; send both halves of the pair, or \\ufffd"
