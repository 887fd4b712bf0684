"""Chat Completions streams, read; `stream_writer` writes them.

Theory of operation. The reader turns each event into a chunk and gives each choice of it to its `Candidate`. Usage and other
keys of the body may come before, on or after the chunk with the finish reason, and some hosts finish twice; so the end is held
back until `[DONE]`, or until the bytes end and every candidate has a finish reason. Bytes that end without either are a cut
stream. Chunks without choices (Azure) tell only extras; an `error` in a chunk is a failure, whatever the status was.

Keys that hold lists are told at the end, for the deltas' lists grow and a host repeats its lists in every chunk. The padding
of chunks (`obfuscation`, `p`) is dropped.

Words that come back after something else was said begin a new part; the whole answer would join them. Parts are in the
order in which they began.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Literal

import msgspec
from msgspec import Struct

from antiphon.history.usage import TokenUsage
from antiphon.wire.delta import Failed, ModelOutputDelta, PartDelta, Started, UsageReported
from antiphon.wire.openai_chat.candidate import Candidate
from antiphon.wire.openai_chat.content import FORMAT
from antiphon.wire.openai_chat.errors import read_error
from antiphon.wire.openai_chat.usage import read_usage
from antiphon.wire.output import MOST_CANDIDATES, NOT_AN_ANSWER, ProviderError
from antiphon.wire.sse import SseEvent, SseOverflow, SseReader

_KNOWN = frozenset(("id", "object", "created", "model", "choices", "usage", "obfuscation", "p"))
_MOST_STRAY = 65536


class _PlainDelta(Struct, forbid_unknown_fields=True, gc=False):
    content: str


class _PlainChoice(Struct, forbid_unknown_fields=True, gc=False):
    delta: _PlainDelta
    index: Literal[0] = 0
    finish_reason: None = None
    logprobs: None = None


class _PlainChunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk that is more of a text and nothing else: what most are, told while decoding."""

    choices: tuple[_PlainChoice]
    id: str = ""
    object: str = ""
    created: int = 0
    model: str = ""
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: str | None = None
    usage: None = None


_decode_plain = msgspec.json.Decoder(_PlainChunk).decode


class StreamReader:
    """The bytes of one stream in, its deltas out."""

    def __init__(self) -> None:
        self._sse = SseReader()
        self._candidates: dict[int, Candidate] = {}
        self._numbers = count()
        self._head: dict[str, Any] = {}
        self._extras: dict[str, Any] = {}
        self._told: dict[str, Any] = {}
        self._usage: Any = None
        self._is_started = False
        self._is_over = False
        self._stray: bytes | None = b""
        self._speaker: Candidate | None = None  # the only candidate, while it is saying plain text

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        if self._is_over:
            return []
        out: list[ModelOutputDelta] = []
        if self._stray is not None:
            self._stray = (self._stray + data)[:_MOST_STRAY]
        try:
            events = self._sse.feed(data)
        except SseOverflow:
            self._fail(out, ProviderError("an event of the stream is too long", "server", code=NOT_AN_ANSWER))
            return out
        for event in events:
            if self._speaker is not None and not event.event:
                try:
                    chunk = _decode_plain(event.data)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self._speaker = None  # until text is said again, nothing is taken for granted
                else:
                    known, said = self._extras.get, chunk.choices[0].delta.content
                    is_as_before = chunk.system_fingerprint == known("system_fingerprint")
                    if is_as_before and chunk.service_tier == known("service_tier"):
                        if said:
                            out.append(PartDelta(self._speaker.open_number, said))
                        continue
            self._read(event, out)
        return out

    def close(self) -> list[ModelOutputDelta]:
        """The stream ended: what was held back, or a failure if it should not have ended here."""
        out: list[ModelOutputDelta] = []
        if self._is_over:
            return out
        for event in self._sse.close():
            self._read(event, out, is_last=True)
        if not self._is_over:
            if self._candidates and all(candidate.word is not None for candidate in self._candidates.values()):
                self._finish(out)
            else:
                self._fail(out, self._cut())
        return out

    def _cut(self) -> ProviderError:
        """Why there is no end: the host may have answered with a plain error instead of a stream."""
        if self._stray and self._stray.lstrip()[:1] in (b"{", b"["):
            error = read_error(self._stray)
            if error.kind != "unknown" or error.code is not None:
                return error
        return ProviderError("the stream ended before the answer did", "stream_cut")

    def _read(self, event: SseEvent, out: list[ModelOutputDelta], *, is_last: bool = False) -> None:
        if self._is_over:
            return
        data = event.data
        self._stray = None
        try:
            chunk = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if data.strip() == b"[DONE]":
                self._finish(out)
            elif data.strip() and not is_last:  # the last event may be cut; the end of the bytes decides
                self._fail(out, ProviderError("an event of the stream is not JSON", "server", code=NOT_AN_ANSWER))
            return
        if type(chunk) is dict and "error" not in chunk and "choices" in chunk and not event.event:
            self._read_chunk(chunk, out)
        elif chunk == "[DONE]":
            self._finish(out)
        elif type(chunk) is list:
            self._fail(out, read_error(chunk))
        elif type(chunk) is not dict:
            self._fail(out, ProviderError("an event is not an object", "server", code=NOT_AN_ANSWER))
        elif chunk.get("error") or event.event == b"error" or _is_error(chunk):
            self._fail(out, read_error(chunk))
        else:
            self._read_chunk(chunk, out)

    def _read_chunk(self, chunk: dict[str, Any], out: list[ModelOutputDelta]) -> None:
        for key in chunk.keys() - _KNOWN:
            if chunk[key] is not None:
                self._extras[key] = chunk[key]
        choices = chunk.get("choices")
        if not self._is_started:
            for key, kind in (("id", str), ("model", str), ("created", int)):
                if type(chunk.get(key)) is kind and not self._head.get(key):
                    self._head[key] = chunk[key]
        if type(choices) is list and choices:
            if not self._is_started:
                self._start(out)
            for choice in choices:
                if type(choice) is dict and not self._is_over:
                    self._read_choice(choice, out)
        usage = chunk.get("usage")
        if usage is not None and not self._is_over:
            self._report(usage, out)

    def _read_choice(self, choice: dict[str, Any], out: list[ModelOutputDelta]) -> None:
        if choice.get("error"):
            self._fail(out, read_error(choice))
            return
        index = choice.get("index")
        number = index if type(index) is int and index >= 0 else 0
        if number >= MOST_CANDIDATES:
            self._fail(out, ProviderError("an event is of a choice beyond all that can be asked for", "server"))
            return
        candidate = self._candidates.get(number)
        if candidate is None:
            repeats = "input_sensitive" in self._extras  # MiniMax
            candidate = self._candidates[number] = Candidate(number, self._numbers, repeats=repeats)
        candidate.read(choice, out)
        self._speaker = candidate if number == 0 and candidate.is_saying_text and len(self._candidates) == 1 else None
        if self._usage is None and type(choice.get("usage")) is dict:  # Moonshot
            self._report(choice["usage"], out)

    def _start(self, out: list[ModelOutputDelta]) -> None:
        self._is_started = True
        self._told = {key: value for key, value in self._extras.items() if type(value) is not list}
        out.append(Started(format=FORMAT, native={FORMAT: self._told} if self._told else None, **self._head))

    def _report(self, raw: Any, out: list[ModelOutputDelta]) -> None:
        usage: TokenUsage | None = read_usage(raw) if raw != self._usage else None
        if usage is not None:
            self._usage = raw
            if not self._is_started:
                self._start(out)
            out.append(UsageReported(usage))

    def _finish(self, out: list[ModelOutputDelta]) -> None:
        if not self._candidates:
            self._fail(out, ProviderError("the stream ended without an answer", "server"))
            return
        groq = self._extras.get("x_groq")
        if self._usage is None and type(groq) is dict and groq.get("usage"):
            self._report(groq["usage"], out)
        candidates = [self._candidates[number] for number in sorted(self._candidates)]
        for candidate in candidates:
            candidate.close(out)
        extras = {key: value for key, value in self._extras.items() if self._told.get(key) != value}
        out.extend(candidate.finished({} if place else extras) for place, candidate in enumerate(candidates))
        self._is_over = True

    def _fail(self, out: list[ModelOutputDelta], error: ProviderError) -> None:
        self._is_over = True
        out.append(Failed(error))


def _is_error(chunk: dict[str, Any]) -> bool:
    """Whether a chunk without choices is an error that forgot its `error` key."""
    if "choices" in chunk or "id" in chunk:
        return False
    if chunk.get("object") == "error":
        return True
    return any(chunk.get(key) for key in ("code", "status")) or ("usage" not in chunk and bool(chunk.get("detail")))
