"""Neutral deltas as a Chat Completions stream.

Theory of operation. Every chunk is a fixed head, a delta and a fixed tail; both are encoded once for each candidate, and for
each part what stands around its text, so that a text delta costs one encoding of that text. Parts may interleave as they
like: chat chunks are keyed by candidate and call. The chunk with the finish reason is written for each `Finished`; usage and
`[DONE]` wait for `close`, as other candidates may still finish.

Reasoning of another format is written as `reasoning_content`, the field that most clients read. A call whose arguments never
came is given `{}`, for clients parse them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import Audio, Document, Image, Native, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.openai_chat.assistant import REASONING_FIELDS
from antiphon.wire.openai_chat.calls import is_deprecated
from antiphon.wire.openai_chat.content import FORMAT, SHARED
from antiphon.wire.openai_chat.errors import write_error
from antiphon.wire.openai_chat.response import completion_id, finish_word, write_answer
from antiphon.wire.openai_chat.usage import write_usage
from antiphon.wire.output import ProviderError

_encode = msgspec.json.encode
_TAIL = b',"finish_reason":null}]}\n\n'
_DONE = b"data: [DONE]\n\n"


class _Part(Struct):
    """How the text of a part is wrapped."""

    part: OutputPart
    candidate: int
    call: int
    before: bytes = b""
    after: bytes = b""
    is_empty: bool = True
    annotations: list[Any] = []  # they wait for the end: clients take such a list only once
    aliases: tuple[str, ...] = ()  # fields that all get the text


class StreamWriter:
    """Deltas of any format in, the bytes of a stream out. `model` is the name for answers that do not tell theirs."""

    def __init__(self, model: str = "") -> None:
        self.losses: list[Loss] = []
        self._model = model
        self._head: dict[str, Any] | None = None
        self._begin = b""
        self._is_own = False
        self._parts: dict[int, _Part] = {}
        self._said: dict[int, list[OutputPart]] = {}
        self._usage: dict[str, Any] | None = None
        self._is_finished = False
        self._is_failed = False

    def write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes for one delta; there may be none."""
        if type(delta) is PartDelta:
            part = self._parts[delta.index]
            part.is_empty = False
            if not delta.text:
                return b""
            if part.aliases:
                return self._chunk(part.candidate, dict.fromkeys(part.aliases, delta.text))
            return part.before + _encode(delta.text) + part.after
        if isinstance(delta, Started):
            return self._start(delta)
        if isinstance(delta, Failed):
            self._is_failed = True
            return b"data: " + _encode(write_error(delta.error)) + b"\n\n"
        begin = self._start(Started()) if self._head is None else b""
        written: bytes = _WRITERS[type(delta)](self, delta)
        return begin + written

    def close(self) -> bytes:
        """The end of the stream: usage and `[DONE]`, or an error if nothing was finished."""
        if self._is_failed:
            return b""
        if not self._is_finished:
            return self.write(Failed(ProviderError("the stream ended before the answer did", "stream_cut")))
        if self._usage is None:
            return _DONE
        return b"data: " + _encode({**(self._head or {}), "choices": [], "usage": self._usage}) + b"\n\n" + _DONE

    def _start(self, started: Started) -> bytes:
        self._is_own = started.format == FORMAT
        own = own_extras(started.native, self.losses, "native", FORMAT)
        self._head = {
            "id": started.id if self._is_own and started.id else completion_id(started.id),
            "object": "chat.completion.chunk",
            "created": int(time.time()) if started.created is None else started.created,
            "model": started.model or self._model,
            **own,
        }
        self._begin = b"data: " + _encode(self._head)[:-1] + b',"choices":[{"index":'
        return self._open(0)

    def _open(self, candidate: int) -> bytes:
        """The first chunk of a candidate, which says who speaks."""
        self._said[candidate] = []
        return self._chunk(candidate, {"role": "assistant", "content": None})

    def _opened(self, candidate: int) -> bytes:
        """Open a candidate, and those before it: clients count them as they come."""
        return b"".join(self._open(number) for number in range(candidate + 1) if number not in self._said)

    def _around(self, candidate: int) -> bytes:
        return self._begin + str(candidate).encode() + b',"delta":'

    def _chunk(self, candidate: int, delta: dict[str, Any]) -> bytes:
        return self._around(candidate) + _encode(delta) + _TAIL

    def _write_start(self, delta: PartStarted) -> bytes:
        candidate, part = delta.candidate, delta.part
        written = self._opened(candidate)
        said = self._said[candidate]
        calls = sum(type(other) is ToolCallRequest for other in said)
        said.append(part)
        opened = self._parts[delta.index] = _Part(part, candidate, calls)
        path = f"parts[{delta.index}]"
        if isinstance(part, ToolCallRequest):
            return written + self._start_call(opened, part, path)
        if isinstance(part, Text | Refusal):
            return written + self._start_text(opened, part, path)
        if isinstance(part, Thinking):
            return written + self._start_thinking(opened, part, path)
        return written + self._write_whole(part, candidate, path)

    def _start_text(self, opened: _Part, part: Text | Refusal, path: str) -> bytes:
        field = "content" if type(part) is Text else "refusal"
        self._wrap(opened, f'{{"{field}":', "}")
        own = own_extras(part.native, self.losses, path, SHARED, FORMAT)
        opened.annotations = own.get("annotations", [])
        return self._chunk(opened.candidate, {field: part.text}) if part.text else b""

    def _start_thinking(self, opened: _Part, part: Thinking, path: str) -> bytes:
        own = own_extras(part.native, self.losses, path, SHARED, FORMAT)
        field, also = own.pop("field", None), own.pop("also", ())
        own.pop("part", None)
        fields = (field, *also) if field in REASONING_FIELDS else (REASONING_FIELDS[0],)
        if len(fields) > 1:
            opened.aliases = fields
        self._wrap(opened, f'{{"{fields[0]}":', "}")
        first = dict.fromkeys(fields, part.text) if part.text else {}
        return self._chunk(opened.candidate, {**first, **own}) if first or own else b""

    def _wrap(self, opened: _Part, before: str, after: str) -> None:
        opened.before = self._around(opened.candidate) + before.encode()
        opened.after = after.encode() + _TAIL

    def _start_call(self, opened: _Part, call: ToolCallRequest, path: str) -> bytes:
        opened.is_empty = not call.arguments
        if is_deprecated(call.native):
            self._wrap(opened, '{"function_call":{"arguments":', "}}")
            function = {"name": call.tool_name, "arguments": call.arguments}
            return self._chunk(opened.candidate, {"function_call": function})
        kind, text = ("custom", "input") if call.freeform else ("function", "arguments")
        self._wrap(opened, f'{{"tool_calls":[{{"index":{opened.call},"{kind}":{{"{text}":', "}}]}")
        more = own_extras(call.native, self.losses, path, SHARED, FORMAT)
        called = {"name": call.tool_name, text: call.arguments, **more.pop(kind, {})}
        fragment = {"index": opened.call, "id": call.tool_call_id, "type": kind, kind: called, **more}
        return self._chunk(opened.candidate, {"tool_calls": [fragment]})

    def _write_whole(self, part: Image | Audio | Document | Native, candidate: int, path: str) -> bytes:
        """A part that has no text to grow: it is written like in a whole answer."""
        message = write_answer((part,), self.losses, path.removesuffix("parts[0]"))
        delta = {key: value for key, value in message.items() if value is not None and key != "role"}
        for image in delta.get("images", ()):
            image["index"] = sum(type(other) is Image for other in self._said[candidate]) - 1
        return self._chunk(candidate, delta) if delta else b""

    def _write_extension(self, delta: PartExtended) -> bytes:
        part = self._parts[delta.index]
        own = own_extras(delta.native, self.losses, f"parts[{delta.index}]", SHARED, FORMAT)
        part.annotations = [*part.annotations, *own.pop("annotations", ())]
        if not own:
            return b""
        if isinstance(part.part, ToolCallRequest):
            return self._chunk(part.candidate, {"tool_calls": [{"index": part.call, **own}]})
        return self._chunk(part.candidate, own)

    def _write_end(self, delta: PartEnded) -> bytes:
        part = self._parts[delta.index]
        if part.is_empty and isinstance(part.part, ToolCallRequest) and not part.part.freeform:
            return part.before + b'"{}"' + part.after
        return self._chunk(part.candidate, {"annotations": part.annotations}) if part.annotations else b""

    def _write_usage(self, delta: UsageReported) -> bytes:
        self._usage = write_usage(delta.usage)
        return b""

    def _write_finish(self, delta: Finished) -> bytes:
        self._is_finished = True
        candidate = delta.candidate
        written = self._opened(candidate)
        if delta.stop_sequence is not None:
            self.losses.append(Loss("stop_sequence", "stop_sequence", "which sequence stopped it cannot be said"))
        own = own_extras(delta.native, self.losses, "native", FORMAT)
        choice, message = own.pop("choice", {}), own.pop("message", {})
        said = self._said[candidate]
        word = finish_word(delta.stop_reason, said, is_own=self._is_own, losses=self.losses)
        word = own.pop("finish_reason", word)
        if message:
            written += self._chunk(candidate, message)
        last = {"index": candidate, "delta": {}, "logprobs": None, "finish_reason": word, **choice}
        self._head = {**(self._head or {}), **own}
        return written + b"data: " + _encode({**self._head, "choices": [last]}) + b"\n\n"


_WRITERS: dict[type, Callable[[Any, Any], bytes]] = {
    PartStarted: StreamWriter._write_start,
    PartExtended: StreamWriter._write_extension,
    PartEnded: StreamWriter._write_end,
    UsageReported: StreamWriter._write_usage,
    Finished: StreamWriter._write_finish,
}
