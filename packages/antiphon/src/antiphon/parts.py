"""The value types a message is made of, and what a call used.

Parts are frozen tagged structs, independent of providers and stores; they encode to JSON directly
(`{"type": "text", "text": "…"}`).

Provider-specific content is kept as it came and replayed only to its origin: whole blocks as `Native` parts, additions to a
known part (cache marks, citations, signatures) in its `native` mapping, keyed by format. `source` is where a part was read, if
writing it back there needs that.

Two fields keep the exact text received, because parsing and re-encoding would change it: `ToolCallRequest.arguments` (the JSON
the model wrote, valid or not) and the base64 `data` of media.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidEntry
from antiphon.media_types import EXTENSIONS, sniff_bytes, sniff_signature

P = TypeVar("P")

NativeExtras: TypeAlias = dict[str, dict[str, Any]]
"""Fields of one format that the part itself has no place for: `{"anthropic": {"cache_control": {…}}}`."""


class _Part(
    Struct,
    frozen=True,
    tag_field="type",
    omit_defaults=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
    gc=False,
):
    pass


class Source(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, repr_omit_defaults=True, gc=False):
    """Where something was read: the wire format, and what it was called there if the format has several spellings.

    The writer of that format restores the spelling. To every other format it means nothing, so it is never a loss.
    """

    format: str
    spelling: tuple[str, ...] = ()


class _PartWithExtras(_Part, frozen=True, kw_only=True):
    native: NativeExtras | None = None
    source: Source | None = None


class Text(_PartWithExtras, frozen=True, tag="text"):
    """Text from a person, a model or a tool."""

    text: str


class Thinking(_PartWithExtras, frozen=True, tag="thinking"):
    """A model's reasoning. Signatures and encrypted content are in `native`: they are bound to their origin."""

    text: str = ""


class Refusal(_PartWithExtras, frozen=True, tag="refusal"):
    """A model's refusal to answer."""

    text: str


class _Medium(_PartWithExtras, frozen=True):
    """What can be read from a file: its kind follows from the content."""

    def __post_init__(self) -> None:
        given: Any = self
        if not (isinstance(given.data, str) and isinstance(given.media_type, str)):
            name = type(self).__name__
            raise TypeError(
                f"media_type= and data= of {name} are text, data as base64; {name}.from_bytes(data) takes bytes"
            )

    @classmethod
    def from_file(cls, path: str | Path, media_type: str = "") -> Self:
        """The content of a file. Raises `OSError`, and `InvalidEntry` for a file of another kind."""
        name = Path(path).name
        declared = media_type or EXTENSIONS.get(name.rpartition(".")[2].lower(), "")
        return cls._from(Path(path).read_bytes(), declared, name)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str = "") -> Self:
        """Bytes as they are in a file; `media_type` counts where they leave it open. Raises `InvalidEntry` for another kind."""
        return cls._from(data, media_type, "")

    @classmethod
    def _from(cls, data: bytes, media_type: str, name: str) -> Self:
        found = sniff_signature(_check_bytes(data, name), media_type) or media_type
        kind = cls.__name__.lower()
        if not found.startswith(f"{kind}/"):
            what = found or sniff_bytes(data) or "of an unknown type"
            raise InvalidEntry(f"{name or 'the data'} is {what}, not {kind}; Document.from_file takes other files")
        return cls(found, _base64(data))  # type: ignore[call-arg,arg-type]  # the first fields of both


class Image(_Medium, frozen=True, tag="image"):
    """An image: inline as base64 `data`, by `url`, or by a provider's `file_id`. `Image.from_file` reads one."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""


class Audio(_Medium, frozen=True, tag="audio"):
    """Audio: inline as base64 `data`, by `url`, or by a provider's `file_id`. `Audio.from_file` reads one."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""


class Document(_Medium, frozen=True, tag="document"):
    """A file a model reads: base64 `data` (a PDF), plain `text`, a `url`, or a provider's `file_id`. `from_file` reads one."""

    media_type: str = ""
    data: str = ""
    text: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""

    @classmethod
    def _from(cls, data: bytes, media_type: str, name: str) -> Document:
        found = sniff_bytes(_check_bytes(data, name), media_type) or media_type
        if not found:
            raise InvalidEntry(f"{name or 'the data'} is of an unknown type; give it as media_type=")
        if found.startswith("text/"):
            return cls("text/plain", text=data.decode("utf-8-sig"), name=name)
        return cls(found, _base64(data), name=name)


def _check_bytes(data: object, name: str) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"from_bytes takes bytes, not {type(data).__name__}")
    if not data:
        raise InvalidEntry(f"{name or 'the data'} is empty")
    return data


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


class Native(_Part, frozen=True, tag="native"):
    """A block only its origin understands, unchanged. `origin` is the format, `model` the model it is bound to, if any."""

    origin: str
    data: Any
    model: str = ""


class ToolCallRequest(_PartWithExtras, frozen=True, tag="tool_call"):
    """A tool call requested by a model.

    `arguments` is the exact text the model wrote; `parse_arguments` parses it, and a failure is reported to the model. The
    text of a `freeform` call is not JSON and is passed to the tool unchanged.
    """

    tool_name: str
    tool_call_id: str
    arguments: str = "{}"
    freeform: bool = False

    def parse_arguments(self) -> dict[str, Any]:
        """Parse the arguments; empty text means no arguments. Raises `ValueError` with the reason."""
        if not self.arguments.strip():
            return {}
        try:
            value = msgspec.json.decode(self.arguments)
        except msgspec.DecodeError as error:
            raise ValueError(f"the arguments of {self.tool_name} are not valid JSON: {error}") from error
        except RecursionError as error:
            raise ValueError(f"the arguments of {self.tool_name} are nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError(  # noqa: TRY004 - to the caller both are the same: arguments that do not parse
                f"the arguments of {self.tool_name} must be a JSON object, not {type(value).__name__}"
            )
        return value

    def arguments_object(self) -> dict[str, Any]:
        """The arguments as an object, free text under `input`. Raises `ValueError` with the reason."""
        return {"input": self.arguments} if self.freeform else self.parse_arguments()

    @property
    def canonical_arguments(self) -> bytes:
        """The same bytes for all arguments that mean the same JSON object; what is none, or free text, as it is."""
        try:
            if not self.freeform:
                return msgspec.json.encode(self.parse_arguments(), order="sorted")
        except (TypeError, ValueError, RecursionError):
            pass
        return self.arguments.encode("utf-8", "surrogatepass")

    @property
    def is_readable(self) -> bool:
        """Whether the arguments can be parsed."""
        try:
            self.arguments_object()
        except ValueError:
            return False
        return True


class ToolExecutionStatus(StrEnum):
    """How a call ended."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


ResultPart: TypeAlias = Text | Image | Audio | Document | Native
"""What a tool may return."""


class ToolCallResult(_PartWithExtras, frozen=True, tag="tool_result"):
    """The result of one call. `tool_call_id` is the id of its `ToolCallRequest`."""

    tool_name: str
    tool_call_id: str
    status: ToolExecutionStatus = ToolExecutionStatus.SUCCESS
    content: tuple[ResultPart, ...] = ()

    @classmethod
    def of(
        cls,
        call: ToolCallRequest,
        *content: ResultPart | str,
        status: ToolExecutionStatus = ToolExecutionStatus.SUCCESS,
    ) -> ToolCallResult:
        """The answer to `call`; plain strings become `Text`."""
        return cls(call.tool_name, call.tool_call_id, status, as_parts(content))

    @property
    def result_markdown(self) -> str:
        """The text of the result."""
        return text_of(self.content)


InputPart: TypeAlias = Text | Image | Audio | Document | Native
"""What a person or program may send to a model."""

OutputPart: TypeAlias = Text | Thinking | Refusal | Image | Audio | Document | ToolCallRequest | Native
"""What a model may produce, in the order it produced it."""

Part: TypeAlias = Text | Thinking | Refusal | Image | Audio | Document | ToolCallRequest | ToolCallResult | Native


_TEXT_PARTS = (Text, Refusal)


def as_parts(content: Iterable[P | str]) -> tuple[P | Text, ...]:
    """Convert plain strings to `Text`; parts pass unchanged. Raises `InvalidEntry` for anything else."""
    return tuple([Text(part) if isinstance(part, str) else _check_part(part) for part in content])


def _check_part(part: P) -> P:
    if not isinstance(part, _Part):
        raise InvalidEntry(f"not a part: expected text or a part such as Text or Image, got {type(part).__name__}")
    return part


def media_part(media_type: str, data: str = "", *, url: str = "", name: str = "") -> Image | Audio | Document:
    """The part of a medium: an image, audio, or a document of any other type."""
    if media_type.startswith("image/"):
        return Image(media_type, data, url)
    if media_type.startswith("audio/"):
        return Audio(media_type, data, url)
    return Document(media_type, data, url=url, name=name)


def text_of(parts: Iterable[Part]) -> str:
    """The text and refusals of `parts`, concatenated."""
    return "".join([part.text for part in parts if isinstance(part, _TEXT_PARTS)])


class TokenUsage(
    Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, repr_omit_defaults=True, gc=False
):
    """Tokens of one call, or of many added up.

    The counts are inclusive, whatever the provider's habit: `prompt_tokens` has the cached ones in it, `completion_tokens`
    the reasoning. `raw` is the provider's own object, of a single call, in the words of the wire format `format`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    raw: dict[str, Any] | None = None
    format: str = ""

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """The sum. `raw` objects of different calls do not add up, so the sum has none."""
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            (self.total_tokens or self.prompt_tokens + self.completion_tokens)
            + (other.total_tokens or other.prompt_tokens + other.completion_tokens),
        )

    @property
    def total(self) -> int:
        """The provider's total, or the sum where it gave none."""
        return self.total_tokens or self.prompt_tokens + self.completion_tokens
