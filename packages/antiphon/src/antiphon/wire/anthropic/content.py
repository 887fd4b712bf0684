"""Content blocks, read and written; requests, responses and streams share this.

A block without a neutral part, or a malformed one, becomes a `Native` part and is written back unchanged.

The input of a call is an object in the body and text in a part. It is read as compact JSON. The text is embedded unparsed if it
is an object; other text becomes `{"_raw": text}` and a loss, a lone surrogate a replacement character and a loss, and empty text
or `null` the empty object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, structs

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
from antiphon.wire.anthropic.cache_breakpoints import can_be_marked, with_breakpoint
from antiphon.wire.anthropic.limits import is_blank
from antiphon.wire.anthropic.media import read_document, read_image, write_document, write_image
from antiphon.wire.anthropic.parameters import Target
from antiphon.wire.anthropic.tools import NAMES
from antiphon.wire.capabilities import MediaKind, format_capabilities
from antiphon.wire.capabilities.accepted_media import ALL_KINDS, fit_medium
from antiphon.wire.loss import Loss, foreign_block, lose_native
from antiphon.wire.readable import readable_parts, transcribe
from antiphon.wire.tool_calls import EMPTY_ARGUMENTS, IdMapper, raw_json_object, report_raw_arguments
from antiphon.wire.vendors.anthropic import CacheBreakpoints, block_type, unread_fields, with_cache_control

CALL_IDS = IdMapper(lambda: rf"(?=.{{1,64}}\Z){format_capabilities(FORMAT).tool_id_pattern}", prefix="toolu_")
"""Ids of the format's pattern (AN-11), of at most 64 characters, which every host accepts."""

_encode = msgspec.json.Encoder().encode
SUCCESS, FAILED = ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED
_SURROGATES = re.compile("[\ud800-\udfff]")
_TEXT_FIELDS = frozenset({"type", "text"})
_THINKING_FIELDS = frozenset({"type", "thinking", "signature"})
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_RESULT_FIELDS = frozenset({"type", "tool_use_id", "content", "is_error"})


def read_text(block: dict[str, Any]) -> Text | None:
    text = block.get("text")
    return Text(text, native=unread_fields(block, _TEXT_FIELDS)) if type(text) is str else None


def read_thinking(block: dict[str, Any]) -> Thinking | None:
    text, signature = block.get("thinking"), block.get("signature")
    if type(text) is not str or (signature is not None and type(signature) is not str):
        return None
    native = unread_fields(block, _THINKING_FIELDS)
    if signature:
        native = {FORMAT: {"signature": signature, **(native[FORMAT] if native else {})}}
    return Thinking(text, native=native)


def read_call(block: dict[str, Any]) -> ToolCallRequest | None:
    call_id, name, value = block.get("id"), block.get("name"), block.get("input")
    if type(call_id) is not str or type(name) is not str:
        return None
    if type(value) is str:
        arguments = value  # some proxies do not parse it
    elif value:
        try:
            arguments = _encode(value).decode()
        except (RecursionError, UnicodeError):
            return None
    else:
        arguments = "{}"
    return ToolCallRequest(name, call_id, arguments, native=unread_fields(block, _CALL_FIELDS))


def read_result(block: dict[str, Any]) -> ToolCallResult | None:
    call_id, content_value, failed = block.get("tool_use_id"), block.get("content"), block.get("is_error")
    if type(call_id) is not str or (failed is not None and type(failed) is not bool):
        return None
    content: tuple[ResultPart, ...]
    if type(content_value) is str:
        content = (Text(content_value),)
    elif content_value is None:
        content = ()
    elif type(content_value) is list:
        content = tuple([read_result_part(part) for part in content_value])
    else:
        return None
    status = FAILED if failed else SUCCESS
    return ToolCallResult("", call_id, status, content, native=unread_fields(block, _RESULT_FIELDS))


def read_result_part(block: Any) -> ResultPart:
    part = read_block(block)
    return part if isinstance(part, Text | Image | Document) else Native(FORMAT, block)


_READERS: dict[str, Callable[[dict[str, Any]], Part | None]] = {
    "text": read_text,
    "tool_use": read_call,
    "tool_result": read_result,
    "thinking": read_thinking,
    "image": read_image,
    "document": read_document,
}


def read_block(block: Any) -> Part:
    """A block of a request as a part; `Native` if it is unknown or malformed."""
    kind = block.get("type") if type(block) is dict else None
    reader = _READERS.get(kind) if type(kind) is str else None
    return (reader(block) if reader is not None else None) or Native(FORMAT, block)


def read_output_block(block: Any) -> Text | Thinking | ToolCallRequest | Native:
    """A block of a response as a part: text, thinking or a call; any other block is `Native`."""
    part = read_block(block)
    return part if isinstance(part, Text | Thinking | ToolCallRequest) else Native(FORMAT, block)


def input_from_arguments(call: ToolCallRequest) -> Any:
    """The arguments of a call as the value of `input`; None if they are not a valid object."""
    text = call.arguments
    if call.freeform:
        return {"input": text}
    if text in EMPTY_ARGUMENTS:
        return {}
    return raw_json_object(text)


def repair_input(call: ToolCallRequest, path: str, losses: list[Loss]) -> Any:
    """Invalid arguments as the value of `input`."""
    text = call.arguments
    if text.strip() in EMPTY_ARGUMENTS:
        return {}
    try:
        value = json.loads(text)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False) if type(value) is dict else ""
    except (ValueError, RecursionError):
        written = ""
    if written:
        losses.append(
            Loss(f"{path}.arguments", "characters", "Anthropic rejects lone surrogates; sent replacement characters")
        )
        return msgspec.Raw(_SURROGATES.sub("\ufffd", written))
    report_raw_arguments(losses, path, "AN-12")
    return {"_raw": _SURROGATES.sub("\ufffd", text)}


EMPTY_RESULT_TEXT = "(no output)"
_legal_id = CALL_IDS.to_wire


class CallBlock(Struct, gc=False, tag="tool_use", tag_field="type"):
    """A call without extras. A struct is faster to build and encode than a dictionary."""

    id: str
    name: str
    input: Any


class ResultBlock(Struct, gc=False, tag="tool_result", tag_field="type"):
    """A text result without extras."""

    tool_use_id: str
    content: str


def collapse_text(write: list[Any]) -> Any:
    """A single text block without extras as a string."""
    if len(write) == 1:
        only = write[0]
        if type(only) is dict and len(only) == 2 and only.get("type") == "text" and type(only.get("text")) is str:
            return only["text"]
    return write


def build_block(part: Text | Refusal | Thinking | ToolCallRequest, value: Any, name: str = "") -> dict[str, Any]:
    """The block of a part with `value` as its text or input; a stream starts it empty. `name` is that of the tool."""
    if isinstance(part, ToolCallRequest):
        return {"type": "tool_use", "id": _legal_id(part.tool_call_id), "name": name or part.tool_name, "input": value}
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": value, "signature": ""}
    return {"type": "text", "text": value}


def report_unsupported(part: OutputPart, path: str, losses: list[Loss]) -> None:
    """Report a part that a response cannot have."""
    if isinstance(part, Native):
        losses.append(foreign_block(path, "block", part.origin))
    else:
        kind = type(part).__name__.lower()
        losses.append(Loss(path, kind, f"Anthropic does not support {kind} in a response; dropped"))


class ContentWriter:
    """Writes the parts of a request. Tracks what the whole body needs: cache breakpoints, and whether citations are enabled."""

    def __init__(self, target: Target, losses: list[Loss]) -> None:
        self.cache_breakpoints: CacheBreakpoints = []
        self.citations_enabled = False
        self.argument_writers: dict[str, Callable[[str], str]] = {}
        """By the name of a tool whose schema is sent with other property names than declared."""
        self._target = target
        self._losses = losses

    def call(self, part: ToolCallRequest, index: int, position: int) -> CallBlock | dict[str, Any]:
        if part.tool_name in self.argument_writers and not part.freeform:
            part = structs.replace(part, arguments=self.argument_writers[part.tool_name](part.arguments))
        value = input_from_arguments(part)
        if value is None:
            value = repair_input(part, part_path(index, position), self._losses)
        name = NAMES.to_wire(part.tool_name)
        if part.native is None:
            return CallBlock(_legal_id(part.tool_call_id), name, value)
        block = build_block(part, value, name)
        self.extend(block, part.native, part_path(index, position))
        return block

    def add_result(self, blocks: list[Any], result: ToolCallResult, index: int, position: int) -> None:
        """Append the block of a result, and after it the media a failed result cannot have (AN-15)."""
        parts = result.content
        failed = result.status is not SUCCESS and result.status != SUCCESS
        text = parts[0] if len(parts) == 1 else None
        if type(text) is Text and text.native is None and result.native is None and not failed:
            blocks.append(ResultBlock(_legal_id(result.tool_call_id), text.text))
            return
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _legal_id(result.tool_call_id)}
        blocks.append(block)
        if type(text) is Text and text.native is None:
            block["content"] = text.text
        elif parts:
            content: list[Any] = []
            for number, part in enumerate(parts):
                for inner in self._write_result_part(part, f"{part_path(index, position)}.content[{number}]"):
                    (blocks if failed and block_type(inner) != "text" else content).append(inner)
            if content:
                block["content"] = collapse_text(content)
        if failed:
            block["content"] = block.get("content") or EMPTY_RESULT_TEXT
            block["is_error"] = True
        if result.native is not None:
            self.extend(block, result.native, part_path(index, position))

    def _write_result_part(self, part: Part, path: str) -> list[Any]:
        match part:
            case Text() if not part.text:
                self.report_dropped_extras(part.native, path, "its text is empty and was dropped (AN-18)")
            case Text():
                block: dict[str, Any] = {"type": "text", "text": part.text}
                if part.native is not None:
                    self.extend(block, part.native, path)
                return [block]
            case Image() | Document() | Audio():
                return self._write_media(part, path)
            case Native():
                return self._write_native(part, path)
            case _:
                self._losses.append(Loss(path, "block", "not allowed in a tool result; dropped"))
        return []

    def write(self, part: Part, role: str, path: str) -> list[Any]:
        """The block of a part that is not a call or a result; empty if it is dropped."""
        part = transcribe(part, self._losses, path)
        match part:
            case Text():
                return self._write_text(part.text, part.native, role, path)
            case Thinking():
                return self._write_thinking(part, path)
            case Document() if role == "assistant" and self._target.is_version_2026_10:
                self._losses.append(
                    Loss(
                        path,
                        "document",
                        "API version 2026-10-21 does not support documents in assistant messages; dropped (AN-28)",
                    )
                )
            case Image() | Document():
                return self._write_media(part, path, role)
            case Audio() if role != "assistant":
                return self._write_media(part, path)
            case Native():
                return self._write_native(part, path)
            case Refusal():
                self._losses.append(Loss(path, "refusal", "Anthropic has no refusals in the history; sent as text"))
                return self._write_text(part.text, part.native, role, path)
            case _:
                self._losses.append(Loss(path, "audio", "Anthropic does not support audio; dropped"))
        return []

    def system_blocks(self, parts: tuple[Part, ...], index: int) -> list[Any]:
        """The blocks of a system message: text and native blocks."""
        blocks: list[Any] = []
        for position, part in enumerate(parts):
            path = part_path(index, position)
            if isinstance(part, Text | Refusal):
                blocks += self._write_text(part.text, part.native, "system", path)
            elif isinstance(part, Native):
                blocks += self._write_native(part, path)
            else:
                self._losses.append(
                    Loss(
                        path,
                        type(part).__name__.lower(),
                        "Anthropic accepts only text in a system message; dropped (AN-26)",
                    )
                )
        return blocks

    def _write_text(self, text: str, native: NativeExtras | None, role: str, path: str) -> list[Any]:
        if is_blank(text):
            self.report_dropped_extras(native, path, "its text is blank and was dropped (AN-05)")
            return []
        block: dict[str, Any] = {"type": "text", "text": text}
        if native is not None:
            self.extend(block, native, path)
            if self._target.is_version_2026_10 and role == "user" and block.pop("citations", None) is not None:
                reason = "API version 2026-10-21 does not support citations in user messages; dropped (AN-28)"
                self._losses.append(Loss(f"{path}.citations", "citations", reason))
        return [block]

    def _write_thinking(self, part: Thinking, path: str) -> list[Any]:
        extras = part.native.get(FORMAT) if part.native else None
        if part.native is None or not extras or not extras.get("signature"):
            self._losses.append(
                Loss(path, "thinking", "thinking without an Anthropic signature is rejected; dropped (AN-20)")
            )
            return []
        block = build_block(part, part.text)
        self.extend(block, part.native, path)
        if "cache_control" in block:
            del block["cache_control"]
            self.cache_breakpoints.pop()
            self._losses.append(
                Loss(
                    f"{path}.cache_control", "cache_control", "thinking cannot have a cache breakpoint; dropped (AN-18)"
                )
            )
        return [block]

    def _write_media(self, medium: Image | Document | Audio, path: str, role: str = "user") -> list[Any]:
        # A model's own media of other types are dropped without a note, which would be text that the model did not write.
        any_type = ALL_KINDS if role == "assistant" else frozenset[MediaKind]()
        part = fit_medium(medium, self._target.model, self._losses, path, any_type)
        if isinstance(part, Text):
            return self._write_text(part.text, part.native, role, path)
        if isinstance(part, Image):
            block = write_image(
                part, path, self._losses, self._target.model, accepts_urls=not self._target.is_on_bedrock
            )
        else:
            block = write_document(part, path, self._losses)
        if block is None:
            return []
        if part.native is not None:
            self.extend(block, part.native, path)
        return [block]

    def _write_native(self, part: Native, path: str) -> list[Any]:
        """A block of this format unchanged, one of another as text."""
        fitted = fit_medium(part, self._target.model, self._losses, path)
        if fitted is not part:
            return self._write_text(fitted.text, None, "user", path)
        block = part.data
        if part.origin != FORMAT:
            carried = readable_parts(part, self._losses, path, "Anthropic")
            return [block for readable in carried for block in self.write(readable, "", path)]
        if type(block) is dict:
            self._track_citations(block)
            if "cache_control" in block:
                block = dict(block)
                self.cache_breakpoints.append((block, path))
        return [block]

    def extend(self, block: dict[str, Any], native: NativeExtras, path: str) -> None:
        """Add the native extras to a block; report those of other formats."""
        for origin, extras in with_cache_control(native).items():
            if origin != FORMAT:
                lose_native(self._losses, path, {origin: extras})
                continue
            block.update(extras)
            if "cache_control" in extras:
                self.cache_breakpoints.append((block, path))
            if "citations" in extras:
                self._track_citations(block)

    def mark_block(self, block: Any, cache_control: dict[str, Any], path: str) -> Any:
        """A block with a cache breakpoint, unless it has one."""
        if can_be_marked(block) and not (type(block) is dict and "cache_control" in block):
            block = with_breakpoint(block, cache_control)
            self.cache_breakpoints.append((block, path))
        return block

    def _track_citations(self, block: dict[str, Any]) -> None:
        citations = block.get("citations")
        self.citations_enabled = self.citations_enabled or (
            type(citations) is dict and citations.get("enabled") is True
        )

    def report_dropped_extras(self, native: NativeExtras | None, path: str, reason: str) -> None:
        if native:
            lose_native(self._losses, path, native, FORMAT)
            self._losses.extend(Loss(f"{path}.{name}", name, reason) for name in native.get(FORMAT, ()))

    def replace_text(self, block: dict[str, Any], text: str) -> dict[str, Any]:
        """A copy of a block with another text. A marked one was written recently, so its breakpoint is near the end."""
        replaced = {**block, "text": text}
        places = range(len(self.cache_breakpoints) - 1, -1, -1) if "cache_control" in block else ()
        for place in places:
            marked, path = self.cache_breakpoints[place]
            if marked is block:
                self.cache_breakpoints[place] = (replaced, path)
                break
        return replaced


def part_path(index: int, position: int) -> str:
    """The path of a part in the request."""
    return f"messages[{index}].parts[{position}]"
