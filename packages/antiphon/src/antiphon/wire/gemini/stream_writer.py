"""Streams for Gemini clients, written: `data:` lines, each a GenerateContentResponse with what is new.

Clients append text to text, so parts are written one after the other. A call is written when its arguments are complete and the
next delta is known: adjacent calls and the finish share one chunk, since the chats of Google's SDKs store each chunk as a turn.
Usage and all other fields come with the finish reason in the last chunk. If that has no parts it gets an empty text: those chats
drop an answer whose last chunk has none.

Adjacent texts become one for the client unless their signatures differ; empty text is not written.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import NativeExtras, Refusal, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, Started
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import NAME, ContentWriter
from antiphon.wire.gemini.errors import write_error
from antiphon.wire.gemini.response import (
    NO_CANDIDATES,
    STOP_REASONS,
    build_candidate,
    response_head,
    split_extras,
    write_usage,
)
from antiphon.wire.loss import lose_native
from antiphon.wire.output import ProviderError, lose_stop_sequence
from antiphon.wire.streams.writer import EventWriter, OpenPart, encode_line

_BEFORE_PARTS = b'data: {"candidates":[{"content":{"parts":'


class StreamWriter(EventWriter[OpenPart]):
    """Deltas of any format in, the bytes of a stream out. `model` is the name the client asked for."""

    _part_type = OpenPart
    _is_sequential = True

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._head: dict[str, Any] = {}
        self._writer = ContentWriter(self.losses)
        self._held: dict[int, list[Any]] = {}
        """What the next chunk of a candidate begins with: its last calls."""
        self._after_parts: dict[int, bytes] = {}
        """What follows the parts in a chunk, by the candidates that had one."""

    def _on_start(self, started: Started) -> None:
        is_same_format = started.format == FORMAT
        self._head = response_head(started.id, self._model or started.model, started.created, is_same_format)
        self._head.update(split_extras(started.native)[0])
        lose_native(self.losses, "native", started.native, FORMAT)

    def _on_part(self, part: OpenPart) -> None:
        if type(part.part) is not ToolCallRequest:
            if type(part.part) is Refusal:
                self._writer.report_refusal()
            self._extend_text(part, part.part.native)

    def _on_text(self, part: OpenPart, text: str) -> None:
        kind = type(part.part)
        if kind is ToolCallRequest:
            part.pieces.append(text)
        else:
            written = {"text": text, "thought": True} if kind is Thinking else {"text": text}
            self._out.append(self._chunk(part.candidate, written))

    def _on_extension(self, part: OpenPart, native: NativeExtras) -> None:
        if type(part.part) is ToolCallRequest:
            part.gained.append(native)
        else:
            self._extend_text(part, native)

    def _extend_text(self, part: OpenPart, native: NativeExtras | None) -> None:
        """Write what a text has beside it, with the calls that are held."""
        is_thought = type(part.part) is Thinking
        written = self._writer.text("", native, is_thought=is_thought)
        if len(written) > 1 + is_thought:
            self._out.append(self._chunk(part.candidate, written))
        else:
            self._flush(part.candidate)

    def _on_part_end(self, part: OpenPart) -> None:
        if type(part.part) is ToolCallRequest:
            self._hold(part)

    def _on_whole(self, part: OpenPart) -> None:
        self._hold(part)
        self._flush(part.candidate)

    def _hold(self, part: OpenPart) -> None:
        written = self._writer.write(part.whole())
        if written:
            self._held.setdefault(part.candidate, []).extend(written)

    def _flush(self, candidate: int) -> None:
        if self._held.get(candidate):
            self._out.append(self._chunk(candidate))

    def _on_finish(self, finished: Finished) -> None:
        lose_native(self.losses, "native", finished.native, FORMAT)
        lose_stop_sequence(finished.stop_sequence, self.losses, NAME)
        response, candidate_fields = split_extras(finished.native)
        parts = self._held.pop(finished.candidate, [])
        if not parts and finished.candidate in self._after_parts:
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
        self._out.append(self._event(chunk | self._head | response))

    def _on_error(self, error: ProviderError) -> None:
        for candidate in list(self._held):
            self._flush(candidate)
        event = self._event(write_error(error))
        # Twice: google-genai for JavaScript reads an error event as an empty answer, and sees only what is not an event.
        self._out += [event, event.removeprefix(b"data: ")]

    def _chunk(self, candidate: int, *parts: Any) -> bytes:
        """A chunk with the calls that are held, and these parts."""
        after = self._after_parts.get(candidate)
        if after is None:
            head = b"," + encode_line(self._head)[1:] if self._head else b"}"
            after = self._after_parts[candidate] = b',"role":"model"},"index":%d}]%b\r\n\r\n' % (candidate, head)
        held = self._held.pop(candidate, None)
        return _BEFORE_PARTS + encode_line(parts if held is None else (*held, *parts)) + after

    def _event(self, chunk: dict[str, Any]) -> bytes:
        return b"data: " + encode_line(chunk) + b"\r\n\r\n"
