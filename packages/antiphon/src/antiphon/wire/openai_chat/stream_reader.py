"""Reads Chat Completions streams, and corrects those that are forwarded; `choice_reader` reads each choice.

Usage and other keys of the body may come before, on or after the chunk with the finish reason, and some hosts finish twice; so
the end waits for `[DONE]`, or for the end of the bytes with a finish reason in every choice. Otherwise the stream was cut. Chunks
without choices (Azure) have only extras; an `error` in a chunk is a failure, whatever the status was.

Extras that are lists are reported at the end, because hosts repeat them in every chunk and merging would append them. Padding
(`obfuscation`, `p`) is dropped. Parts are in the order in which they started.
"""

from __future__ import annotations

import re
from itertools import count, pairwise
from typing import Any, Literal

import msgspec
from msgspec import Struct

from antiphon.parts import TokenUsage
from antiphon.wire.delta import ModelOutputDelta, PartDelta, Started, UsageReported
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.choice_reader import ChoiceReader
from antiphon.wire.openai_chat.errors import read_error
from antiphon.wire.openai_chat.response import read_usage
from antiphon.wire.output import MAX_CANDIDATES, ProviderError
from antiphon.wire.streams.reader import CUT, DeltaReader
from antiphon.wire.streams.sse import SseEvent, SseReader
from antiphon.wire.streams.writer import encode_line

_READ_FIELDS = frozenset(("id", "object", "created", "model", "choices", "usage", "obfuscation", "p"))
_MAX_UNDECODED = 65536
_is_fragment_of_open_call = re.compile(rb'"tool_calls":\[\{"index":\d+,"function":\{"arguments":"').search
_event_borders = re.compile(rb"\n\r?\n|\r\r").finditer


class _TextDelta(Struct, forbid_unknown_fields=True, gc=False):
    content: str


class _TextChoice(Struct, forbid_unknown_fields=True, gc=False):
    delta: _TextDelta
    index: Literal[0] = 0
    finish_reason: None = None
    logprobs: None = None


class _TextChunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk that only appends to a text: most chunks."""

    choices: tuple[_TextChoice]
    id: str = ""
    object: str = ""
    created: int = 0
    model: str = ""
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: str | None = None
    usage: None = None


_decode_text_chunk = msgspec.json.Decoder(_TextChunk).decode


class StreamReader(DeltaReader[SseEvent]):
    """The bytes of one stream in, its deltas out."""

    def __init__(self) -> None:
        super().__init__(SseReader())
        self._choices: dict[int, ChoiceReader] = {}
        self._numbers = count()
        self._head: dict[str, Any] = {}
        self._extras: dict[str, Any] = {}
        self._sent_extras: dict[str, Any] = {}
        self._usage: Any = None
        self._is_started = False
        self._undecoded: bytes | None = b""
        self._text_choice: ChoiceReader | None = None  # the only choice, while its text is open

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        if self._undecoded is not None and len(self._undecoded) < _MAX_UNDECODED:
            self._undecoded += data[: _MAX_UNDECODED - len(self._undecoded)]
        return super().feed(data)

    def _read_events(self, events: list[SseEvent]) -> None:
        out = self._out
        for event in events:
            if self._text_choice is not None and not event.event:
                try:
                    chunk = _decode_text_chunk(event.data)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self._text_choice = None  # decode generically until text is open again
                else:
                    extra, text = self._extras.get, chunk.choices[0].delta.content
                    is_unchanged = chunk.system_fingerprint == extra("system_fingerprint")
                    if is_unchanged and chunk.service_tier == extra("service_tier"):
                        if text:
                            out.append(PartDelta(self._text_choice.open_number, text))
                        continue
            self._read(event)

    def _end_of_stream(self) -> None:
        if self._choices and all(candidate.finish_reason is not None for candidate in self._choices.values()):
            self._finish()
        else:
            self._fail(self._cut())

    def _cut(self) -> ProviderError:
        """Why the end is missing: the host may have sent a plain error instead of a stream."""
        if self._undecoded and self._undecoded.lstrip()[:1] in (b"{", b"["):
            error = read_error(self._undecoded)
            if error.kind != "unknown" or error.code is not None:
                return error
        return CUT

    def _read(self, event: SseEvent) -> None:
        if self._is_over:
            return
        data = event.data
        self._undecoded = None
        try:
            chunk = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if data.strip() == b"[DONE]":
                self._finish()
            elif data.strip() and not self._is_closing:  # the last event may be cut
                self._fail(self._malformed("event is not JSON"))
            return
        if type(chunk) is dict and "error" not in chunk and "choices" in chunk and not event.event:
            self._read_chunk(chunk)
        elif chunk == "[DONE]":
            self._finish()
        elif type(chunk) is list:
            self._fail(read_error(chunk))
        elif type(chunk) is not dict:
            self._fail(self._malformed("event is not an object"))
        elif chunk.get("error") or event.event == b"error" or _is_error(chunk):
            self._fail(read_error(chunk))
        else:
            self._read_chunk(chunk)

    def _read_chunk(self, chunk: dict[str, Any]) -> None:
        for key in chunk.keys() - _READ_FIELDS:
            if chunk[key] is not None:
                self._extras[key] = chunk[key]
        choices = chunk.get("choices")
        if not self._is_started:
            for key, kind in (("id", str), ("model", str), ("created", int)):
                if type(chunk.get(key)) is kind and not self._head.get(key):
                    self._head[key] = chunk[key]
        if type(choices) is list and choices:
            if not self._is_started:
                self._start()
            for choice in choices:
                if type(choice) is dict and not self._is_over:
                    self._read_choice(choice)
        usage = chunk.get("usage")
        if usage is not None and not self._is_over:
            self._report(usage)

    def _read_choice(self, choice: dict[str, Any]) -> None:
        if choice.get("error"):
            self._fail(read_error(choice))
            return
        index = choice.get("index")
        number = index if type(index) is int and index >= 0 else 0
        if number >= MAX_CANDIDATES:
            self._fail(ProviderError(f"invalid stream: choice index {number} exceeds {MAX_CANDIDATES - 1}", "server"))
            return
        candidate = self._choices.get(number)
        if candidate is None:
            cumulative_reasoning = "input_sensitive" in self._extras  # MiniMax
            candidate = self._choices[number] = ChoiceReader(
                number, self._numbers, cumulative_reasoning=cumulative_reasoning
            )
        candidate.read(choice, self._out)
        self._text_choice = candidate if number == 0 and candidate.has_open_text and len(self._choices) == 1 else None
        if self._usage is None and type(choice.get("usage")) is dict:  # Moonshot
            self._report(choice["usage"])

    def _start(self) -> None:
        self._is_started = True
        self._sent_extras = {key: value for key, value in self._extras.items() if type(value) is not list}
        self._out.append(
            Started(format=FORMAT, native={FORMAT: self._sent_extras} if self._sent_extras else None, **self._head)
        )

    def _report(self, raw: Any) -> None:
        usage: TokenUsage | None = read_usage(raw) if raw != self._usage else None
        if usage is not None:
            self._usage = raw
            if not self._is_started:
                self._start()
            self._out.append(UsageReported(usage))

    def _finish(self) -> None:
        if not self._choices:
            self._fail(ProviderError("stream ended without a response", "server"))
            return
        groq = self._extras.get("x_groq")
        if self._usage is None and type(groq) is dict and groq.get("usage"):
            self._report(groq["usage"])
        candidates = [self._choices[number] for number in sorted(self._choices)]
        for candidate in candidates:
            candidate.close(self._out)
        extras = {key: value for key, value in self._extras.items() if self._sent_extras.get(key) != value}
        self._out.extend(candidate.finished({} if index else extras) for index, candidate in enumerate(candidates))
        self._is_over = True


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
        if b'"tool_calls"' not in events and b'"index"' in events:
            return events
        if b"\r" not in events:
            return b"\n\n".join(
                [
                    event if b'"tool_calls"' not in event and b'"index"' in event else self._normalize(event)
                    for event in events.split(b"\n\n")
                ]
            )
        borders = [0, *(border.end() for border in _event_borders(events)), len(events)]
        pieces = [events[start:end] for start, end in pairwise(borders)]
        return b"".join([piece if (new := self._normalize(piece)) is piece else new + b"\n\n" for piece in pieces])

    def _normalize(self, event: bytes) -> bytes:
        """The event itself if its indices are right; another one without its blank line if not."""
        has_calls = b'"tool_calls"' in event
        if not event or (not has_calls and b'"index"' in event):
            return event
        if has_calls and not self._is_renumbered and _is_fragment_of_open_call(event):
            return event
        for read in SseReader().feed(event + b"\n\n"):
            try:
                chunk = msgspec.json.decode(read.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
                self._choices[number] = ChoiceReader(number, count())
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
