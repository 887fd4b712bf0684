"""Reads Chat Completions streams, and corrects those that are forwarded; `choice_reader` reads each choice.

Usage and other keys of the body may come before, on or after the chunk with the finish reason, and some hosts finish twice; so
the end waits for `[DONE]`, or for the end of the bytes with a finish reason in every choice. Otherwise the stream was cut. Chunks
without choices (Azure) have only extras; an `error` in a chunk is a failure, whatever the status was.

Extras that are lists are reported at the end, because hosts repeat them in every chunk and merging would append them. Padding
(`obfuscation`, `p`) is dropped. Choices and parts are in the order in which they started, whatever the `index` of a choice is.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import msgspec

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import TokenUsage
from antiphon.wire.delta import Started, UsageReported
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.choice_reader import ChoiceReader
from antiphon.wire.openai_chat.errors import read_error
from antiphon.wire.openai_chat.response import keep_field, read_usage
from antiphon.wire.openai_chat.shapes import CHUNK_CHOICES, CHUNKS, Chunk
from antiphon.wire.output import MAX_CANDIDATES, ProviderError
from antiphon.wire.shapes import Loose
from antiphon.wire.streams.reader import CUT, CandidateReader, PartStream
from antiphon.wire.streams.sse import SseReader
from antiphon.wire.streams.writer import encode_line

_is_fragment_of_open_call = re.compile(rb'"tool_calls":\[\{"index":\d+,"function":\{"arguments":"').search
_event_borders = re.compile(rb"\n\r?\n|\r\r").finditer


_decode_chunk = msgspec.json.Decoder(Chunk).decode


class StreamReader(CandidateReader[Chunk, ChoiceReader]):
    """The bytes of one stream in, its deltas out."""

    def __init__(self) -> None:
        self._bytes = SseReader()
        super().__init__(self._bytes, _decode_chunk)
        self._extras: dict[str, Any] = {}
        self._sent_extras: dict[str, Any] = {}
        self._head: dict[str, Any] = {}
        self._usage: Any = None

    def _end_of_stream(self) -> None:
        if self._candidates and all(choice.finish_reason is not None for choice in self._candidates.values()):
            self._finish()
        else:
            self._fail(self._cut())

    def _cut(self) -> ProviderError:
        """Why the end is missing: the host may have sent a plain error instead of a stream."""
        if self._bytes.bare:
            error = read_error(bytes(self._bytes.bare))
            if error.kind != "unknown" or error.code is not None:
                return error
        return CUT

    def _read_event(self, chunk: Chunk) -> None:
        if chunk.system_fingerprint is not None:
            self._extras["system_fingerprint"] = chunk.system_fingerprint
        if chunk.service_tier is not None:
            self._extras["service_tier"] = chunk.service_tier
        choices = chunk.choices
        if not self._is_started:
            self._read_head(id=chunk.id, model=chunk.model, created=chunk.created)
            if choices:
                self._start()
        for choice in choices:
            candidate = self._candidates.get(choice.index)  # type: ignore[arg-type]  # None finds nothing
            if candidate is None:
                candidate = self._candidate(choice.index)
                if candidate is None:
                    return
            candidate.read(choice)
        if chunk.usage is not None:
            self._report(chunk.usage)

    def _read_head(self, **fields: Any) -> None:
        for key, value in fields.items():
            if type(value) is (int if key == "created" else str) and not self._head.get(key):
                self._head[key] = value

    def _new_candidate(self, number: int) -> ChoiceReader:
        cumulative_reasoning = "input_sensitive" in self._extras  # MiniMax
        return ChoiceReader(number, self.parts, cumulative_reasoning=cumulative_reasoning)

    def _read_other(self, value: Any) -> None:
        if value == "[DONE]":
            self._finish()
        elif type(value) is list:
            self._fail(read_error(value))
        else:
            super()._read_other(value)

    def _read_object(self, name: bytes, value: dict[str, Any]) -> None:
        """A chunk with fields of the host's own, or an error."""
        choices = value.get("choices")
        if value.get("error") or name == b"error" or (choices is None and _is_error(value)):
            self._fail(read_error(value))
            return
        head = CHUNKS.fit({**value, "choices": [], "usage": None})
        if type(head) is Loose:
            for key, field in head.more.items():
                if key != "p":
                    keep_field(self._extras, key, field)
            head = head.shape
        self._read_event(head)
        if type(choices) is list and choices:
            self._start()
            for choice in choices:
                self._read_loose(CHUNK_CHOICES.fit(choice))
        if value.get("usage") is not None and not self._is_over:
            self._report(value["usage"])

    def _read_loose(self, fitted: Any) -> None:
        """A choice that may have fields of the host's own."""
        choice, more = (fitted.shape, fitted.more) if type(fitted) is Loose else (fitted, {})
        if choice is None or self._is_over:
            return
        if more.get("error"):
            self._fail(read_error(fitted.value))
            return
        candidate = self._candidate(choice.index)
        if candidate is not None:
            candidate.read(choice, more)
            if self._usage is None and type(more.get("usage")) is dict:  # Moonshot
                self._report(more["usage"])

    def _start(self) -> None:
        if not self._is_started:
            self._sent_extras = {key: value for key, value in self._extras.items() if type(value) is not list}
            native = {FORMAT: self._sent_extras} if self._sent_extras else None
            self._begin(Started(format=FORMAT, native=native, **self._head))

    def _report(self, raw: Any) -> None:
        usage: TokenUsage | None = read_usage(raw) if raw != self._usage else None
        if usage is not None:
            self._usage = raw
            self._start()
            self.parts.deltas.append(UsageReported(usage))

    def _on_done(self) -> None:
        self._finish()

    def _finish(self) -> None:
        if not self._candidates:
            self._fail(ProviderError("stream ended without a response", "server"))
            return
        groq = self._extras.get("x_groq")
        if self._usage is None and type(groq) is dict and groq.get("usage"):
            self._report(groq["usage"])
        choices = self._candidates.values()
        for choice in choices:
            choice.close()
        extras = {key: value for key, value in self._extras.items() if self._sent_extras.get(key) != value}
        self._end(*(choice.finished({} if index else extras) for index, choice in enumerate(choices)))


def _is_error(chunk: dict[str, Any]) -> bool:
    """Whether a chunk without choices is an error without its `error` key."""
    if "choices" in chunk or "id" in chunk:
        return False
    if chunk.get("object") == "error":
        return True
    return any(chunk.get(key) for key in ("code", "status")) or ("usage" not in chunk and bool(chunk.get("detail")))


class StreamNormalizer:
    """Whole events of one stream in, the same events with the indices that OpenAI's own client needs out.

    The client raises for a fragment without an `index`, and joins two calls that have the same one. Mistral, Ollama and Gemini
    leave the index of calls out; Copilot numbers every call 0; some give arguments as an object. Such events are written again,
    all others pass as they came.
    """

    def __init__(self) -> None:
        self._choices: dict[int, ChoiceReader] = {}
        self._is_renumbered = False

    def feed(self, events: bytes) -> bytes:
        """The events, as they came if their indices are right."""
        first = events.find(b'"tool_calls"')
        if first < 0 and b'"index"' in events:
            return events
        if b"\r" not in events:
            # What comes before the first call needs no look, if its indices are there.
            start = max(0, events.rfind(b"\n\n", 0, max(0, first)))
            start = start if events.find(b'"index"', 0, start) >= 0 else 0
            return events[:start] + b"\n\n".join(map(self._normalize, events[start:].split(b"\n\n")))
        borders = [0, *(border.end() for border in _event_borders(events)), len(events)]
        pieces = [events[start:end] for start, end in pairwise(borders)]
        return b"".join([piece if (new := self._normalize(piece)) is piece else new + b"\n\n" for piece in pieces])

    def _normalize(self, event: bytes) -> bytes:
        """The event itself if its indices are right; another one without its blank line if not."""
        has_calls = b'"tool_calls"' in event
        if b"{" not in event or (not has_calls and b'"index"' in event):
            return event
        if has_calls and not self._is_renumbered and _is_fragment_of_open_call(event):
            return event
        for read in SseReader().feed(event + b"\n\n"):
            try:
                chunk = decode_json(read.data)
            except NOT_JSON:
                return event
            if type(chunk) is dict and type(chunk.get("choices")) is list and self._renumber(chunk["choices"]):
                return b"data: " + encode_line(chunk)
        return event

    def _renumber(self, choices: list[Any]) -> bool:
        """Whether an index was missing or wrong; it is then corrected in place."""
        is_changed = False
        for position, choice in enumerate(choices):
            if type(choice) is not dict:
                continue
            number = choice.get("index")
            if type(number) is not int:
                number = choice["index"] = position
                is_changed = True
            delta = choice.get("delta")
            fragments = delta.get("tool_calls") if type(delta) is dict else None
            if type(fragments) is not list or not fragments or not 0 <= number < MAX_CANDIDATES:
                continue
            if number not in self._choices:
                self._choices[number] = ChoiceReader(number, PartStream())
            for fragment, index in zip(fragments, self._choices[number].number_fragments(fragments), strict=True):
                if type(fragment) is not dict:
                    continue
                if fragment.get("index") != index:
                    fragment["index"] = index
                    is_changed = self._is_renumbered = True
                called = fragment.get("function")
                if type(called) is dict and type(called.get("arguments")) is dict:
                    called["arguments"] = msgspec.json.encode(called["arguments"]).decode()
                    is_changed = True
        return is_changed
