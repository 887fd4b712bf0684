"""Deltas as the stream a Gemini client expects: `data:` lines, each a GenerateContentResponse with what is new.

A client appends text to text, so parts must come one after the other: of each candidate the first open part speaks, and what the
others say waits for its end. A call is written when its arguments are whole (Gemini has no fragments of them) and it is known
what follows: calls side by side, and the finish behind them, are one chunk, for the chats of Google's SDKs keep each chunk as
a turn of its own. Usage, and all that is said about the answer, comes with the finish reason, in the last chunk. If that has
nothing else to say, it has an empty text, as Google's often has: those chats forget a whole answer over a chunk without parts.

Two texts side by side become one to whoever reads this, unless their signatures differ; text that says nothing is not written.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.history.usage import TokenUsage
from antiphon.parts import NativeExtras, OutputPart, Refusal, Text, Thinking, ToolCallRequest
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
    merged,
    whole_part,
)
from antiphon.wire.gemini.candidate import NO_CANDIDATES, split_native, write_stop
from antiphon.wire.gemini.content import PartWriter
from antiphon.wire.gemini.errors import write_error
from antiphon.wire.gemini.response import candidate_of, head_of
from antiphon.wire.gemini.spelling import FORMAT, marked
from antiphon.wire.gemini.usage import write_usage
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.output import ProviderError

_encode = msgspec.json.Encoder().encode
_CUT = ProviderError("the answer ended before it was complete", "stream_cut")


class _Speaking(Struct):
    """A part that is being said: what of it was not yet written."""

    index: int
    part: OutputPart
    candidate: int
    is_text: bool
    pieces: list[str] = []
    native: NativeExtras | None = None
    has_ended: bool = False


class StreamWriter:
    """Deltas of any origin in, the bytes of a stream out. `model` is the name the client asked for."""

    def __init__(self, model: str = "") -> None:
        self.losses: list[Loss] = []
        self._model = model
        self._head: dict[str, Any] | None = None
        self._writer = PartWriter(self.losses)
        self._speaking: dict[int, _Speaking] = {}
        self._queues: dict[int, deque[_Speaking]] = {}
        self._usage: TokenUsage | None = None
        self._have_spoken: set[int] = set()
        self._has_ended = False

    def write(self, delta: ModelOutputDelta) -> bytes:
        """The bytes that say it; none if it has to wait."""
        if type(delta) is PartDelta:
            return self._write_delta(delta)
        if isinstance(delta, PartStarted):
            return self._write_start(delta)
        if isinstance(delta, PartEnded):
            speaking = self._speaking.get(delta.index)
            if speaking is None:
                return b""
            speaking.has_ended = True
            if all(isinstance(waiting.part, ToolCallRequest) for waiting in self._queues[speaking.candidate]):
                return b""
            return self._write_ready(speaking.candidate)
        if isinstance(delta, PartExtended):
            return self._write_extension(delta)
        if isinstance(delta, Started):
            self._begin(delta)
        elif isinstance(delta, UsageReported):
            self._usage = delta.usage
        elif isinstance(delta, Finished):
            return self._write_finish(delta)
        elif isinstance(delta, Failed):
            return self._write_failure(delta.error)
        return b""

    def close(self) -> bytes:
        """The end of the stream; an error if the answer had none."""
        return b"" if self._has_ended else self._write_failure(_CUT)

    def _begin(self, started: Started) -> None:
        is_own = started.format == FORMAT
        self._head = head_of(started.id, self._model or started.model, started.created, is_own)
        self._head.update(split_native(started.native)[0])
        lose_native(self.losses, "native", started.native, FORMAT)

    def _write_start(self, delta: PartStarted) -> bytes:
        is_text = isinstance(delta.part, Text | Thinking | Refusal)
        speaking = _Speaking(delta.index, delta.part, delta.candidate, is_text)
        self._speaking[delta.index] = speaking
        queue = self._queues.setdefault(delta.candidate, deque())
        queue.append(speaking)
        is_waiting = isinstance(delta.part, ToolCallRequest) or not queue[0].has_ended
        return self._write_ready(delta.candidate) if queue[0] is speaking or not is_waiting else b""

    def _write_delta(self, delta: PartDelta) -> bytes:
        speaking = self._speaking[delta.index]
        if not speaking.is_text or self._queues[speaking.candidate][0] is not speaking:
            speaking.pieces.append(delta.text)
            return b""
        if not delta.text:
            return b""
        part = {"text": delta.text, "thought": True} if type(speaking.part) is Thinking else {"text": delta.text}
        return self._chunk([part], speaking.candidate)

    def _write_extension(self, delta: PartExtended) -> bytes:
        speaking = self._speaking[delta.index]
        if speaking.is_text and self._queues[speaking.candidate][0] is speaking:
            parts = self._text(speaking, "", delta.native)
            return self._chunk(parts, speaking.candidate) if parts else b""
        speaking.native = merged(speaking.native, delta.native)
        return b""

    def _write_ready(self, candidate: int) -> bytes:
        parts = self._ready(candidate)
        return self._chunk(parts, candidate) if parts else b""

    def _ready(self, candidate: int, is_last: bool = False) -> list[Any]:
        """What may be written now: of the first part, and of those behind it when it has ended."""
        queue = self._queues.get(candidate)
        parts: list[Any] = []
        while queue:
            speaking = queue[0]
            is_whole = speaking.has_ended or is_last
            if speaking.is_text:
                parts += self._waiting_text(speaking)
            elif is_whole:
                whole = whole_part(speaking.part, speaking.pieces, speaking.native)
                part = self._writer.write(whole, speaking.index)
                if part is not None:
                    parts.append(part)
            if not is_whole:
                break
            queue.popleft()
            del self._speaking[speaking.index]
        return parts

    def _waiting_text(self, speaking: _Speaking) -> list[Any]:
        part: Any = speaking.part
        text, native = part.text + "".join(speaking.pieces), merged(part.native, speaking.native)
        if type(part) is Refusal:
            why = f"{FORMAT} has no refusals; it is said as text"
            self.losses.append(Loss(f"parts[{speaking.index}].refusal", "refusal", why))
        speaking.pieces, speaking.native = [], None
        speaking.part = Thinking() if type(part) is Thinking else Text("")
        return self._text(speaking, text, native)

    def _text(self, speaking: _Speaking, text: str, native: NativeExtras | None) -> list[Any]:
        extras = own_extras(native, self.losses, f"parts[{speaking.index}]", FORMAT)
        if not text and not extras:
            return []
        flag = {"thought": True} if type(speaking.part) is Thinking else {}
        return [{"text": text, **flag, **extras}]

    def _write_finish(self, delta: Finished) -> bytes:
        lose_native(self.losses, "native", delta.native, FORMAT)
        if delta.stop_sequence is not None:
            self.losses.append(Loss("stop_sequence", "stop_sequence", f"{FORMAT} does not say which it was"))
        response, about = split_native(delta.native)
        parts = self._ready(delta.candidate, is_last=True)
        if not parts and delta.candidate in self._have_spoken:
            parts = [{"text": ""}]
        self._has_ended = True
        chunk: dict[str, Any] = {}
        if parts or not marked(delta.native, NO_CANDIDATES):
            # A stream needs its finish reason, also where nobody said one.
            word = write_stop(delta.stop_reason) or "OTHER"
            candidate = candidate_of(parts, delta.candidate, word, about)
            chunk["candidates"] = [candidate]
        if self._usage is not None:
            chunk["usageMetadata"] = write_usage(self._usage, self.losses)
        return self._event(chunk | self._heading() | response)

    def _write_failure(self, error: ProviderError) -> bytes:
        self._has_ended = True
        whole = b"".join([self._write_ready(candidate) for candidate in self._queues])
        return whole + self._event(write_error(error))

    def _heading(self) -> dict[str, Any]:
        if self._head is None:
            self._head = head_of("", self._model, None, is_own=False)
        return self._head

    def _chunk(self, parts: list[Any], candidate: int) -> bytes:
        self._have_spoken.add(candidate)
        content = {"parts": parts, "role": "model"}
        return self._event({"candidates": [{"content": content, "index": candidate}], **self._heading()})

    def _event(self, chunk: dict[str, Any]) -> bytes:
        data = _encode(chunk)
        if b"\n" in data or b"\r" in data:  # arguments go out as the model wrote them, but an event has one line
            data = msgspec.json.format(data, indent=-1)
        return b"data: " + data + b"\r\n\r\n"
