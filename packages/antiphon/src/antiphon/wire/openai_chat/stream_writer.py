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

from antiphon.parts import Image, NativeExtras, OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, Started
from antiphon.wire.loss import own_extras
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.content import NAME, THINKING_BLOCK
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS
from antiphon.wire.openai_chat.errors import write_error
from antiphon.wire.openai_chat.message_writer import AssistantWriter
from antiphon.wire.openai_chat.response import body_fields, completion_id, write_stop_reason, write_usage
from antiphon.wire.output import ProviderError, lose_stop_sequence
from antiphon.wire.provenance import is_legacy_function, spelling_in, with_source
from antiphon.wire.shapes import as_dict
from antiphon.wire.shared_openai import OPENAI, translate_citations
from antiphon.wire.streams.writer import EventWriter, OpenPart, encode_line

_TAIL = b',"finish_reason":null}]}\n\n'
_DONE = b"data: [DONE]\n\n"


class ChatPart(OpenPart):
    """What surrounds the text of a part."""

    call: int = 0
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


class StreamWriter(EventWriter[ChatPart]):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _part_type = ChatPart

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._assistant = AssistantWriter(self.losses)
        self._head: dict[str, Any] = {}
        self._chunk_start = b""
        self._is_own = False
        self._parts_by_choice: dict[int, list[OutputPart]] = {}
        self._counts: Counter[tuple[int, type]] = Counter()  # how many parts of a type each choice has

    def _on_text(self, part: ChatPart, text: str) -> None:
        if part.aliases:
            self._add(part.candidate, dict.fromkeys(part.aliases, text))
        else:
            super()._on_text(part, text)

    def _on_error(self, error: ProviderError) -> None:
        self._emit(write_error(error))

    def _on_close(self) -> None:
        if self._usage is not None:
            self._emit({**self._head, "choices": [], "usage": write_usage(self._usage)})
        self._out.append(_DONE)

    def _on_start(self, started: Started) -> None:
        self._is_own = started.format == FORMAT
        extras = own_extras(started.native, self.losses, "native", FORMAT)
        self._head = {
            "id": started.id if self._is_own and started.id else completion_id(started.id),
            "object": "chat.completion.chunk",
            "created": int(time.time()) if started.created is None else started.created,
            "model": self._model or started.model,
            **body_fields(extras),
        }
        self._chunk_start = b"data: " + encode_line(self._head)[:-1] + b',"choices":[{"index":'
        self._open_choices(0)

    def _open_choices(self, candidate: int) -> None:
        """Write the first chunk of a choice, with its role, and those of the choices before it: clients number them in order."""
        for number in range(candidate + 1):
            if number not in self._parts_by_choice:
                self._parts_by_choice[number] = []
                self._add(number, {"role": "assistant", "content": None, "refusal": None})

    def _emit(self, value: dict[str, Any]) -> None:
        self._out.append(b"data: " + encode_line(value) + b"\n\n")

    def _add(self, candidate: int, delta: dict[str, Any]) -> None:
        """Write a chunk, unless it has nothing."""
        if delta:
            self._out.append(self._chunk(candidate, delta))

    def _chunk_prefix(self, candidate: int) -> bytes:
        return self._chunk_start + str(candidate).encode() + b',"delta":'

    def _chunk(self, candidate: int, delta: dict[str, Any]) -> bytes:
        return self._chunk_prefix(candidate) + encode_line(delta) + _TAIL

    def _begin_part(self, part: ChatPart) -> None:
        self._open_choices(part.candidate)
        self._parts_by_choice[part.candidate].append(part.part)
        self._counts[part.candidate, type(part.part)] += 1

    def _on_part(self, part: ChatPart) -> None:
        part.call = self._counts[part.candidate, ToolCallRequest]
        self._begin_part(part)
        if type(part.part) is ToolCallRequest:
            self._start_call(part, part.part)
        elif type(part.part) is Thinking:
            self._start_thinking(part, with_source(part.part))
        else:
            field = "content" if type(part.part) is Text else "refusal"
            self._wrap(part, f'{{"{field}":', "}")
            own = self.losses.take_extras(translate_citations(part.part.native, FORMAT), OPENAI, FORMAT)
            part.annotations = own.get("annotations")

    def _start_thinking(self, opened: ChatPart, part: Thinking) -> None:
        own = self.losses.take_extras(part.native, OPENAI, FORMAT)
        spelled = spelling_in(part, FORMAT)
        fields = spelled if spelled and spelled[0] in REASONING_FIELDS else REASONING_FIELDS[:1]
        if len(fields) > 1:
            opened.aliases = fields
        else:
            self._wrap(opened, f'{{"{fields[0]}":', "}")
        self._add(opened.candidate, {} if part.source == THINKING_BLOCK else own)

    def _wrap(self, opened: ChatPart, before: str, after: str) -> None:
        opened.before = self._chunk_prefix(opened.candidate) + before.encode()
        opened.after = after.encode() + _TAIL

    def _start_call(self, opened: ChatPart, call: ToolCallRequest) -> None:
        if is_legacy_function(call):
            self._wrap(opened, '{"function_call":{"arguments":', "}}")
            self._add(opened.candidate, {"function_call": {"name": call.tool_name, "arguments": ""}})
            return
        kind, text = ("custom", "input") if call.freeform else ("function", "arguments")
        self._wrap(opened, f'{{"tool_calls":[{{"index":{opened.call},"{kind}":{{"{text}":', "}}]}")
        written = self._assistant.write_call(call)
        fragment = {"index": 0, **(written if type(written) is dict else as_dict(written))}
        fragment["index"] = opened.call  # hosts also number calls among all parts of an answer
        self._add(opened.candidate, {"tool_calls": [fragment]})

    def _on_whole(self, part: ChatPart) -> None:
        """A part that has no text to grow is written as in a whole response."""
        self._begin_part(part)
        message = self._assistant.response_message((part.whole(),), part.index)
        delta = {key: value for key, value in message.items() if value not in (None, []) and key != "role"}
        for image in delta.get("images", ()):
            image["index"] = self._counts[part.candidate, Image] - 1
        self._add(part.candidate, delta)

    def _on_extension(self, part: ChatPart, native: NativeExtras) -> None:
        own = self.losses.take_extras(translate_citations(native, FORMAT), OPENAI, FORMAT)
        part.add_annotations(own.pop("annotations", None))
        is_call = own and type(part.part) is ToolCallRequest
        self._add(part.candidate, {"tool_calls": [{"index": part.call, **own}]} if is_call else own)

    def _on_part_end(self, part: ChatPart) -> None:
        if not part.has_text and type(part.part) is ToolCallRequest and not part.part.freeform:
            self._out.append(part.before + b'"{}"' + part.after)
        elif part.annotations:
            self._add(part.candidate, {"annotations": part.annotations})

    def _on_finish(self, finished: Finished) -> None:
        candidate = finished.candidate
        self._open_choices(candidate)
        lose_stop_sequence(finished.stop_sequence, self.losses, NAME)
        own = own_extras(finished.native, self.losses, "native", FORMAT)
        parts = self._parts_by_choice[candidate]
        reason = write_stop_reason(finished.stop_reason, parts, is_same_format=self._is_own, losses=self.losses)
        reason = own.get("finish_reason", reason)
        self._add(candidate, own.get("message", {}))
        last = {"index": candidate, "delta": {}, "logprobs": None, "finish_reason": reason, **own.get("choice", {})}
        self._head = {**self._head, **body_fields(own)}
        self._emit({**self._head, "choices": [last]})
