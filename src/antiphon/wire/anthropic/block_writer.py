"""Parts of a request, written as blocks.

`ContentWriter` knows one part at a time and what the whole body must know of the blocks: which carry cache marks, and whether a
document asks for citations. A part becomes one block, or none and a loss; a failed result may become several, because it holds
text only and pictures in it go behind it (AN-15).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    NativeExtras,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.anthropic.blocks import block_type
from antiphon.wire.anthropic.caching import CacheBreakpoints
from antiphon.wire.anthropic.content import IDS, input_from_arguments, repair_input
from antiphon.wire.anthropic.media import write_document, write_image
from antiphon.wire.anthropic.native import FORMAT
from antiphon.wire.anthropic.target import Capabilities
from antiphon.wire.anthropic.tools import NAMES
from antiphon.wire.loss import Loss, lose_native

EMPTY_RESULT_TEXT = "(no output)"

_SUCCESS = ToolExecutionStatus.SUCCESS
_legal_id = IDS.to_wire


class CallBlock(Struct, gc=False, tag="tool_use", tag_field="type"):
    """A call, as most are: made and encoded in less time than a dictionary."""

    id: str
    name: str
    input: Any


class ResultBlock(Struct, gc=False, tag="tool_result", tag_field="type"):
    """A result in words, as most are."""

    tool_use_id: str
    content: str


def is_blank(text: str) -> bool:
    return not text or text.isspace()


def collapse_text(write: list[Any]) -> Any:
    """One text that says nothing but its words is a string."""
    if len(write) == 1:
        only = write[0]
        if type(only) is dict and len(only) == 2 and only.get("type") == "text" and type(only.get("text")) is str:
            return only["text"]
    return write


class ContentWriter:
    """Parts in, blocks out."""

    def __init__(self, capabilities: Capabilities, losses: list[Loss]) -> None:
        self.cache_breakpoints: CacheBreakpoints = []
        self.citations_enabled = False
        self._capabilities = capabilities
        self._losses = losses

    def call(self, part: ToolCallRequest, index: int, position: int) -> CallBlock | dict[str, Any]:
        value = input_from_arguments(part)
        if value is None:
            value = repair_input(part, part_path(index, position), self._losses)
        name = NAMES.to_wire(part.tool_name)
        if part.native is None:
            return CallBlock(_legal_id(part.tool_call_id), name, value)
        block = {"type": "tool_use", "id": _legal_id(part.tool_call_id), "name": name, "input": value}
        self.extend(block, part.native, part_path(index, position))
        return block

    def add_result(self, blocks: list[Any], result: ToolCallResult, index: int, position: int) -> None:
        """Append the block of a result, and those that may not stand in it."""
        parts = result.content
        failed = result.status is not _SUCCESS and result.status != _SUCCESS
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
                self.report_dropped_extras(part.native, path, "the text it is on is empty, and was left out (AN-18)")
            case Text():
                block: dict[str, Any] = {"type": "text", "text": part.text}
                if part.native is not None:
                    self.extend(block, part.native, path)
                return [block]
            case Image() | Document():
                return self._write_media(part, path)
            case Native():
                return self._write_native(part, path)
            case Audio():
                self._losses.append(Loss(path, "audio", "sound is not taken"))
            case _:
                self._losses.append(Loss(path, "block", "the result of a tool cannot hold it"))
        return []

    def write(self, part: Part, role: str, path: str) -> list[Any]:
        """The block of any part but a call or a result, or none."""
        match part:
            case Text():
                return self._write_text(part.text, part.native, role, path)
            case Thinking():
                return self._write_thinking(part, path)
            case Document() if role == "assistant" and self._capabilities.is_version_2026_10:
                self._losses.append(Loss(path, "document", "an answer holds no documents in this version (AN-28)"))
            case Image() | Document():
                return self._write_media(part, path)
            case Native():
                return self._write_native(part, path)
            case Refusal():
                self._losses.append(Loss(path, "refusal", "a refusal in the history is plain text here"))
                return self._write_text(part.text, part.native, role, path)
            case _:
                self._losses.append(Loss(path, "audio", "sound is not taken"))
        return []

    def system_blocks(self, parts: tuple[Part, ...], index: int) -> list[Any]:
        """The blocks of a system message, which holds text and what only this format knows."""
        blocks: list[Any] = []
        for position, part in enumerate(parts):
            path = part_path(index, position)
            if isinstance(part, Text | Refusal):
                blocks += self._write_text(part.text, part.native, "system", path)
            elif isinstance(part, Native):
                blocks += self._write_native(part, path)
            else:
                self._losses.append(Loss(path, type(part).__name__.lower(), "a system message is text (AN-26)"))
        return blocks

    def _write_text(self, text: str, native: NativeExtras | None, role: str, path: str) -> list[Any]:
        if is_blank(text):
            self.report_dropped_extras(native, path, "the text it is on is blank, and was left out (AN-05)")
            return []
        block: dict[str, Any] = {"type": "text", "text": text}
        if native is not None:
            self.extend(block, native, path)
            if self._capabilities.is_version_2026_10 and role == "user" and block.pop("citations", None) is not None:
                why = "the text of a user has no citations in this version (AN-28)"
                self._losses.append(Loss(f"{path}.citations", "citations", why))
        return [block]

    def _write_thinking(self, part: Thinking, path: str) -> list[Any]:
        extras = part.native.get(FORMAT) if part.native else None
        if part.native is None or not extras or not extras.get("signature"):
            self._losses.append(Loss(path, "thinking", "only thinking that Anthropic signed is taken back (AN-20)"))
            return []
        block: dict[str, Any] = {"type": "thinking", "thinking": part.text, "signature": ""}
        self.extend(block, part.native, path)
        if "cache_control" in block:
            del block["cache_control"]
            self.cache_breakpoints.pop()
            self._losses.append(Loss(f"{path}.cache_control", "cache_control", "thinking takes no mark (AN-18)"))
        return [block]

    def _write_media(self, part: Image | Document, path: str) -> list[Any]:
        if isinstance(part, Image):
            block = write_image(part, path, self._losses, accepts_urls=not self._capabilities.is_on_bedrock)
        else:
            block = write_document(part, path, self._losses)
        if block is None:
            return []
        if part.native is not None:
            self.extend(block, part.native, path)
        return [block]

    def _write_native(self, part: Native, path: str) -> list[Any]:
        """A block of this format, as it came."""
        block = part.data
        if part.origin != FORMAT:
            self._losses.append(Loss(path, block_type(block) or "block", f"only {part.origin} understands it"))
            return []
        if type(block) is dict:
            self._track_citations(block)
            if "cache_control" in block:
                block = dict(block)
                self.cache_breakpoints.append((block, path))
        return [block]

    def extend(self, block: dict[str, Any], native: NativeExtras, path: str) -> None:
        """Add to a block what this format says beside its part; what others say is lost."""
        for origin, extras in native.items():
            if origin != FORMAT:
                lose_native(self._losses, path, {origin: extras})
                continue
            block.update(extras)
            if "cache_control" in extras:
                self.cache_breakpoints.append((block, path))
            if "citations" in extras:
                self._track_citations(block)

    def _track_citations(self, block: dict[str, Any]) -> None:
        citations = block.get("citations")
        self.citations_enabled = self.citations_enabled or (type(citations) is dict and citations.get("enabled") is True)

    def report_dropped_extras(self, native: NativeExtras | None, path: str, why: str) -> None:
        if native:
            lose_native(self._losses, path, native, FORMAT)
            self._losses.extend(Loss(f"{path}.{name}", name, why) for name in native.get(FORMAT, ()))

    def replace_text(self, block: dict[str, Any], text: str) -> dict[str, Any]:
        """The same block, not the same object, with another text."""
        replaced = {**block, "text": text}
        self.cache_breakpoints[:] = [(replaced if marked is block else marked, path) for marked, path in self.cache_breakpoints]
        return replaced


def part_path(index: int, position: int) -> str:
    """Where a part is in the request."""
    return f"messages[{index}].parts[{position}]"
