"""Writes streams of the Interactions API.

Every part is a step, because a delta does not name the content of a step that it belongs to. Text and arguments come in pieces,
everything else whole in its `step.start` or in one delta. `interaction.completed` has the status and the usage, and `[DONE]` ends
the stream. `event_id` is the position of an event, from which a client may ask for the rest.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.parts import Native, NativeExtras, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, PartStarted, Started, merged
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import STEP, StepWriter, step_fields, write_model_steps
from antiphon.wire.gemini_interactions.errors import error_object
from antiphon.wire.gemini_interactions.response import SINGLE_CANDIDATE, interaction, to_interaction_id
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.streams.writer import ItemWriter, finished_output

_encode = msgspec.json.Encoder().encode
DONE = b"event: done\ndata: [DONE]\n\n"


class _Part(Struct):
    """An open part, the index of its step, and the extras it gained. `pieces` are kept where they are needed at its end."""

    part: Any
    index: int
    source: int
    natives: list[NativeExtras | None]
    is_buffered: bool = False
    pieces: list[str] = []


class StreamWriter(ItemWriter[_Part]):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _single_candidate = SINGLE_CANDIDATE
    _number_field = "event_id"

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._id = ""
        self._steps = 0

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        self._send(kind, {**fields, "event_type": kind, "event_id": str(self._number)})

    def _write_start(self, started: Started) -> None:
        if started.created is None and started.format != FORMAT:
            started = structs.replace(started, created=int(time.time()))
        self._started = structs.replace(started, model=self._model or started.model)
        self._id = to_interaction_id(started.id, started.format)
        body = self._interaction(ModelOutput(), [])
        self._emit("interaction.created", {"interaction": body})
        self._emit("interaction.status_update", {"interaction_id": self._id, "status": "in_progress"})

    def _interaction(self, output: ModelOutput, losses: list[Loss]) -> dict[str, Any]:
        """The object without steps, with the fields of its start."""
        complete = self._complete(output)
        return {**interaction(complete, None, losses), "id": self._id}

    def _start_part(self, started: PartStarted) -> None:
        part, source = started.part, started.index
        path = f"parts[{source}]"
        if isinstance(part, Text | Refusal):
            if isinstance(part, Refusal):
                StepWriter(self.losses).report_refusal(path)
            opened = self._open(part, source, {"type": "model_output", **(step_fields(part) or {})})
        elif isinstance(part, Thinking):
            opened = self._open(part, source, {"type": "thought"})
        elif isinstance(part, ToolCallRequest):
            step = StepWriter([]).call(structs.replace(part, arguments="", native=None, freeform=False), path)
            extras = own_extras(part.native, [], path, FORMAT)
            opened = self._open(part, source, {**step, **extras})
            opened.is_buffered = part.freeform  # its text is not JSON, and becomes a string in an object
        else:
            self._write_whole(part, path)
            return
        text = part.arguments if isinstance(part, ToolCallRequest) else part.text
        if text:
            self._append_text(opened.source, text)

    def _open(self, part: Any, source: int, step: dict[str, Any]) -> _Part:
        opened = self._parts[source] = _Part(part, self._steps, source, [part.native])
        self._steps += 1
        self._emit("step.start", {"index": opened.index, STEP: step})
        return opened

    def _write_whole(self, part: Any, path: str) -> None:
        """Write a part that does not grow: a medium, or a step of Google's tools."""
        steps: list[Any] = []
        first = len(self.losses)
        write_model_steps((part,), StepWriter(self.losses), steps, "")
        self.losses[first:] = [
            structs.replace(loss, path=path + loss.path.removeprefix("[0]")) for loss in self.losses[first:]
        ]
        for step in steps:
            index = self._steps
            self._steps += 1
            contents = step.get("content") if isinstance(step, dict) else None
            if isinstance(part, Native) or not isinstance(contents, list):
                self._emit("step.start", {"index": index, STEP: step})
            else:
                shell = {name: value for name, value in step.items() if name != "content"}
                self._emit("step.start", {"index": index, STEP: shell})
                for content in contents:
                    self._emit("step.delta", {"index": index, "delta": content})
            self._emit("step.stop", {"index": index})

    def _append_text(self, source: int, text: str) -> None:
        opened = self._parts.get(source)
        if opened is None or not text:
            return
        part = opened.part
        if isinstance(part, ToolCallRequest):
            opened.pieces.append(text)
            if not opened.is_buffered:
                self._delta(opened, {"type": "arguments_delta", "arguments": text})
        elif isinstance(part, Thinking):
            self._delta(opened, {"type": "thought_summary", "content": {"type": "text", "text": text}})
        else:
            opened.pieces = [text]
            self._delta(opened, {"type": "text", "text": text})

    def _delta(self, opened: _Part, delta: dict[str, Any]) -> None:
        self._emit("step.delta", {"index": opened.index, "delta": delta})

    def _end_part(self, source: int) -> None:
        opened = self._parts.pop(source, None)
        if opened is None:
            return
        part, path = opened.part, f"parts[{source}]"
        gained = dict(own_extras(merged(*opened.natives), self.losses, path, FORMAT))
        if isinstance(part, ToolCallRequest):
            if opened.is_buffered:
                whole = {"input": "".join(opened.pieces)}
                self._delta(opened, {"type": "arguments_delta", "arguments": _encode(whole).decode()})
        elif isinstance(part, Thinking):
            for content in gained.get("summary") or ():
                if not (isinstance(content, dict) and content.keys() == {"type", "text"}):
                    self._delta(opened, {"type": "thought_summary", "content": content})
            if gained.get("signature") is not None:
                self._delta(opened, {"type": "thought_signature", "signature": gained["signature"]})
        else:
            if not opened.pieces:
                self._delta(opened, {"type": "text", "text": ""})  # a step without content is not a text
            if gained.get("annotations"):
                self._delta(opened, {"type": "text_annotation_delta", "annotations": gained["annotations"]})
        self._emit("step.stop", {"index": opened.index})

    def _finish(self, finished: Finished) -> None:
        for source in list(self._parts):
            self._end_part(source)
        output = finished_output(finished)
        self._emit("interaction.completed", {"interaction": self._interaction(output, self.losses)})
        self._out.append(DONE)

    def _fail(self, error: ProviderError) -> None:
        self._emit("error", {"error": error_object(error)})
