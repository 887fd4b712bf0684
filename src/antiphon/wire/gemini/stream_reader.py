"""Streams: `streamGenerateContent`, read here and written by `stream_writer`.

Each chunk is a GenerateContentResponse with what is new. Text continues the open part with the same `thought` flag; a signature
belongs to the part it comes with, and a different one begins a part of its own. A call comes whole, or piece by piece (see
`partial_call`). Usage comes in every chunk, and the last one counts; so does the last of everything said about a candidate,
except citations, which add up.

A `finishReason` is not the end: with code execution the model goes on after one. So a candidate is finished if nothing follows
its last `finishReason`, and `Finished` comes when the bytes end. A stream that ends otherwise, or with an error, has failed.

Normalised: text that says nothing (empty, and without a signature) is no part.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.parts import Native, NativeExtras, OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.codec.json_array import JsonStreamReader
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
from antiphon.wire.gemini.calls import CallIds, encode
from antiphon.wire.gemini.candidate import (
    CANDIDATE,
    CONTENT,
    RESPONSE,
    is_blocked,
    output_native,
    read_stop,
    seconds_of,
    write_stop,
)
from antiphon.wire.gemini.content import read_part
from antiphon.wire.gemini.declarations import get
from antiphon.wire.gemini.errors import read_error
from antiphon.wire.gemini.partial_call import PartialCall
from antiphon.wire.gemini.plain_chunk import NOTHING, plain_chunk
from antiphon.wire.gemini.response import output_part
from antiphon.wire.gemini.spelling import FORMAT, extras_of, fields_of
from antiphon.wire.gemini.usage import read_usage
from antiphon.wire.output import MAX_CANDIDATES, ProviderError
from antiphon.wire.sse import SseOverflow

_decode = msgspec.json.Decoder().decode
_CUT = ProviderError("the stream ended before the answer did", "stream_cut")
_MALFORMED = ProviderError("the stream holds something that is not JSON", "server")


class _Candidate(Struct):
    """One candidate while it is being said."""

    number: int
    open: int = -1  # the index of the text that may go on
    is_thought: bool = False
    signature: Any = None
    call: PartialCall | None = None
    has_calls: bool = False
    word: Any = None
    is_finished: bool = False
    about: dict[str, Any] = {}
    unknown: dict[str, Any] = {}

    def note(self, fields: dict[str, Any], unknown: dict[str, Any]) -> None:
        """Remember what a chunk says about the candidate."""
        for name, value in fields.items():
            known = self.about.get(name)
            grows = name in ("groundingMetadata", "citationMetadata")
            if grows and isinstance(known, dict) and isinstance(value, dict):
                value = _added(known, value) if name == "citationMetadata" else {**known, **value}
            self.about[name] = value
        self.unknown.update(unknown)


def _added(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Citations of one chunk after those of the chunks before it."""
    result = dict(known)
    for name, value in more.items():
        before = result.get(name)
        if isinstance(before, list) and isinstance(value, list):
            result[name] = [*before, *(item for item in value if item not in before)]
        else:
            result[name] = value
    return result


class StreamReader:
    """Bytes in, deltas out, however the bytes are cut; both forms of a stream."""

    def __init__(self) -> None:
        self._chunks = JsonStreamReader()
        self._deltas: list[ModelOutputDelta] = []
        self._has_ended = False
        self._malformed = _MALFORMED
        self._started: Started | None = None
        self._calls = CallIds()
        self._candidates: dict[int, _Candidate] = {}
        self._parts = 0
        self._usage: Any = None  # as it was decoded, or its bytes
        self._reported: dict[str, Any] | None = None
        self._about: dict[str, Any] = {}
        self._speaker: _Candidate | None = None  # the only candidate, while it is saying text

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas these bytes complete."""
        if self._has_ended or not data:
            return []
        try:
            self._read_all(self._chunks.feed(data))
        except SseOverflow:
            self._fail(_MALFORMED)
        if self._chunks.is_broken:
            self._fail(_MALFORMED)
        return self._taken()

    def close(self) -> list[ModelOutputDelta]:
        """The stream ended: the end of the answer, or why it has none."""
        self._malformed = _CUT  # an event that cannot be read now is one that was cut
        if not self._has_ended:
            self._read_all(self._chunks.close())
        if not self._has_ended:
            self._end()
        return self._taken()

    def _taken(self) -> list[ModelOutputDelta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _fail(self, error: ProviderError) -> None:
        if not self._has_ended:
            self._report_usage()
            self._deltas.append(Failed(error))
            self._has_ended = True

    def _read_all(self, chunks: list[bytes]) -> None:
        for data in chunks:
            if self._speaker is not None and self._read_plain(data, self._speaker):
                continue
            if data == b"[DONE]":  # what some proxies append
                continue
            try:
                chunk = _decode(data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                self._fail(self._malformed)
                return
            for one in chunk if type(chunk) is list else (chunk,):
                if type(one) is not dict:
                    self._fail(_MALFORMED)
                else:
                    self._read(one)
                if self._has_ended:
                    return
            only = self._candidates.get(0) if len(self._candidates) == 1 else None
            self._speaker = only if only is not None and only.open >= 0 else None

    def _read_plain(self, data: bytes, speaker: _Candidate) -> bool:
        """Read a chunk that is more of the open text; False, and nothing done, if it is not that."""
        chunk = plain_chunk(data)
        if chunk is None:
            return False
        (part,) = chunk.candidates[0].content.parts
        if part.thought is not speaker.is_thought:
            return False
        if chunk.usage_metadata is not NOTHING:
            usage = bytes(chunk.usage_metadata)
            if not usage.startswith(b"{") or self._reported is None:
                return False
            self._usage = usage
        speaker.is_finished = False
        if part.text:
            self._deltas.append(PartDelta(speaker.open, part.text))
        return True

    def _read(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error") is not None:
            self._fail(read_error(chunk))
            return
        candidates, usage = chunk.get("candidates"), chunk.get("usageMetadata")
        known = (candidates is not None) + (usage is not None) + ("modelVersion" in chunk) + ("responseId" in chunk)
        if len(chunk) != known or self._started is None:
            fields, unknown = fields_of(chunk, RESPONSE)
            candidates, usage = fields.pop("candidates", None), fields.pop("usageMetadata", None)
            self._read_head(fields, unknown)
        if type(usage) is dict:
            self._usage = usage
            if self._reported is None:
                self._report_usage()
        elif usage is not None:
            self._about["usageMetadata"] = usage
        if candidates is None:
            return
        for position, candidate in enumerate(candidates if type(candidates) is list else (candidates,)):
            self._read_candidate(candidate, position)

    def _read_head(self, fields: dict[str, Any], unknown: dict[str, Any]) -> None:
        for name in ("modelVersion", "responseId"):
            if type(fields.get(name, "")) is not str:
                unknown[name] = fields.pop(name)
        model, response_id = fields.pop("modelVersion", ""), fields.pop("responseId", "")
        if self._started is None:
            time = fields.pop("createTime", None)
            native = {FORMAT: {"createTime": time}} if time is not None else None
            self._started = Started(response_id, model, seconds_of(time), FORMAT, native)
            self._calls = CallIds(response_id)
            self._deltas.append(self._started)
        elif fields.get("createTime") == extras_of(self._started.native).get("createTime"):
            fields.pop("createTime", None)
        self._about.update(fields)
        self._about.update(unknown)

    def _report_usage(self) -> None:
        if isinstance(self._usage, bytes):
            try:
                self._usage = _decode(self._usage)
            except (msgspec.DecodeError, RecursionError):  # a number beyond all numbers: nobody can count with it
                self._usage = None
        if self._usage is not None and self._usage is not self._reported:
            self._deltas.append(UsageReported(read_usage(self._usage)))
            self._reported = self._usage

    def _read_candidate(self, candidate: Any, position: int) -> None:
        if type(candidate) is not dict:
            self._whole(self._candidate(position), Native(FORMAT, candidate))
            return
        number, content, word = candidate.get("index"), candidate.get("content"), candidate.get("finishReason")
        place = number if type(number) is int and number >= 0 else position
        if place >= MAX_CANDIDATES:
            self._fail(ProviderError("an event is of a candidate beyond all that can be asked for", "server"))
            return
        state = self._candidate(place)
        if len(candidate) != (number is not None) + (content is not None) + (word is not None):
            fields, unknown = fields_of(candidate, CANDIDATE)
            content, word = fields.pop("content", None), fields.pop("finishReason", None)
            fields.pop("index", None)
            state.note(fields, unknown)
        if type(content) is dict:
            parts = content.get("parts")
            if len(content) != (parts is not None) + (content.get("role") == "model"):
                parts = self._read_odd_content(content, state)
            if parts:
                state.is_finished = False
                for part in parts if type(parts) is list else (parts,):
                    self._read_part(part, state)
        elif content is not None:
            state.about["content"] = content
        if word is not None:
            state.word = word
            state.is_finished = True

    def _candidate(self, number: int) -> _Candidate:
        state = self._candidates.get(number)
        if state is None:
            state = self._candidates[number] = _Candidate(number)
        return state

    def _read_odd_content(self, content: dict[str, Any], state: _Candidate) -> Any:
        fields, extras = fields_of(content, CONTENT)
        if fields.get("role", "model") != "model":
            extras["role"] = fields["role"]
        if extras:
            state.about["content"] = extras
        return fields.get("parts")

    def _read_part(self, part: Any, state: _Candidate) -> None:
        call = get(part, "functionCall") if type(part) is dict else None
        if type(call) is dict and self._read_partial_call(part, call, state):
            return
        read = output_part(part, read_part(part, self._calls))
        if isinstance(read, Text | Thinking):
            self._say(state, read.text, isinstance(read, Thinking), read.native)
        else:
            self._whole(state, read)

    def _say(self, state: _Candidate, text: str, is_thought: bool, native: NativeExtras | None) -> None:
        """More text: of the open part if it may be, else of a new one."""
        extras = extras_of(native)
        signature = extras.get("thoughtSignature")
        is_other = bool(signature and state.signature and signature != state.signature)
        if state.open >= 0 and state.is_thought is is_thought and not is_other:
            if text:
                self._deltas.append(PartDelta(state.open, text))
            if extras:
                self._deltas.append(PartExtended(state.open, {FORMAT: extras}))
                state.signature = signature or state.signature
            return
        if not text and not extras:
            return
        self._end_part(state)
        part: OutputPart = Thinking(native=native or {FORMAT: {}}) if is_thought else Text("", native=native)
        state.open, state.is_thought, state.signature = self._start(state, part), is_thought, signature
        if text:
            self._deltas.append(PartDelta(state.open, text))

    def _start(self, state: _Candidate, part: OutputPart) -> int:
        index = self._parts
        self._parts += 1
        self._deltas.append(PartStarted(index, part, state.number))
        return index

    def _end_part(self, state: _Candidate) -> None:
        if state.open >= 0:
            self._deltas.append(PartEnded(state.open))
            state.open = -1
        if state.call is not None:
            index, arguments = state.call.index, encode(state.call.arguments).decode()
            self._deltas += (PartDelta(index, arguments), PartEnded(index))
            state.call = None

    def _whole(self, state: _Candidate, part: OutputPart) -> None:
        """A part that comes in one piece."""
        self._end_part(state)
        if not isinstance(part, ToolCallRequest):
            self._deltas.append(PartEnded(self._start(state, part)))
            return
        state.has_calls = True
        index = self._start(state, structs.replace(part, arguments=""))
        self._deltas += (PartDelta(index, part.arguments), PartEnded(index))

    def _read_partial_call(self, part: dict[str, Any], call: dict[str, Any], state: _Candidate) -> bool:
        """A piece of a call; False if the call is whole."""
        goes_on = get(call, "willContinue") is True
        is_new = call.get("name") is not None or state.call is None
        if is_new and not goes_on and get(call, "partialArgs") is None:
            return False
        extras = {name: value for name, value in part.items() if name not in ("functionCall", "function_call")}
        if is_new:
            self._end_part(state)
            name, call_id = call.get("name"), call.get("id")
            name = name if type(name) is str else ""
            known_id = self._calls.called(name, call_id if type(call_id) is str else None)
            native = {FORMAT: extras} if extras else None
            state.has_calls = True
            state.call = PartialCall(self._start(state, ToolCallRequest(name, known_id, "", native=native)))
        elif extras and state.call is not None:
            self._deltas.append(PartExtended(state.call.index, {FORMAT: extras}))
        if state.call is not None:
            state.call.add(call)
        if not goes_on:
            self._end_part(state)
        return True

    def _end(self) -> None:
        """The bytes have ended: was it the end of the answer?"""
        rest = self._chunks.rest
        if rest:  # a server that fails between events writes its error without `data:`
            try:
                body = _decode(rest)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                self._fail(_CUT)
            else:
                is_error = isinstance(body, dict) and body.get("error") is not None
                self._fail(read_error(body) if is_error else _MALFORMED)
            return
        states = [self._candidates[number] for number in sorted(self._candidates)]
        blocked = is_blocked(self._about.get("promptFeedback"))
        is_finished = all(state.is_finished for state in states) if states else False
        if not self._chunks.is_complete or not (is_finished or blocked):
            self._fail(_CUT)
            return
        for state in states:
            self._end_part(state)
        self._report_usage()
        if not states:
            native = output_native(self._about, {}, {}, has_candidates=False)
            self._deltas.append(Finished("content_filter", native=native))
        for place, state in enumerate(states):
            self._deltas.append(self._finished(state, place, blocked))
        self._has_ended = True

    def _finished(self, state: _Candidate, place: int, blocked: bool) -> Finished:
        stop = read_stop(state.word, state.has_calls) or ("content_filter" if blocked and place == 0 else "")
        about = state.about
        if state.word != write_stop(stop):
            about["finishReason"] = state.word
        if state.number != place:
            about["index"] = state.number
        native = output_native(self._about if place == 0 else {}, about, state.unknown, has_candidates=True)
        return Finished(stop, candidate=state.number, native=native)
