"""Parts of a request, written as blocks.

`BlockWriter` knows one part at a time and what the whole body must know of the blocks: which carry cache marks, and whether a
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
from antiphon.wire.anthropic.blocks import kind_of
from antiphon.wire.anthropic.caching import Marks
from antiphon.wire.anthropic.content import IDS, mended_input, plain_input
from antiphon.wire.anthropic.media import write_document, write_image
from antiphon.wire.anthropic.native import FORMAT
from antiphon.wire.anthropic.target import Target
from antiphon.wire.anthropic.tools import NAMES
from antiphon.wire.loss import Loss, lose_native

NO_OUTPUT = "(no output)"

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


def plain(blocks: list[Any]) -> Any:
    """One text that says nothing but its words is a string."""
    if len(blocks) == 1:
        only = blocks[0]
        if type(only) is dict and len(only) == 2 and only.get("type") == "text" and type(only.get("text")) is str:
            return only["text"]
    return blocks


class BlockWriter:
    """Parts in, blocks out."""

    def __init__(self, target: Target, losses: list[Loss]) -> None:
        self.marks: Marks = []
        self.cites = False
        self._target = target
        self._losses = losses

    def call(self, part: ToolCallRequest, index: int, position: int) -> CallBlock | dict[str, Any]:
        given = plain_input(part)
        if given is None:
            given = mended_input(part, path_of(index, position), self._losses)
        name = NAMES.to_wire(part.tool_name)
        if part.native is None:
            return CallBlock(_legal_id(part.tool_call_id), name, given)
        block = {"type": "tool_use", "id": _legal_id(part.tool_call_id), "name": name, "input": given}
        self.extend(block, part.native, path_of(index, position))
        return block

    def add_result(self, blocks: list[Any], result: ToolCallResult, index: int, position: int) -> None:
        """Append the block of a result, and those that may not stand in it."""
        parts = result.content
        failed = result.status is not _SUCCESS and result.status != _SUCCESS
        said = parts[0] if len(parts) == 1 else None
        if type(said) is Text and said.native is None and result.native is None and not failed:
            blocks.append(ResultBlock(_legal_id(result.tool_call_id), said.text))
            return
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _legal_id(result.tool_call_id)}
        blocks.append(block)
        if type(said) is Text and said.native is None:
            block["content"] = said.text
        elif parts:
            content: list[Any] = []
            for place, part in enumerate(parts):
                for inner in self._result_part(part, f"{path_of(index, position)}.content[{place}]"):
                    (blocks if failed and kind_of(inner) != "text" else content).append(inner)
            if content:
                block["content"] = plain(content)
        if failed:
            block["content"] = block.get("content") or NO_OUTPUT
            block["is_error"] = True
        if result.native is not None:
            self.extend(block, result.native, path_of(index, position))

    def _result_part(self, part: Part, path: str) -> list[Any]:
        match part:
            case Text() if not part.text:
                self.lose_all(part.native, path, "the text it is on is empty, and was left out (AN-18)")
            case Text():
                block: dict[str, Any] = {"type": "text", "text": part.text}
                if part.native is not None:
                    self.extend(block, part.native, path)
                return [block]
            case Image() | Document():
                return self._media(part, path)
            case Native():
                return self._native(part, path)
            case Audio():
                self._losses.append(Loss(path, "audio", "sound is not taken"))
            case _:
                self._losses.append(Loss(path, "block", "the result of a tool cannot hold it"))
        return []

    def blocks(self, part: Part, role: str, path: str) -> list[Any]:
        """The block of any part but a call or a result, or none."""
        match part:
            case Text():
                return self._text(part.text, part.native, role, path)
            case Thinking():
                return self._thinking(part, path)
            case Document() if role == "assistant" and self._target.is_new:
                self._losses.append(Loss(path, "document", "an answer holds no documents in this version (AN-28)"))
            case Image() | Document():
                return self._media(part, path)
            case Native():
                return self._native(part, path)
            case Refusal():
                self._losses.append(Loss(path, "refusal", "a refusal in the history is plain text here"))
                return self._text(part.text, part.native, role, path)
            case _:
                self._losses.append(Loss(path, "audio", "sound is not taken"))
        return []

    def system_blocks(self, parts: tuple[Part, ...], index: int) -> list[Any]:
        """The blocks of a system message, which holds text and what only this format knows."""
        blocks: list[Any] = []
        for position, part in enumerate(parts):
            path = path_of(index, position)
            if isinstance(part, Text | Refusal):
                blocks += self._text(part.text, part.native, "system", path)
            elif isinstance(part, Native):
                blocks += self._native(part, path)
            else:
                self._losses.append(Loss(path, type(part).__name__.lower(), "a system message is text (AN-26)"))
        return blocks

    def _text(self, text: str, native: NativeExtras | None, role: str, path: str) -> list[Any]:
        if is_blank(text):
            self.lose_all(native, path, "the text it is on is blank, and was left out (AN-05)")
            return []
        block: dict[str, Any] = {"type": "text", "text": text}
        if native is not None:
            self.extend(block, native, path)
            if self._target.is_new and role == "user" and block.pop("citations", None) is not None:
                why = "the text of a user has no citations in this version (AN-28)"
                self._losses.append(Loss(f"{path}.citations", "citations", why))
        return [block]

    def _thinking(self, part: Thinking, path: str) -> list[Any]:
        extras = part.native.get(FORMAT) if part.native else None
        if part.native is None or not extras or not extras.get("signature"):
            self._losses.append(Loss(path, "thinking", "only thinking that Anthropic signed is taken back (AN-20)"))
            return []
        block: dict[str, Any] = {"type": "thinking", "thinking": part.text, "signature": ""}
        self.extend(block, part.native, path)
        if "cache_control" in block:
            del block["cache_control"]
            self.marks.pop()
            self._losses.append(Loss(f"{path}.cache_control", "cache_control", "thinking takes no mark (AN-18)"))
        return [block]

    def _media(self, part: Image | Document, path: str) -> list[Any]:
        if isinstance(part, Image):
            block = write_image(part, path, self._losses, takes_urls=not self._target.is_on_bedrock)
        else:
            block = write_document(part, path, self._losses)
        if block is None:
            return []
        if part.native is not None:
            self.extend(block, part.native, path)
        return [block]

    def _native(self, part: Native, path: str) -> list[Any]:
        """A block of this format, as it came."""
        block = part.data
        if part.origin != FORMAT:
            self._losses.append(Loss(path, kind_of(block) or "block", f"only {part.origin} understands it"))
            return []
        if type(block) is dict:
            self._note_citations(block)
            if "cache_control" in block:
                block = dict(block)
                self.marks.append((block, path))
        return [block]

    def extend(self, block: dict[str, Any], native: NativeExtras, path: str) -> None:
        """Add to a block what this format says beside its part; what others say is lost."""
        for origin, extras in native.items():
            if origin != FORMAT:
                lose_native(self._losses, path, {origin: extras})
                continue
            block.update(extras)
            if "cache_control" in extras:
                self.marks.append((block, path))
            if "citations" in extras:
                self._note_citations(block)

    def _note_citations(self, block: dict[str, Any]) -> None:
        citations = block.get("citations")
        self.cites = self.cites or (type(citations) is dict and citations.get("enabled") is True)

    def lose_all(self, native: NativeExtras | None, path: str, why: str) -> None:
        if native:
            lose_native(self._losses, path, native, FORMAT)
            self._losses.extend(Loss(f"{path}.{name}", name, why) for name in native.get(FORMAT, ()))

    def reworded(self, block: dict[str, Any], text: str) -> dict[str, Any]:
        """The same block, not the same object, with another text."""
        reworded = {**block, "text": text}
        self.marks[:] = [(reworded if marked is block else marked, path) for marked, path in self.marks]
        return reworded


def path_of(index: int, position: int) -> str:
    """Where a part is in the request."""
    return f"messages[{index}].parts[{position}]"
