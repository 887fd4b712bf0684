"""Streams of the Interactions API, read; `stream_writer` writes them.

Events belong to the step at their `index`. A call or thought is one part, begun with its step; a `model_output` has a part for
its text and one for each medium, begun with their first delta. Steps of Google's tools are one `Native` part, given when whole,
at the index they had when they began. The arguments of a call are streamed as text, or whole in its `step.start`.

The usage and the object's own fields come from `interaction.completed`. Where that is missing, the last status counts if it is
one that ends an answer. `error` events and failed interactions are failures; unknown events and `[DONE]` are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, field

from antiphon.parts import Native, NativeExtras, Text, Thinking, TokenUsage
from antiphon.wire.delta import Finished, PartDelta, UsageReported
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.content import (
    SOURCE,
    STEP,
    STEP_FIELDS,
    THOUGHT_FIELDS,
    is_content_part,
    is_plain_text,
    read_answer_steps,
    read_call,
    read_value,
)
from antiphon.wire.gemini_interactions.errors import read_error
from antiphon.wire.gemini_interactions.response import (
    FAILED_STATUSES,
    interaction_extras,
    read_stop_reason,
    read_usage,
)
from antiphon.wire.loss import other_fields
from antiphon.wire.shared_google import parse_time
from antiphon.wire.streams.reader import CUT, ItemReader


class StreamEvent(Struct, gc=False):
    """The fields of an event that are read."""

    type: str | None = field(default=None, name="event_type")
    interaction: dict[str, Any] | None = None
    index: int | None = None
    step: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    status: Any = None
    usage: Any = None
    metadata: dict[str, Any] | None = None
    error: Any = None


class _Step(Struct):
    """An open step. `part` is the index of its open part, `place` the index of a part that is given when whole."""

    kind: str
    step: dict[str, Any]
    part: int | None = None
    place: int | None = None
    has_parts: bool = False
    has_arguments: bool = False
    summary: list[Any] = []
    is_done: bool = False


_encode = msgspec.json.Encoder().encode
_ENDING_STATUSES = ("completed", "requires_action", "incomplete", "budget_exceeded", "requires_continuation")
_SUMMARY = "summary"


class StreamReader(ItemReader[StreamEvent, _Step]):
    """Bytes of one stream in, deltas out."""

    _format = FORMAT

    def __init__(self) -> None:
        super().__init__(StreamEvent, _HANDLERS)
        self._status: Any = None
        self._usage: TokenUsage | None = None

    def _end_of_stream(self) -> None:
        if self._status in _ENDING_STATUSES:
            self._finish({"status": self._status})
        else:
            self._fail(CUT)

    def _read_created(self, fields: dict[str, Any]) -> int | None:
        return parse_time(fields.get("created"))

    def _on_status(self, event: StreamEvent) -> None:
        self._status = event.status

    def _open(self, key: int, item: dict[str, Any]) -> _Step:
        self._start(None)
        kind = item.get("type")
        opened = self._items[key] = self._last = _Step(kind if type(kind) is str else "", item)
        if kind == "function_call":
            call = read_call({**item, "arguments": {}})
            if call is not None:
                opened.part = self.parts.start(msgspec.structs.replace(call, arguments=""))
        elif kind == "thought":
            extras = other_fields(item, THOUGHT_FIELDS)
            opened.part = self.parts.start(Thinking(native={FORMAT: extras} if extras else None, source=SOURCE))
            for content in item[_SUMMARY] if type(item.get(_SUMMARY)) is list else ():
                self._add_summary(opened, content)
        elif kind == "model_output":
            for content in item["content"] if type(item.get("content")) is list else ():
                self._add_content(opened, content)
        if opened.part is None and kind != "model_output":
            opened.place = self.parts.reserve()
        return opened

    def _on_delta(self, event: StreamEvent) -> None:
        delta = event.delta
        kind = delta.get("type") if delta is not None else None
        if delta is None or type(kind) is not str:
            return
        if event.metadata is not None:
            self._read_usage(event.metadata.get("total_usage"))
        step = self._items.get(event.index)  # type: ignore[arg-type]  # None finds nothing
        if step is None:
            step = self._item_at(event.index, "thought" if kind.startswith("thought_") else "model_output")
        if step.is_done:
            return
        index = step.part
        if step.kind == "model_output":
            if kind == "text" and index is not None and len(delta) == 2 and type(delta.get("text")) is str:
                if delta["text"]:  # most events: plain text for the part that is open
                    self.parts.deltas.append(PartDelta(index, delta["text"]))
            else:
                self._add_content(step, delta)
        elif step.kind == "thought":
            self._add_thought(step, delta)
        elif index is None:
            step.step.update((name, value) for name, value in delta.items() if name != "type")
        elif kind == "arguments_delta" and type(delta.get("arguments")) is str:
            step.has_arguments = True
            self.parts.deltas.append(PartDelta(index, delta["arguments"]))

    def _add_content(self, step: _Step, content: Any) -> None:
        """More of a `model_output`: text, citations of it, or a medium."""
        kind = content.get("type") if type(content) is dict else None
        if kind == "text_annotation_delta":
            annotations = content.get("annotations")
            if step.part is not None and type(annotations) is list:
                self.parts.extend(step.part, {FORMAT: {"annotations": annotations}})
            return
        read = read_value(content)
        if isinstance(read, Text):
            if step.part is None:
                step.part = self.parts.start(Text("", native=self._step_native(step)))
                step.has_parts = True
            self.parts.text(step.part, read.text)
            self.parts.extend(step.part, read.native)
            return
        self._end_part(step)
        if isinstance(read, Native):
            read = Native(FORMAT, {"type": "model_output", "content": [content]})
        else:
            native = self._step_native(step)
            if native is not None:
                fields = {**(read.native or {}).get(FORMAT, {}), **native[FORMAT]}
                read = msgspec.structs.replace(read, native={**(read.native or {}), FORMAT: fields})
        step.has_parts = True
        self.parts.whole(read)

    def _step_native(self, step: _Step) -> NativeExtras | None:
        """The extras of the first part of a step, as for a whole answer."""
        if step.has_parts:
            return None
        fields = other_fields(step.step, STEP_FIELDS)
        return {FORMAT: {STEP: fields}} if fields or is_content_part(self.parts.last) else None

    def _add_thought(self, step: _Step, delta: dict[str, Any]) -> None:
        if delta["type"] == "thought_summary":
            self._add_summary(step, delta.get("content"))
        elif delta["type"] == "thought_signature" and delta.get("signature") is not None:
            assert step.part is not None, "a thought begins with its step"
            self.parts.extend(step.part, {FORMAT: {"signature": delta["signature"]}})

    def _add_summary(self, step: _Step, content: Any) -> None:
        assert step.part is not None, "a thought begins with its step"
        step.summary.append(content)
        read = read_value(content)
        if isinstance(read, Text):
            self.parts.text(step.part, read.text)

    def _on_stop(self, event: StreamEvent) -> None:
        self._read_usage(event.usage)
        step = self._items.get(event.index) if event.index is not None else self._last
        if step is not None:
            self._end_step(step)

    def _end_step(self, step: _Step) -> None:
        if step.is_done:
            return
        step.is_done = True
        if step.place is not None:
            self.parts.whole(Native(FORMAT, step.step), index=step.place)
            return
        if step.kind == "function_call" and step.part is not None and not step.has_arguments:
            arguments = step.step.get("arguments")
            if type(arguments) is dict and arguments:
                self.parts.text(step.part, _encode(arguments).decode())
        elif step.summary and step.part is not None and not all(map(is_plain_text, map(read_value, step.summary))):
            self.parts.extend(step.part, {FORMAT: {_SUMMARY: step.summary}})
        self._end_part(step)

    def _end_part(self, step: _Step) -> None:
        if step.part is not None:
            self.parts.end(step.part)
            step.part = None

    def _read_usage(self, raw: Any) -> None:
        self._usage = read_usage(raw) or self._usage

    def _on_completed(self, event: StreamEvent) -> None:
        interaction = event.interaction or {}
        status = interaction.get("status", self._status)
        if status in FAILED_STATUSES:
            errors = interaction.get("errors")
            self._fail(read_error({"errors": errors} if errors else {"message": f"the interaction {status}"}))
            return
        self._start(interaction)
        steps = interaction.get("steps")
        for part in read_answer_steps(steps) if not self._items and type(steps) is list else ():  # not streamed
            self.parts.whole(part)
        self._finish({**interaction, "status": status if status is not None else "completed"})

    def _finish(self, interaction: dict[str, Any]) -> None:
        for step in self._items.values():
            self._end_step(step)
        self._read_usage(interaction.get("usage"))
        if self._usage is not None:
            self.parts.deltas.append(UsageReported(self._usage))
        stop = read_stop_reason(interaction, self.parts.of(0))
        native = interaction_extras(interaction, stop)
        if self._created is None and interaction.get("created") is not None:
            native = {FORMAT: {**(native or {}).get(FORMAT, {}), "created": interaction["created"]}}
        self._end(Finished(stop, native=native))

    def _on_error(self, event: StreamEvent) -> None:
        self._fail(read_error({"error": event.error} if event.error is not None else b""))


_HANDLERS: dict[str, Callable[[StreamReader, StreamEvent], None]] = {
    "interaction.created": lambda reader, event: reader._start(event.interaction),
    "interaction.status_update": StreamReader._on_status,
    "step.start": lambda reader, event: reader._announce(event.index, event.step),
    "step.delta": StreamReader._on_delta,
    "step.stop": StreamReader._on_stop,
    "interaction.completed": StreamReader._on_completed,
    "error": StreamReader._on_error,
}
