"""Content blocks, read and written; requests, responses and streams share this.

A block without a neutral part, or a malformed one, becomes a `Native` part and is written back unchanged.

The input of a call is an object in the body and text in a part. It is read as compact JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    NativeExtras,
    OutputPart,
    Part,
    Refusal,
    ResultPart,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.cache_breakpoints import Breakpoints, can_be_marked
from antiphon.wire.anthropic.limits import Target
from antiphon.wire.anthropic.media import read_document, read_image, write_document, write_image
from antiphon.wire.anthropic.shapes import (
    BLOCKS,
    CallShape,
    DocumentShape,
    ImageShape,
    ResultShape,
    TextShape,
    ThinkingShape,
    block_type,
    extras_of,
    with_cache_control,
)
from antiphon.wire.anthropic.tools import NAMES
from antiphon.wire.capabilities import MediaKind, format_capabilities
from antiphon.wire.capabilities.accepted_media import ALL_KINDS, fit_medium
from antiphon.wire.loss import Losses
from antiphon.wire.native_as_text import readable_parts, transcribe
from antiphon.wire.request_writer import ListWriter
from antiphon.wire.shapes import Loose, as_dict, extend
from antiphon.wire.tools.call_ids import IdMapper
from antiphon.wire.tools.definitions import arguments_object

CALL_IDS = IdMapper(lambda: rf"(?=.{{1,64}}\Z){format_capabilities(FORMAT).tool_id_pattern}", prefix="toolu_")
"""Ids of the format's pattern (AN-11), of at most 64 characters, which every host accepts."""
EMPTY_RESULT_TEXT = "(no output)"

_encode = msgspec.json.Encoder().encode
_SUCCESS, _FAILED = ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED
_legal_id, _legal_name = CALL_IDS.to_wire, NAMES.to_wire
_More: TypeAlias = dict[str, Any] | None
_Names: TypeAlias = dict[str, str]
"""The names of tools by the ids of their calls, which results do not repeat."""


def _read_text(block: TextShape, more: _More, _: _Names) -> Text:
    if block.cache_control is None and block.citations is None and not more:
        return Text(block.text)
    return Text(block.text, native=extras_of(more, cache_control=block.cache_control, citations=block.citations))


def _read_thinking(block: ThinkingShape, more: _More, _: _Names) -> Thinking:
    return Thinking(block.thinking, native=extras_of(more, signature=block.signature or None))


def _read_call(block: CallShape, more: _More, names: _Names) -> ToolCallRequest | None:
    value = block.input
    if type(value) is str:
        arguments = value  # some proxies do not parse it
    elif value:
        try:
            arguments = _encode(value).decode()
        except (RecursionError, UnicodeError):
            return None
    else:
        arguments = "{}"
    names[block.id] = block.name
    if block.cache_control is None and block.caller is None and not more:
        return ToolCallRequest(block.name, block.id, arguments)
    native = extras_of(more, cache_control=block.cache_control, caller=block.caller)
    return ToolCallRequest(block.name, block.id, arguments, native=native)


def _read_result(block: ResultShape, more: _More, names: _Names) -> ToolCallResult:
    call_id, content = block.tool_use_id, block.content
    status = _FAILED if block.is_error else _SUCCESS
    if type(content) is str:
        parts: Any = (Text(content),)
    else:
        parts = tuple([_read_result_part(part) for part in content]) if content else ()
    if block.cache_control is None and not more:
        return ToolCallResult(names.get(call_id, ""), call_id, status, parts)
    native = extras_of(more, cache_control=block.cache_control)
    return ToolCallResult(names.get(call_id, ""), call_id, status, parts, native=native)


def _read_result_part(block: Any) -> Any:
    part = read_block(block, {})
    return part if isinstance(part, Text | Image | Document | Native) else Native(FORMAT, block.value)


def _read_image(block: ImageShape, more: _More, _: _Names) -> Image | None:
    return read_image(block.source, extras_of(more, cache_control=block.cache_control))


def _read_document(block: DocumentShape, more: _More, _: _Names) -> Document | None:
    extras = extras_of(more, cache_control=block.cache_control, citations=block.citations, context=block.context)
    return read_document(block.source, block.title or "", extras)


READERS: dict[type, Callable[[Any, _More, _Names], Part | None]] = {
    TextShape: _read_text,
    ThinkingShape: _read_thinking,
    CallShape: _read_call,
    ResultShape: _read_result,
    ImageShape: _read_image,
    DocumentShape: _read_document,
}


def read_block(block: Any, names: _Names) -> Part:
    """A block of a request as a part; `Native` if it is unknown or malformed."""
    if type(block) is not Loose:
        return READERS[type(block)](block, None, names) or Native(FORMAT, as_dict(block))
    if block.shape is None:
        return Native(FORMAT, block.value)
    return READERS[type(block.shape)](block.shape, block.more, names) or Native(FORMAT, block.value)


def read_value(value: Any) -> Part:
    """The same for a block of plain values."""
    return read_block(BLOCKS.fit(value), {})


def read_output_block(block: Any) -> Text | Thinking | ToolCallRequest | Native:
    """A block of a response as a part: text, thinking or a call; any other block is `Native`."""
    part = read_value(block)
    return part if isinstance(part, Text | Thinking | ToolCallRequest) else Native(FORMAT, block)


def collapse_text(blocks: list[Any]) -> Any:
    """A single text block without extras as a string."""
    if len(blocks) == 1:
        only = blocks[0]
        if type(only) is TextShape and only.cache_control is None and only.citations is None:
            return only.text
        if type(only) is dict and len(only) == 2 and only.get("type") == "text" and type(only.get("text")) is str:
            return only["text"]
    return blocks


def build_block(part: Text | Refusal | Thinking | ToolCallRequest, value: Any) -> dict[str, Any]:
    """The block of a part in a response, with `value` as its text or input; a stream starts it empty."""
    if isinstance(part, ToolCallRequest):
        return {"type": "tool_use", "id": _legal_id(part.tool_call_id), "name": part.tool_name, "input": value}
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": value, "signature": ""}
    return {"type": "text", "text": value}


def report_unsupported(part: OutputPart, losses: Losses) -> None:
    """Report a part that a response cannot have."""
    if isinstance(part, Native):
        losses.add_foreign("block", part.origin)
    else:
        kind = type(part).__name__.lower()
        losses.add(kind, f"Anthropic does not support {kind} in a response; dropped")


class ContentWriter(ListWriter):
    """Writes the parts of a request. Tracks what the whole body needs: cache breakpoints, and whether citations are enabled."""

    breakpoints: Breakpoints
    citations_enabled: bool
    argument_writers: dict[str, Callable[[str], str]]
    """By the name of a tool whose schema is sent with other property names than declared."""
    _target: Target

    def call(self, part: ToolCallRequest) -> Any:
        if self.argument_writers and part.tool_name in self.argument_writers and not part.freeform:
            part = structs.replace(part, arguments=self.argument_writers[part.tool_name](part.arguments))
        block = CallShape(
            _legal_id(part.tool_call_id), _legal_name(part.tool_name), arguments_object(part, self.losses, "AN-12")
        )
        return block if part.native is None else self.extend(block, part.native)

    def add_result(self, blocks: list[Any], result: ToolCallResult) -> None:
        """Append the block of a result, and after it the media a failed result cannot have (AN-15)."""
        parts = result.content
        failed = result.status is not _SUCCESS and result.status != _SUCCESS
        content: Any = parts[0] if len(parts) == 1 else None
        moved: Sequence[Any] = ()
        if type(content) is Text and content.native is None:
            content = content.text
        else:
            content, moved = self._result_content(parts, failed)
        block = ResultShape(_legal_id(result.tool_call_id), content)
        if failed:
            block.content, block.is_error = content or EMPTY_RESULT_TEXT, True
        blocks.append(block if result.native is None else self.extend(block, result.native))
        blocks += moved

    def _result_content(self, parts: tuple[ResultPart, ...], failed: bool) -> tuple[Any, list[Any]]:
        """The content of a result, and what must come after it."""
        content: list[Any] = []
        moved: list[Any] = []
        for number, part in enumerate(parts):
            self.losses.inner = number
            for inner in self._write_result_part(part):
                (moved if failed and block_type(inner) != "text" else content).append(inner)
        self.losses.inner = -1
        return collapse_text(content) if content else None, moved

    def _write_result_part(self, part: Part) -> list[Any]:
        match part:
            case Text() if not part.text:
                self.report_dropped_extras(part.native, "its text is empty and was dropped (AN-18)")
            case Text():
                block = TextShape(part.text)
                return [block if part.native is None else self.extend(block, part.native)]
            case Image() | Document() | Audio():
                return self._write_media(part)
            case Native():
                return self._write_native(part)
            case _:
                self.losses.add("block", "not allowed in a tool result; dropped")
        return []

    def write(self, part: Part, role: str) -> list[Any]:
        """The block of a part that is not a call or a result; empty if it is dropped."""
        part = transcribe(part, self.losses) if type(part) is Audio else part
        match part:
            case Text():
                return self._write_text(part.text, part.native, role)
            case Thinking():
                return self._write_thinking(part)
            case Document() if role == "assistant" and self._target.is_version_2026_10:
                reason = "API version 2026-10-21 does not support documents in assistant messages; dropped (AN-28)"
                self.losses.add("document", reason)
            case Image() | Document():
                return self._write_media(part, role)
            case Audio() if role != "assistant":
                return self._write_media(part)
            case Native():
                return self._write_native(part)
            case Refusal():
                self.losses.add("refusal", "Anthropic has no refusals in the history; sent as text")
                return self._write_text(part.text, part.native, role)
            case _:
                self.losses.add("audio", "Anthropic does not support audio; dropped")
        return []

    def system_blocks(self, parts: tuple[Part, ...]) -> list[Any]:
        """The blocks of a system message: text and native blocks."""
        blocks: list[Any] = []
        for position, part in enumerate(parts):
            self.losses.part = position
            if isinstance(part, Text | Refusal):
                blocks += self._write_text(part.text, part.native, "system")
            elif isinstance(part, Native):
                blocks += self._write_native(part)
            else:
                reason = "Anthropic accepts only text in a system message; dropped (AN-26)"
                self.losses.add(type(part).__name__.lower(), reason)
        self.losses.part = -1
        return blocks

    def _write_text(self, text: str, native: NativeExtras | None, role: str) -> list[Any]:
        if not text or text.isspace():
            self.report_dropped_extras(native, "its text is blank and was dropped (AN-05)")
            return []
        if native is None:
            return [TextShape(text)]
        if self._target.is_version_2026_10 and role == "user" and native.get(FORMAT, {}).get("citations") is not None:
            native = {**native, FORMAT: {**native[FORMAT], "citations": None}}
            reason = "API version 2026-10-21 does not support citations in user messages; dropped (AN-28)"
            self.losses.add("citations", reason, "citations")
        return [self.extend(TextShape(text), native)]

    def _write_thinking(self, part: Thinking) -> list[Any]:
        extras = part.native.get(FORMAT) if part.native else None
        if part.native is None or not extras or not extras.get("signature"):
            self.losses.add("thinking", "thinking without an Anthropic signature is rejected; dropped (AN-20)")
            return []
        native = with_cache_control(part.native)
        if "cache_control" in native[FORMAT]:
            rest = {name: value for name, value in native[FORMAT].items() if name != "cache_control"}
            native = {**native, FORMAT: rest}
            reason = "thinking cannot have a cache breakpoint; dropped (AN-18)"
            self.losses.add("cache_control", reason, "cache_control")
        return [self.extend(ThinkingShape(part.text), native)]

    def _write_media(self, medium: Image | Document | Audio, role: str = "user") -> list[Any]:
        # A model's own media of other types are dropped without a note, which would be text that the model did not write.
        any_type = ALL_KINDS if role == "assistant" else frozenset[MediaKind]()
        part = fit_medium(medium, self._target.model, self.losses, any_type)
        if isinstance(part, Text):
            return self._write_text(part.text, part.native, role)
        block: Any
        if isinstance(part, Image):
            accepts_urls = not self._target.is_on_bedrock
            block = write_image(part, self.losses, self._target.model, accepts_urls=accepts_urls)
        else:
            block = write_document(part, self.losses)
        if block is None:
            return []
        return [block if part.native is None else self.extend(block, part.native)]

    def _write_native(self, part: Native) -> list[Any]:
        """A block of this format unchanged, one of another as text."""
        fitted = fit_medium(part, self._target.model, self.losses)
        if fitted is not part:
            return self._write_text(fitted.text, None, "user")
        block = part.data
        if part.origin != FORMAT:
            carried = readable_parts(part, self.losses, "Anthropic")
            return [block for readable in carried for block in self.write(readable, "")]
        if type(block) is dict:
            self._track_citations(block.get("citations"))
            if "cache_control" in block:
                block = dict(block)
                self.breakpoints[id(block)] = block, self.losses.path()
        return [block]

    def extend(self, block: Any, native: NativeExtras) -> Any:
        """A block with native extras; those of other formats are reported."""
        native = with_cache_control(native)
        extras = self.losses.take_extras(native, FORMAT)
        if not extras:
            return block
        block = extend(block, extras)
        if extras.get("cache_control") is not None:
            self.breakpoints[id(block)] = block, self.losses.path()
        if "citations" in extras:
            self._track_citations(extras["citations"])
        return block

    def mark_block(self, block: Any, cache_control: dict[str, Any]) -> Any:
        """A block with a cache breakpoint, unless it has one."""
        if can_be_marked(block) and id(block) not in self.breakpoints:
            block = extend(block, {"cache_control": cache_control})
            self.breakpoints[id(block)] = block, self.losses.path()
        return block

    def _track_citations(self, citations: Any) -> None:
        if type(citations) is dict and citations.get("enabled") is True:
            self.citations_enabled = True

    def report_dropped_extras(self, native: NativeExtras | None, reason: str) -> None:
        if native:
            self.losses.report_extras(native, FORMAT)
            for name in native.get(FORMAT, ()):
                self.losses.add(name, reason, name)

    def replace_text(self, block: Any, text: str) -> Any:
        """A copy of a block with another text."""
        copy = {**block, "text": text} if type(block) is dict else structs.replace(block, text=text)
        if id(block) in self.breakpoints:
            self.breakpoints[id(copy)] = copy, self.breakpoints.pop(id(block))[1]
        return copy
