"""Writes streams of the Interactions API.

Every part is a step, because a delta does not name the content of a step that it belongs to. Text and arguments come in pieces,
everything else whole in its `step.start` or in one delta. `interaction.completed` has the status and the usage, and `[DONE]` ends
the stream. `event_id` is the position of an event, from which a client may ask for the rest.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Native, Refusal, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, Started, merged
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import STEP, StepWriter, step_fields
from antiphon.wire.gemini_interactions.errors import error_object
from antiphon.wire.gemini_interactions.response import SINGLE_CANDIDATE, interaction, to_interaction_id
from antiphon.wire.loss import Loss, Losses, own_extras
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.writer import ItemWriter, OpenPart

_encode = msgspec.json.Encoder().encode
DONE = b"event: done\ndata: [DONE]\n\n"


class _Part(OpenPart):
    """An open part, the index of its step, and whether it has text."""

    step: int = -1


class StreamWriter(ItemWriter[_Part]):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _part_type = _Part
    _single_candidate = SINGLE_CANDIDATE
    _number_field = "event_id"

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._steps = 0

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        self._send(kind, {**fields, "event_type": kind, "event_id": str(self._number)})

    def _on_start(self, started: Started) -> None:
        if started.created is None and started.format != FORMAT:
            started = structs.replace(started, created=int(time.time()))
        self._started = started
        self._id = to_interaction_id(started.id, started.format)
        self._emit("interaction.created", {"interaction": self._interaction(Finished(""), [])})
        self._emit("interaction.status_update", {"interaction_id": self._id, "status": "in_progress"})

    def _interaction(self, finished: Finished, losses: list[Loss]) -> dict[str, Any]:
        """The object without steps, with the fields of its start."""
        return {**interaction(self._object(finished), None, losses), "id": self._id}

    def _start_step(self, step: Any) -> int:
        self._emit("step.start", {"index": self._steps, STEP: step})
        self._steps += 1
        return self._steps - 1

    def _delta(self, step: int, delta: Any) -> None:
        self._emit("step.delta", {"index": step, "delta": delta})

    def _on_part(self, part: _Part) -> None:
        given = part.part
        if isinstance(given, Thinking):
            step: dict[str, Any] = {"type": "thought"}
        elif isinstance(given, ToolCallRequest):
            call = StepWriter(Losses()).call(structs.replace(given, native=None, freeform=False))
            step = {**call, **own_extras(given.native, [], "", FORMAT)}
        else:
            if isinstance(given, Refusal):
                StepWriter(self.losses).report_refusal()
            step = {"type": "model_output", **(step_fields(given) or {})}
        part.step = self._start_step(step)

    def _on_whole(self, part: _Part) -> None:
        """A medium, or a step of Google's tools."""
        given = part.whole()
        steps: list[Any] = []
        StepWriter(self.losses).model_steps((given,), steps, part.index)
        for step in steps:
            contents = step.get("content") if isinstance(step, dict) and not isinstance(given, Native) else None
            if isinstance(contents, list):
                step = {name: value for name, value in step.items() if name != "content"}
            index = self._start_step(step)
            for content in contents if isinstance(contents, list) else ():
                self._delta(index, content)
            self._emit("step.stop", {"index": index})

    def _on_text(self, part: _Part, text: str) -> None:
        given = part.part
        if type(given) is Thinking:
            self._delta(part.step, {"type": "thought_summary", "content": {"type": "text", "text": text}})
        elif type(given) is not ToolCallRequest:
            self._delta(part.step, {"type": "text", "text": text})
        elif given.freeform:
            part.pieces.append(text)  # it is not JSON, and becomes a string in an object
        else:
            self._delta(part.step, {"type": "arguments_delta", "arguments": text})

    def _on_part_end(self, part: _Part) -> None:
        given = part.part
        gained = self.losses.take_extras(merged(given.native, *part.gained), FORMAT)
        if isinstance(given, ToolCallRequest):
            if given.freeform:
                arguments = _encode({"input": part.text}).decode()
                self._delta(part.step, {"type": "arguments_delta", "arguments": arguments})
        elif isinstance(given, Thinking):
            for content in gained.get("summary") or ():
                if not (isinstance(content, dict) and content.keys() == {"type", "text"}):
                    self._delta(part.step, {"type": "thought_summary", "content": content})
            if gained.get("signature") is not None:
                self._delta(part.step, {"type": "thought_signature", "signature": gained["signature"]})
        else:
            if not part.has_text:
                self._delta(part.step, {"type": "text", "text": ""})  # a step without content is not a text
            if gained.get("annotations"):
                self._delta(part.step, {"type": "text_annotation_delta", "annotations": gained["annotations"]})
        self._emit("step.stop", {"index": part.step})

    def _on_finish(self, finished: Finished) -> None:
        self._emit("interaction.completed", {"interaction": self._interaction(finished, self.losses)})
        self._out.append(DONE)

    def _on_error(self, error: ProviderError) -> None:
        self._emit("error", {"error": error_object(error)})
