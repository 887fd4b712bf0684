"""ShareGPT, in the layout that LLaMA-Factory documents and other trainers read: `conversations` of `from` and `value`.

`human` and `observation` stand at odd positions, `gpt` and `function_call` at even ones. So neighbours of one side are joined,
the results of one answer are one observation, and an answer is text or calls: text beside calls has no place and is reported.
Reasoning stands in `<think>` at the start of a value. `system` and `tools` (JSON text) are fields of their own. Media are files,
named in `images` and `audios` in the order of their `<image>` and `<audio>` marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.text import one_line, shorten
from antiphon.wire.request import Message, ToolDefinition
from antiphon_devtools.trajectories.media_files import MediaFolder
from antiphon_devtools.trajectories.selection import Trajectory
from antiphon_devtools.trajectories.tool_definitions import definitions_for
from antiphon_devtools.trajectories.turn_messages import messages_by_turn

_OTHER_SIDE = ("human", "observation")


class _Media(Struct):
    """The files that the marks of an item stand for, in their order."""

    images: list[str] = field(default_factory=list)
    audios: list[str] = field(default_factory=list)


class _Item(Struct):
    sender: str
    value: str
    media: _Media


class _ExampleWriter:
    """Collects the items of one example."""

    def __init__(self, media: MediaFolder) -> None:
        self.items: list[_Item] = []
        self.system = ""
        self.notes: list[str] = []
        self._folder = media
        self._pending = _Media()  # of the item in the making

    def add(self, message: Message, where: str) -> None:
        if message.role in ("system", "developer") and not self.items:
            self._add_system(message, where)
        elif message.role == "assistant":
            self._add_answer(message, where)
        elif results := [part for part in message.parts if isinstance(part, ToolCallResult)]:
            self._append("observation", self._observation(results, where), where)
        elif text := self._text(message.parts, where):
            if message.role != "user":
                self.notes.append(
                    f"{where}: {message.role} message written as human: only the first has a field of its own"
                )
            self._append("human", text, where)

    def conversation(self) -> list[_Item]:
        """The items, from the first question to the last answer."""
        first = next((index for index, item in enumerate(self.items) if item.sender == "human"), len(self.items))
        for item in self.items[:first]:
            self.notes.append(
                f"lost the {item.sender} item before the first question: a conversation starts with human"
            )
        items = self.items[first:]
        while items and items[-1].sender in _OTHER_SIDE:
            items.pop()
        return items

    def _add_system(self, message: Message, where: str) -> None:
        text = self._text(message.parts, where)
        self.system = f"{self.system}\n\n{text}" if self.system else text

    def _add_answer(self, message: Message, where: str) -> None:
        calls = [part for part in message.parts if isinstance(part, ToolCallRequest)]
        thoughts = "".join(
            self._without_marks(part.text, where) for part in message.parts if isinstance(part, Thinking)
        )
        text = self._text([part for part in message.parts if not isinstance(part, Thinking | ToolCallRequest)], where)
        thought = f"<think>\n{thoughts}\n</think>\n\n" if thoughts else ""
        if not calls:
            if text or thought:
                self._append("gpt", thought + text, where)
            return
        if text:
            self.notes.append(f"{where}: lost text beside calls: {_shortened(text)}: an item is text or calls")
        written = [self._call(call, where) for call in calls]
        value = msgspec.json.encode(written[0] if len(written) == 1 else written).decode()
        self._append("function_call", thought + self._without_marks(value, where), where)

    def _call(self, call: ToolCallRequest, where: str) -> dict[str, Any]:
        try:
            arguments = call.arguments_object()
        except ValueError as error:
            self.notes.append(f"{where}: lost call {call.tool_call_id}: {error}; exported under _raw")
            arguments = {"_raw": call.arguments}
        return {"name": call.tool_name, "arguments": arguments}

    def _observation(self, results: Sequence[ToolCallResult], where: str) -> str:
        texts = [self._text(result.content, where) for result in results]
        return texts[0] if len(texts) == 1 else msgspec.json.encode(texts).decode()

    def _append(self, sender: str, value: str, where: str) -> None:
        """Add an item, or join it with its neighbour of the same side."""
        last = self.items[-1] if self.items else None
        media, self._pending = self._pending, _Media()
        if last is None or (last.sender in _OTHER_SIDE) != (sender in _OTHER_SIDE):
            self.items.append(_Item(sender, value, media))
        elif sender == "function_call":  # after text of the same turn, without results in between
            self.notes.append(f"{where}: lost text beside calls: {_shortened(last.value)}: an item is text or calls")
            self.items[-1] = _Item(sender, value, media)
        else:
            last.value = f"{last.value}\n\n{value}"
            last.media.images += media.images
            last.media.audios += media.audios

    def _text(self, parts: Sequence[Part], where: str) -> str:
        return "\n".join(text for part in parts if (text := self._part(part, where)))

    def _part(self, part: Part, where: str) -> str:
        if isinstance(part, Text | Refusal) or (isinstance(part, Document) and part.text):
            return self._without_marks(part.text, where)
        if isinstance(part, Image | Audio):
            stored = self._folder.store(part)
            kind = type(part).__name__.lower()
            if isinstance(stored, str):
                self.notes.append(f"{where}: lost {kind}: {stored}")
                return ""
            (self._pending.images if kind == "image" else self._pending.audios).append(stored.path)
            return f"<{kind}>"
        what = f"{part.origin} block" if isinstance(part, Native) else type(part).__name__.lower()
        self.notes.append(f"{where}: lost {what}: a value is text")
        return ""

    def _without_marks(self, text: str, where: str) -> str:
        """Text that does not read as the mark of a file."""
        for mark in ("image", "audio"):
            if f"<{mark}>" in text:
                self.notes.append(f"{where}: changed <{mark}> in text to [{mark}]: it would stand for a file")
                text = text.replace(f"<{mark}>", f"[{mark}]")
        return text


def write_sharegpt(
    trajectory: Trajectory, definitions: Sequence[ToolDefinition], media: MediaFolder
) -> tuple[dict[str, Any] | None, list[str]]:
    """The example of a trajectory, or None if no question in it has an answer; and what could not be carried."""
    writer = _ExampleWriter(media)
    copied = False
    for each in messages_by_turn(trajectory):
        where = f"turn {each.turn.number}"
        copied = copied or each.turn.is_copied
        writer.notes += (f"{where}: {note}" for note in each.notes)
        for message in each.messages:
            writer.add(message, where)
    items = writer.conversation()
    if copied:
        writer.notes.append("turns that another line has are repeated here; ShareGPT cannot mark them as context")
    if not items:
        return None, writer.notes
    example: dict[str, Any] = {"id": trajectory.id} if trajectory.id else {}
    example["conversations"] = [{"from": item.sender, "value": item.value} for item in items]
    if writer.system:
        example["system"] = writer.system
    tools, inferred = definitions_for(trajectory, definitions)
    if tools:
        example["tools"] = msgspec.json.encode(list(map(_definition, tools))).decode()
    for name in ("images", "audios"):
        if paths := [path for item in items for path in getattr(item.media, name)]:
            example[name] = paths
    return example, [*writer.notes, *inferred]


def _definition(tool: ToolDefinition) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    if tool.freeform:
        parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return {"name": tool.name, "description": tool.description or "", "parameters": parameters}


def _shortened(text: str) -> str:
    return repr(shorten(one_line(text), 40))
