"""Streams for Gemini clients, written: `data:` lines, each a GenerateContentResponse with what is new.

Clients append text to text, so parts are written one after the other: the first open part of a candidate is written at once, the
others wait for its end. A call is written when its arguments are complete and the next delta is known: adjacent calls and the
finish share one chunk, since the chats of Google's SDKs store each chunk as a turn. Usage and all other fields come with the
finish reason in the last chunk. If that has no parts it gets an empty text: those chats drop an answer whose last chunk has none.

Adjacent texts become one for the client unless their signatures differ; empty text is not written.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from msgspec import Struct

from antiphon.parts import NativeExtras, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.answer_tables import lose_stop_sequence
from antiphon.wire.delta import Finished, PartDelta, PartExtended, PartStarted, Started, merged, whole_part
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import ContentWriter
from antiphon.wire.gemini.errors import write_error
from antiphon.wire.gemini.media import NAME
from antiphon.wire.gemini.response import (
    NO_CANDIDATES,
    STOP_REASONS,
    build_candidate,
    response_head,
    split_extras,
    write_usage,
)
from antiphon.wire.loss import lose_native
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.writer import EventWriter, encode_line


class _OpenPart(Struct):
    """A part that has not ended, with what is not yet written of it."""

    index: int
    part: OutputPart
    candidate: int
    is_text: bool
    pieces: list[str] = []
    gained: list[NativeExtras] = []
    has_ended: bool = False


class StreamWriter(EventWriter):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._head: dict[str, Any] = {}
        self._writer = ContentWriter(self.losses)
        self._open_parts: dict[int, _OpenPart] = {}
        self._queues: dict[int, deque[_OpenPart]] = {}
        self._texts_waiting: Counter[int] = Counter()  # parts of each candidate's queue that are no calls
        self._candidates_with_output: set[int] = set()

    def _on_start(self, started: Started) -> bytes:
        is_same_format = started.format == FORMAT
        self._head = response_head(started.id, self._model or started.model, started.created, is_same_format)
        self._head.update(split_extras(started.native)[0])
        lose_native(self.losses, "native", started.native, FORMAT)
        return b""

    def _on_part_end(self, index: int) -> bytes:
        open_part = self._open_parts.get(index)
        if open_part is None:
            return b""
        open_part.has_ended = True
        return self._write_ready(open_part.candidate) if self._texts_waiting[open_part.candidate] else b""

    def _on_part(self, started: PartStarted) -> bytes:
        is_text = isinstance(started.part, Text | Thinking | Refusal)
        open_part = _OpenPart(started.index, started.part, started.candidate, is_text)
        self._open_parts[started.index] = open_part
        queue = self._queues.setdefault(started.candidate, deque())
        queue.append(open_part)
        self._texts_waiting[started.candidate] += not isinstance(started.part, ToolCallRequest)
        is_waiting = isinstance(started.part, ToolCallRequest) or not queue[0].has_ended
        return self._write_ready(started.candidate) if queue[0] is open_part or not is_waiting else b""

    def _on_text(self, delta: PartDelta) -> bytes:
        open_part = self._open_parts.get(delta.index)
        if open_part is None:
            return b""
        if not open_part.is_text or self._queues[open_part.candidate][0] is not open_part:
            open_part.pieces.append(delta.text)
            return b""
        if not delta.text:
            return b""
        part = {"text": delta.text, "thought": True} if type(open_part.part) is Thinking else {"text": delta.text}
        return self._chunk([part], open_part.candidate)

    def _on_extension(self, extended: PartExtended) -> bytes:
        open_part = self._open_parts.get(extended.index)
        if open_part is None:
            return b""
        if open_part.is_text and self._queues[open_part.candidate][0] is open_part:
            parts = self._text_parts(open_part, "", extended.native)
            return self._chunk(parts, open_part.candidate) if parts else b""
        open_part.gained.append(extended.native)
        return b""

    def _write_ready(self, candidate: int) -> bytes:
        parts = self._completed_parts(candidate)
        return self._chunk(parts, candidate) if parts else b""

    def _completed_parts(self, candidate: int, is_last: bool = False) -> list[Any]:
        """The parts that can be written now: the first one, and the next ones once it has ended."""
        queue = self._queues.get(candidate)
        parts: list[Any] = []
        while queue:
            open_part = queue[0]
            is_whole = open_part.has_ended or is_last
            if open_part.is_text:
                parts += self._take_text(open_part)
            elif is_whole:
                complete = whole_part(open_part.part, open_part.pieces, open_part.gained)
                part = self._writer.write(complete, open_part.index)
                if part is not None:
                    parts.append(part)
            if not is_whole:
                break
            queue.popleft()
            self._texts_waiting[candidate] -= not isinstance(open_part.part, ToolCallRequest)
            del self._open_parts[open_part.index]
        return parts

    def _take_text(self, open_part: _OpenPart) -> list[Any]:
        part: Any = open_part.part
        text, native = part.text + "".join(open_part.pieces), merged(part.native, *open_part.gained)
        if type(part) is Refusal:
            self._writer.report_refusal(open_part.index)
        open_part.pieces, open_part.gained = [], []
        open_part.part = Thinking() if type(part) is Thinking else Text("")
        return self._text_parts(open_part, text, native)

    def _text_parts(self, open_part: _OpenPart, text: str, native: NativeExtras | None) -> list[Any]:
        is_thought = type(open_part.part) is Thinking
        part = self._writer.text(text, native, open_part.index, is_thought=is_thought)
        return [part] if text or len(part) > 1 + is_thought else []

    def _on_finish(self, finished: Finished) -> bytes:
        lose_native(self.losses, "native", finished.native, FORMAT)
        lose_stop_sequence(finished.stop_sequence, self.losses, NAME)
        response, candidate_fields = split_extras(finished.native)
        parts = self._completed_parts(finished.candidate, is_last=True)
        if not parts and finished.candidate in self._candidates_with_output:
            parts = [{"text": ""}]
        chunk: dict[str, Any] = {}
        if parts or finished.source != NO_CANDIDATES:
            # Clients need a finish reason, even where the answer has none.
            reported = None if "finishReason" in candidate_fields else self.losses
            finish_reason = STOP_REASONS.write(finished.stop_reason, reported) or "OTHER"
            candidate = build_candidate(parts, finished.candidate, finish_reason, candidate_fields)
            chunk["candidates"] = [candidate]
        if self._usage is not None:
            chunk["usageMetadata"] = write_usage(self._usage, self.losses)
        return self._event(chunk | self._head | response)

    def _on_error(self, error: ProviderError) -> bytes:
        complete = b"".join([self._write_ready(candidate) for candidate in self._queues])
        event = self._event(write_error(error))
        # Twice: google-genai for JavaScript reads an error event as an empty answer, and sees only what is not an event.
        return complete + event + event.removeprefix(b"data: ")

    def _chunk(self, parts: list[Any], candidate: int) -> bytes:
        self._candidates_with_output.add(candidate)
        content = {"parts": parts, "role": "model"}
        return self._event({"candidates": [{"content": content, "index": candidate}], **self._head})

    def _event(self, chunk: dict[str, Any]) -> bytes:
        return b"data: " + encode_line(chunk) + b"\r\n\r\n"
