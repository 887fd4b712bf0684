"""Writes Chat Completions streams.

Every chunk is a fixed head, a delta and a fixed tail; both are encoded once per choice, and once per part what surrounds its
text, so that a text delta costs one encoding of that text. Parts may interleave: chunks are keyed by choice and call. A chunk
with the finish reason is written for each `Finished`; usage and `[DONE]` wait for `close`, as other choices may still finish.

Reasoning of another format is written as `reasoning_content`, the field that most clients read. A call without arguments gets
`{}`, because clients parse them.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from msgspec import Struct

from antiphon.parts import Audio, Document, Image, Native, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.answer_tables import lose_stop_sequence
from antiphon.wire.delta import Finished, PartDelta, PartExtended, PartStarted, Started
from antiphon.wire.loss import own_extras
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.assistant import AssistantWriter
from antiphon.wire.openai_chat.content import NAME, THINKING_BLOCK
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS
from antiphon.wire.openai_chat.errors import write_error
from antiphon.wire.openai_chat.response import completion_id, write_stop_reason, write_usage
from antiphon.wire.output import ProviderError
from antiphon.wire.provenance import is_legacy_function, spelling_in, with_source
from antiphon.wire.shapes import as_dict
from antiphon.wire.streams.writer import EventWriter, encode_line
from antiphon.wire.vendors.openai import OPENAI, translate_citations

_TAIL = b',"finish_reason":null}]}\n\n'
_DONE = b"data: [DONE]\n\n"


class _Part(Struct):
    """What surrounds the text of a part."""

    part: OutputPart
    candidate: int
    call: int
    before: bytes = b""
    after: bytes = b""
    is_empty: bool = True
    annotations: Any = None  # written at the end: clients read such a list only once
    has_own_annotations: bool = False
    aliases: tuple[str, ...] = ()  # fields that all get the text

    def add_annotations(self, more: Any) -> None:
        """Lists grow, anything else is replaced. The list given at the start is copied before it grows."""
        if type(more) is list and type(self.annotations) is list:
            if not self.has_own_annotations:
                self.annotations, self.has_own_annotations = [*self.annotations], True
            self.annotations += more
        elif more is not None:
            self.annotations, self.has_own_annotations = more, False


class StreamWriter(EventWriter):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._assistant = AssistantWriter(self.losses)
        self._head: dict[str, Any] = {}
        self._chunk_start = b""
        self._is_own = False
        self._parts: dict[int, _Part] = {}
        self._parts_by_choice: dict[int, list[OutputPart]] = {}
        self._counts: Counter[tuple[int, type]] = Counter()  # how many parts of a type each choice has

    def _on_text(self, delta: PartDelta) -> bytes:
        part = self._parts.get(delta.index)
        if part is None or part.candidate in self._finished:
            return b""
        part.is_empty = False
        if not delta.text:
            return b""
        if part.aliases:
            return self._chunk(part.candidate, dict.fromkeys(part.aliases, delta.text))
        return part.before + encode_line(delta.text) + part.after

    def _on_error(self, error: ProviderError) -> bytes:
        return b"data: " + encode_line(write_error(error)) + b"\n\n"

    def _on_close(self) -> bytes:
        if self._usage is None:
            return _DONE
        usage = write_usage(self._usage)
        return b"data: " + encode_line({**self._head, "choices": [], "usage": usage}) + b"\n\n" + _DONE

    def _on_start(self, started: Started) -> bytes:
        self._is_own = started.format == FORMAT
        extras = own_extras(started.native, self.losses, "native", FORMAT)
        self._head = {
            "id": started.id if self._is_own and started.id else completion_id(started.id),
            "object": "chat.completion.chunk",
            "created": int(time.time()) if started.created is None else started.created,
            "model": self._model or started.model,
            **extras,
        }
        self._chunk_start = b"data: " + encode_line(self._head)[:-1] + b',"choices":[{"index":'
        return self._open(0)

    def _open(self, candidate: int) -> bytes:
        """The first chunk of a choice, with its role."""
        self._parts_by_choice[candidate] = []
        return self._chunk(candidate, {"role": "assistant", "content": None, "refusal": None})

    def _open_choices(self, candidate: int) -> bytes:
        """Open a choice and those before it: clients number them in order."""
        return b"".join(self._open(number) for number in range(candidate + 1) if number not in self._parts_by_choice)

    def _chunk_prefix(self, candidate: int) -> bytes:
        return self._chunk_start + str(candidate).encode() + b',"delta":'

    def _chunk(self, candidate: int, delta: dict[str, Any]) -> bytes:
        return self._chunk_prefix(candidate) + encode_line(delta) + _TAIL

    def _on_part(self, started: PartStarted) -> bytes:
        candidate, part = started.candidate, started.part
        opened = self._parts[started.index] = _Part(part, candidate, self._counts[candidate, ToolCallRequest])
        written = self._open_choices(candidate)
        self._parts_by_choice[candidate].append(part)
        self._counts[candidate, type(part)] += 1
        path = f"parts[{started.index}]"
        if isinstance(part, ToolCallRequest):
            return written + self._start_call(opened, part, path)
        if isinstance(part, Text | Refusal):
            return written + self._start_text(opened, part, path)
        if isinstance(part, Thinking):
            return written + self._start_thinking(opened, part, path)
        return written + self._write_complete(part, candidate, started.index)

    def _start_text(self, opened: _Part, part: Text | Refusal, path: str) -> bytes:
        field = "content" if type(part) is Text else "refusal"
        self._wrap(opened, f'{{"{field}":', "}")
        own = own_extras(translate_citations(part.native, FORMAT), self.losses, path, OPENAI, FORMAT)
        opened.annotations = own.get("annotations")
        return self._chunk(opened.candidate, {field: part.text}) if part.text else b""

    def _start_thinking(self, opened: _Part, part: Thinking, path: str) -> bytes:
        part = with_source(part)
        own = own_extras(part.native, self.losses, path, OPENAI, FORMAT)
        spelled = spelling_in(part, FORMAT)
        fields = spelled if spelled and spelled[0] in REASONING_FIELDS else REASONING_FIELDS[:1]
        if part.source == THINKING_BLOCK:
            own = {}
        if len(fields) > 1:
            opened.aliases = fields
        self._wrap(opened, f'{{"{fields[0]}":', "}")
        first = dict.fromkeys(fields, part.text) if part.text else {}
        return self._chunk(opened.candidate, {**first, **own}) if first or own else b""

    def _wrap(self, opened: _Part, before: str, after: str) -> None:
        opened.before = self._chunk_prefix(opened.candidate) + before.encode()
        opened.after = after.encode() + _TAIL

    def _start_call(self, opened: _Part, call: ToolCallRequest, path: str) -> bytes:
        opened.is_empty = not call.arguments
        if is_legacy_function(call):
            self._wrap(opened, '{"function_call":{"arguments":', "}}")
            function = {"name": call.tool_name, "arguments": call.arguments}
            return self._chunk(opened.candidate, {"function_call": function})
        kind, text = ("custom", "input") if call.freeform else ("function", "arguments")
        self._wrap(opened, f'{{"tool_calls":[{{"index":{opened.call},"{kind}":{{"{text}":', "}}]}")
        self.losses.part = int(path[6:-1])
        written = self._assistant.write_call(call)
        self.losses.part = -1
        fragment = {"index": 0, **(written if type(written) is dict else as_dict(written))}
        fragment["index"] = opened.call  # hosts also number calls among all parts of an answer
        return self._chunk(opened.candidate, {"tool_calls": [fragment]})

    def _write_complete(self, part: Image | Audio | Document | Native, candidate: int, index: int) -> bytes:
        """A part that has no text to grow: it is written as in a whole response."""
        message = self._assistant.response_message((part,), index)
        delta = {key: value for key, value in message.items() if value not in (None, []) and key != "role"}
        for image in delta.get("images", ()):
            image["index"] = self._counts[candidate, Image] - 1
        return self._chunk(candidate, delta) if delta else b""

    def _on_extension(self, extended: PartExtended) -> bytes:
        part = self._parts.get(extended.index)
        if part is None or part.candidate in self._finished:
            return b""
        native = translate_citations(extended.native, FORMAT)
        own = own_extras(native, self.losses, f"parts[{extended.index}]", OPENAI, FORMAT)
        part.add_annotations(own.pop("annotations", None))
        if not own:
            return b""
        if isinstance(part.part, ToolCallRequest):
            return self._chunk(part.candidate, {"tool_calls": [{"index": part.call, **own}]})
        return self._chunk(part.candidate, own)

    def _on_part_end(self, index: int) -> bytes:
        part = self._parts.get(index)
        if part is None or part.candidate in self._finished:
            return b""
        if part.is_empty and isinstance(part.part, ToolCallRequest) and not part.part.freeform:
            return part.before + b'"{}"' + part.after
        return self._chunk(part.candidate, {"annotations": part.annotations}) if part.annotations else b""

    def _on_finish(self, finished: Finished) -> bytes:
        candidate = finished.candidate
        written = self._open_choices(candidate)
        lose_stop_sequence(finished.stop_sequence, self.losses, NAME)
        own = own_extras(finished.native, self.losses, "native", FORMAT)
        choice, message = own.pop("choice", {}), own.pop("message", {})
        parts = self._parts_by_choice[candidate]
        reason = write_stop_reason(finished.stop_reason, parts, is_same_format=self._is_own, losses=self.losses)
        reason = own.pop("finish_reason", reason)
        if message:
            written += self._chunk(candidate, message)
        last = {"index": candidate, "delta": {}, "logprobs": None, "finish_reason": reason, **choice}
        self._head = {**self._head, **own}
        return written + b"data: " + encode_line({**self._head, "choices": [last]}) + b"\n\n"
