"""The objects of Chat Completions as structs: messages, tool calls and chunks. Content parts are read from plain values.

A message has the fields that OpenAI's own messages have; those of other hosts are what its `Loose` has more.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from antiphon.wire.shapes import PlainRequest, Shape, Shapes


class TextPart(Shape, tag_field="type", tag="text"):
    """A content part of text alone, as it is written."""

    text: str


class FunctionCall(Shape):
    name: str
    arguments: str


class CallShape(Shape):
    """A call of a function; every other call is read from its plain values."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class _Message(Shape, tag_field="role"):
    pass


class AssistantShape(_Message, tag="assistant"):
    content: str | list[Any] | UnsetType | None = UNSET
    tool_calls: list[CallShape] | None = None
    refusal: str | None = None


class ToolShape(_Message, tag="tool"):
    """A result, whatever its fields are: it must reach the model."""

    tool_call_id: Any = None
    name: Any = None
    content: Any = UNSET


class FunctionShape(_Message, tag="function"):
    """A result of the legacy function API."""

    name: Any = None
    tool_call_id: Any = None
    content: Any = UNSET


class UserShape(_Message, tag="user"):
    content: str | list[Any] | UnsetType | None = UNSET
    name: str | None = None


class SystemShape(_Message, tag="system"):
    content: str | list[Any] | UnsetType | None = UNSET
    name: str | None = None


class DeveloperShape(_Message, tag="developer"):
    content: str | list[Any] | UnsetType | None = UNSET
    name: str | None = None


MessageShape = AssistantShape | ToolShape | FunctionShape | UserShape | SystemShape | DeveloperShape
ROLE_SHAPES = {"user": UserShape, "system": SystemShape, "developer": DeveloperShape}
CALLS = Shapes(CallShape)
MESSAGES = Shapes(
    AssistantShape,
    ToolShape,
    FunctionShape,
    UserShape,
    SystemShape,
    DeveloperShape,
    inner={"tool_calls": CALLS},
    spare=("tool_calls", "refusal"),
)


_PlainContent: TypeAlias = str | list[TextPart] | None


class _PlainMessage(Shape, tag_field="role"):
    content: _PlainContent = None


class PlainAssistant(_PlainMessage, tag="assistant"):
    """Also as an SDK writes an answer back."""

    tool_calls: list[CallShape] | None = None
    name: str | None = None
    annotations: list[Any] | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None


class PlainResult(_PlainMessage, tag="tool", kw_only=True):
    tool_call_id: str
    name: Any = None


class PlainUser(_PlainMessage, tag="user"):
    name: str | None = None


class PlainSystem(_PlainMessage, tag="system"):
    name: str | None = None


class PlainDeveloper(_PlainMessage, tag="developer"):
    name: str | None = None


class PlainBody(PlainRequest):
    messages: list[PlainAssistant | PlainResult | PlainUser | PlainSystem | PlainDeveloper]
    reasoning_effort: str | None = None
    reasoning: None = None
    thinking: None = None
    enable_thinking: None = None
    stream_options: dict[str, Any] | UnsetType = UNSET


class CalledFragment(Shape):
    name: Any = None
    arguments: Any = None
    input: Any = None


class CallFragment(Shape):
    """A piece of a call in a stream."""

    index: Any = None
    id: Any = None
    type: Any = None
    function: CalledFragment | None = None
    custom: CalledFragment | None = None


class DeltaShape(Shape):
    content: Any = None
    role: Any = None
    tool_calls: list[CallFragment] | None = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class ChunkChoice(Shape):
    delta: DeltaShape | None = None
    index: int | None = None
    finish_reason: Any = None
    logprobs: Any = None


class Chunk(Shape):
    choices: list[ChunkChoice]
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    usage: Any = None
    system_fingerprint: Any = None
    service_tier: Any = None
    obfuscation: Any = None


CALLED = Shapes(CalledFragment)
FRAGMENTS = Shapes(CallFragment, spare=("function", "custom"))
DELTAS = Shapes(DeltaShape, inner={"tool_calls": FRAGMENTS}, spare=("tool_calls",))
CHUNK_CHOICES = Shapes(ChunkChoice, spare=("delta", "index"))
CHUNKS = Shapes(Chunk)
