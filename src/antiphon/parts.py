"""What messages are made of.

A part is a value: frozen, comparable, free of any provider's vocabulary and of any store's. Parts are tagged structs, so
they go to JSON and back by themselves (`{"type": "text", "text": "…"}`).

What one provider says and no other understands is kept, not translated: whole blocks as a `Native` part, additions to a
known part (cache marks, citations, signatures of single parts) in its `native` mapping, keyed by the format they came from.
Both go back untouched to where they came from.

Two fields hold text exactly as it came, because a copy that was parsed and written anew is another text:
`ToolCallRequest.arguments`, the JSON the model wrote, valid or not; and the base64 `data` of media.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

P = TypeVar("P")

NativeExtras: TypeAlias = dict[str, dict[str, Any]]
"""What a format says about a part beyond what the part holds: `{"anthropic": {"cache_control": {…}}}`."""


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


class _Extended(_Part, frozen=True, kw_only=True):
    native: NativeExtras | None = None


class Text(_Extended, frozen=True, tag="text"):
    """Words, from a person, a model or a tool."""

    text: str


class Thinking(_Extended, frozen=True, tag="thinking"):
    """A model's reasoning. Proofs of it (signatures, encrypted content) are in `native`: they are bound to their origin."""

    text: str = ""


class Refusal(_Extended, frozen=True, tag="refusal"):
    """A model's words for not answering."""

    text: str


class Image(_Extended, frozen=True, tag="image"):
    """A picture: inline as base64 `data`, by `url`, or by a provider's `file_id`."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""


class Audio(_Extended, frozen=True, tag="audio"):
    """Sound: inline as base64 `data`, by `url`, or by a provider's `file_id`."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""


class Document(_Extended, frozen=True, tag="document"):
    """A file a model reads: base64 `data` (a PDF), plain `text`, a `url`, or a provider's `file_id`."""

    media_type: str = ""
    data: str = ""
    text: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""


class Native(_Part, frozen=True, tag="native"):
    """A block only its origin understands, kept as it came. `origin` is the format, `model` the model it is bound to, if any."""

    origin: str
    data: Any
    model: str = ""


class ToolCallRequest(_Extended, frozen=True, tag="tool_call"):
    """A model's wish to have a tool called.

    `arguments` is the exact text the model wrote; `parse_arguments` reads it, and its failure is for the model to hear. A
    `freeform` call takes its text as it is: it is not meant to be JSON.
    """

    tool_name: str
    tool_call_id: str
    arguments: str = "{}"
    freeform: bool = False

    def parse_arguments(self) -> dict[str, Any]:
        """The arguments as an object. Empty text means no arguments. Raises `ValueError` saying what is wrong with the text."""
        if not self.arguments.strip():
            return {}
        try:
            value = msgspec.json.decode(self.arguments)
        except msgspec.DecodeError as error:
            raise ValueError(f"the arguments of {self.tool_name} are not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(  # noqa: TRY004 - to the caller both are the same: arguments that do not parse
                f"the arguments of {self.tool_name} must be a JSON object, not {type(value).__name__}"
            )
        return value


class ToolExecutionStatus(StrEnum):
    """How a call ended."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


ResultPart: TypeAlias = Text | Image | Audio | Document | Native
"""What a tool may answer with."""


class ToolCallResult(_Extended, frozen=True, tag="tool_result"):
    """What came of one call. `tool_call_id` is the id of its `ToolCallRequest`."""

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
"""What a person or a program may put before a model."""

OutputPart: TypeAlias = Text | Thinking | Refusal | Image | Audio | Document | ToolCallRequest | Native
"""What a model may produce, in the order it produced it."""

Part: TypeAlias = Text | Thinking | Refusal | Image | Audio | Document | ToolCallRequest | ToolCallResult | Native


_WORDS = (Text, Refusal)


def as_parts(content: Iterable[P | str]) -> tuple[P | Text, ...]:
    """Parts as they are, plain strings as `Text`."""
    return tuple([Text(part) if isinstance(part, str) else part for part in content])


def text_of(parts: Iterable[Part]) -> str:
    """The words among `parts`: text and refusals, one after the other."""
    return "".join([part.text for part in parts if isinstance(part, _WORDS)])
