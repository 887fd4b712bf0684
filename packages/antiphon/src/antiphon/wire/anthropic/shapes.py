"""The objects of the Messages API as structs: blocks of content, and messages.

What no part has a field for is in `native["anthropic"]` as it came. Null fields and empty lists of citations are left out, so
they are not a loss elsewhere. Three things need their `source` to be written back unchanged: file ids, which belong to one
provider; system messages among the others, which only some models accept; and reasoning, which other formats state differently.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from antiphon.parts import NativeExtras, Source
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.limits import is_cache_control
from antiphon.wire.loss import other_fields
from antiphon.wire.shapes import Loose, PlainRequest, Shape, Shapes

SOURCE = Source(FORMAT)
ROLES = ("user", "assistant", "system")
DIRECT_CALLER = {"type": "direct"}
"""The `caller` of a call that the model made itself, as nearly all are."""
_CHAT = "openai-chat"
_CACHE_CONTROL = "cache_control"


class _Block(Shape, tag_field="type"):
    pass


class TextShape(_Block, tag="text"):
    text: str
    cache_control: Any = None
    citations: Any = None


class ThinkingShape(_Block, tag="thinking"):
    thinking: str
    signature: str | None = None


class CallShape(_Block, tag="tool_use"):
    id: str
    name: str
    input: Any = None
    cache_control: Any = None
    caller: Any = None


class ImageShape(_Block, tag="image"):
    source: dict[str, Any]
    cache_control: Any = None


class DocumentShape(_Block, tag="document"):
    source: dict[str, Any]
    title: str | None = None
    cache_control: Any = None
    citations: Any = None
    context: Any = None


class ResultShape(_Block, tag="tool_result"):
    tool_use_id: str
    content: str | list[TextShape | ImageShape | DocumentShape] | None = None
    is_error: bool | None = None
    cache_control: Any = None


class MessageShape(Shape):
    role: Literal["user", "assistant", "system"]
    content: str | list[TextShape | ThinkingShape | CallShape | ResultShape | ImageShape | DocumentShape]


class PlainCall(_Block, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw = msgspec.Raw()
    cache_control: Any = None
    caller: Any = None


class PlainResult(_Block, tag="tool_result"):
    tool_use_id: str
    content: str | list[TextShape] | None = None
    is_error: bool | None = None
    cache_control: Any = None


class PlainMessage(Shape):
    role: Literal["user", "assistant"]
    content: str | list[TextShape | PlainCall | PlainResult]


class PlainBody(PlainRequest):
    messages: list[PlainMessage]
    system: str | list[TextShape] | None = None
    thinking: Any = None
    output_config: None = None


_RESULT_BLOCKS = Shapes(TextShape, ImageShape, DocumentShape)
BLOCKS = Shapes(
    TextShape,
    ThinkingShape,
    CallShape,
    ResultShape,
    ImageShape,
    DocumentShape,
    inner={"content": _RESULT_BLOCKS},
)


def fit_message(value: Any) -> Loose:
    """A message that does not fit as a whole: its blocks are fitted one by one."""
    role = value.get("role") if type(value) is dict else None
    content = value.get("content") if type(value) is dict else None
    if type(role) is not str or role not in ROLES or type(content) not in (str, list):
        return Loose(None, {}, value)
    if type(content) is list:
        content = [BLOCKS.fit(block) for block in content]
    return Loose(MessageShape(role, content), other_fields(value, ("role", "content")), value)  # type: ignore[arg-type]


def extras_of(more: dict[str, Any] | None = None, **named: Any) -> NativeExtras | None:
    """What a block says beyond its part: named fields that are set, and further ones."""
    extras = {name: value for name, value in named.items() if value is not None}
    if extras.get("citations") == []:
        del extras["citations"]
    if more:
        extras |= more
    return {FORMAT: extras} if extras else None


def unread_fields(fields: dict[str, Any], known: frozenset[str]) -> NativeExtras | None:
    """What `fields` say beyond those that are `known`."""
    return None if fields.keys() <= known else extras_of(other_fields(fields, known))


def with_cache_control(native: NativeExtras) -> NativeExtras:
    """The extras with a cache breakpoint that a chat client set, as OpenRouter and LiteLLM take it, among Anthropic's own."""
    extras = native.get(_CHAT)
    control = extras.get(_CACHE_CONTROL) if extras else None
    if extras is None or not is_cache_control(control):
        return native
    rest = {name: value for name, value in extras.items() if name != _CACHE_CONTROL}
    others = {origin: value for origin, value in native.items() if origin != _CHAT}
    own = {**others.get(FORMAT, {}), _CACHE_CONTROL: control}
    return {**others, **({_CHAT: rest} if rest else {}), FORMAT: own}


def block_type(block: Any) -> str:
    """The type of a block; empty if it has none."""
    if isinstance(block, Struct):
        return str(block.__struct_config__.tag)
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def field_of(block: Any, name: str) -> Any:
    """A field of a written block, of any kind."""
    return block.get(name) if type(block) is dict else getattr(block, name, None)
