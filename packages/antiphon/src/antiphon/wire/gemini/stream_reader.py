"""Streams of `streamGenerateContent`, read; `stream_writer` writes them.

Each chunk is a GenerateContentResponse with what is new. Text continues the open part with the same `thought` flag; a signature
belongs to the part it comes with, and a different one starts a new part. Usage comes in every chunk and the last one counts; so
does the last value of every field of a candidate, except citations, which are appended.

A `finishReason` is not the end: with code execution the model continues after one. A candidate is finished if nothing follows
its last `finishReason`, so `Finished` comes when the bytes end. A stream that ends otherwise, or with an error, has failed.
Normalised: empty text without a signature is dropped.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from antiphon.parts import Native, NativeExtras, OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import (
    Finished,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import encode, read_value
from antiphon.wire.gemini.errors import read_error
from antiphon.wire.gemini.messages import CONTENT_FIELDS
from antiphon.wire.gemini.native import gemini_extras, get_field, split_fields
from antiphon.wire.gemini.partial_call import PartialCall
from antiphon.wire.gemini.response import (
    CANDIDATE_FIELDS,
    RESPONSE_FIELDS,
    is_prompt_blocked,
    output_extras,
    output_part,
    read_stop_reason,
    read_usage,
    write_stop_reason,
)
from antiphon.wire.output import MAX_CANDIDATES, NOT_AN_ANSWER, ProviderError
from antiphon.wire.streams.json_array import JsonStreamReader
from antiphon.wire.streams.reader import CUT, DeltaReader
from antiphon.wire.tools.call_ids import CallIdTracker
from antiphon.wire.vendors.google import parse_time

NO_USAGE = msgspec.Raw()
"""The usage of a chunk without usage."""


class _TextPart(Struct, forbid_unknown_fields=True, gc=False):
    text: str
    thought: bool = False


class _TextContent(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[_TextPart]
    role: Literal["model"] = "model"


class _TextCandidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _TextContent
    index: Literal[0] = 0


class _TextChunk(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """More text of the only candidate. The usage is not decoded: only the last one counts."""

    candidates: tuple[_TextCandidate]
    usage_metadata: msgspec.Raw = NO_USAGE
    model_version: str = ""
    response_id: str = ""


_decode_text = msgspec.json.Decoder(_TextChunk).decode


def decode_text_chunk(data: bytes) -> _TextChunk | None:
    """The chunk if it is only more text; None otherwise."""
    try:
        return _decode_text(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


_decode = msgspec.json.Decoder().decode
MALFORMED_STREAM = ProviderError("invalid stream: not JSON", "server", code=NOT_AN_ANSWER)


class _Candidate(Struct):
    """The state of one candidate."""

    number: int
    text_index: int = -1  # the open text part
    is_thought: bool = False
    signature: Any = None
    call: PartialCall | None = None
    has_calls: bool = False
    finish_reason: Any = None
    is_finished: bool = False
    fields: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    citations: dict[str, set[bytes]] = {}  # those in each list of the citation metadata

    def merge_fields(self, fields: dict[str, Any], unknown: dict[str, Any]) -> None:
        """Add the fields of a chunk to those of the candidate."""
        for name, value in fields.items():
            known = self.fields.get(name)
            grows = name in ("groundingMetadata", "citationMetadata")
            if not grows or not isinstance(known, dict) or not isinstance(value, dict):
                self.fields[name] = value
            elif name == "groundingMetadata":
                known.update(value)
            else:
                self._append_citations(known, value)
        self.unknown.update(unknown)

    def _append_citations(self, known: dict[str, Any], later: dict[str, Any]) -> None:
        """Append the citations of a chunk to the earlier ones; chunks repeat them."""
        for name, value in later.items():
            earlier = known.get(name)
            if not isinstance(earlier, list) or not isinstance(value, list):
                known[name] = value
                self.citations.pop(name, None)
                continue
            seen = self.citations.get(name)
            if seen is None:
                seen = self.citations[name] = set(map(_citation_key, earlier))
            new = [(citation, _citation_key(citation)) for citation in value]
            earlier += [citation for citation, key in new if key not in seen]
            seen.update(key for _, key in new)


def _citation_key(citation: Any) -> bytes:
    return msgspec.json.encode(citation, order="sorted")


class StreamReader(DeltaReader[bytes]):
    """Bytes in, deltas out, however the bytes are split; SSE or a JSON array."""

    def __init__(self) -> None:
        self._chunks = JsonStreamReader()
        super().__init__(self._chunks)
        self._started: Started | None = None
        self._calls = CallIdTracker()
        self._candidates: dict[int, _Candidate] = {}
        self._parts = 0
        self._usage: Any = None  # decoded, or as bytes
        self._reported: dict[str, Any] | None = None
        self._response_fields: dict[str, Any] = {}
        self._text_candidate: _Candidate | None = None  # the only candidate, while its text is open

    def _fail(self, error: ProviderError) -> None:
        if not self._is_over:
            self._report_usage()
        super()._fail(error)

    def _read_events(self, events: list[bytes]) -> None:
        self._read_chunks(events)
        if self._chunks.is_broken:
            self._fail(MALFORMED_STREAM)

    def _read_chunks(self, chunks: list[bytes]) -> None:
        for data in chunks:
            if self._text_candidate is not None and self._read_text_chunk(data, self._text_candidate):
                continue
            if data == b"[DONE]":  # some proxies append it
                continue
            try:
                chunk = _decode(data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                self._fail(CUT if self._is_closing else MALFORMED_STREAM)
                return
            for item in chunk if type(chunk) is list else (chunk,):
                if type(item) is not dict:
                    self._fail(MALFORMED_STREAM)
                else:
                    self._read(item)
                if self._is_over:
                    return
            candidate = self._candidates.get(0) if len(self._candidates) == 1 else None
            self._text_candidate = candidate if candidate is not None and candidate.text_index >= 0 else None

    def _read_text_chunk(self, data: bytes, candidate: _Candidate) -> bool:
        """Read a chunk that only continues the open text; False, without effect, for any other."""
        chunk = decode_text_chunk(data)
        if chunk is None:
            return False
        (part,) = chunk.candidates[0].content.parts
        if part.thought is not candidate.is_thought:
            return False
        if chunk.usage_metadata is not NO_USAGE:
            usage = bytes(chunk.usage_metadata)
            if not usage.startswith(b"{") or self._reported is None:
                return False
            self._usage = usage
        candidate.is_finished = False
        if part.text:
            self._out.append(PartDelta(candidate.text_index, part.text))
        return True

    def _read(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error") is not None:
            self._fail(read_error(chunk))
            return
        candidates, usage = chunk.get("candidates"), chunk.get("usageMetadata")
        known = (candidates is not None) + (usage is not None) + ("modelVersion" in chunk) + ("responseId" in chunk)
        if len(chunk) != known or self._started is None:
            fields, unknown = split_fields(chunk, RESPONSE_FIELDS)
            candidates, usage = fields.pop("candidates", None), fields.pop("usageMetadata", None)
            self._read_head(fields, unknown)
        if type(usage) is dict:
            self._usage = usage
            if self._reported is None:
                self._report_usage()
        elif usage is not None:
            self._response_fields["usageMetadata"] = usage
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
            self._started = Started(response_id, model, parse_time(time), FORMAT, native)
            self._calls = CallIdTracker(response_id)
            self._out.append(self._started)
        elif fields.get("createTime") == gemini_extras(self._started.native).get("createTime"):
            fields.pop("createTime", None)
        self._response_fields.update(fields)
        self._response_fields.update(unknown)

    def _report_usage(self) -> None:
        if isinstance(self._usage, bytes):
            try:
                self._usage = _decode(self._usage)
            except (msgspec.DecodeError, RecursionError):  # a number out of range
                self._usage = None
        if self._usage is not None and self._usage is not self._reported:
            self._out.append(UsageReported(read_usage(self._usage)))
            self._reported = self._usage

    def _read_candidate(self, candidate: Any, position: int) -> None:
        if type(candidate) is not dict:
            self._emit_whole(self._candidate(position), Native(FORMAT, candidate))
            return
        index, content, finish_reason = candidate.get("index"), candidate.get("content"), candidate.get("finishReason")
        number = index if type(index) is int and index >= 0 else position
        if number >= MAX_CANDIDATES:
            self._fail(
                ProviderError(f"invalid stream: candidate index {number} exceeds {MAX_CANDIDATES - 1}", "server")
            )
            return
        state = self._candidate(number)
        if len(candidate) != (index is not None) + (content is not None) + (finish_reason is not None):
            fields, unknown = split_fields(candidate, CANDIDATE_FIELDS)
            content, finish_reason = fields.pop("content", None), fields.pop("finishReason", None)
            fields.pop("index", None)
            state.merge_fields(fields, unknown)
        if type(content) is dict:
            parts = content.get("parts")
            if len(content) != (parts is not None) + (content.get("role") == "model"):
                parts = self._read_unusual_content(content, state)
            if parts:
                state.is_finished = False
                for part in parts if type(parts) is list else (parts,):
                    self._read_part(part, state)
        elif content is not None:
            state.fields["content"] = content
        if finish_reason is not None:
            state.finish_reason = finish_reason
            state.is_finished = True

    def _candidate(self, number: int) -> _Candidate:
        state = self._candidates.get(number)
        if state is None:
            state = self._candidates[number] = _Candidate(number)
        return state

    def _read_unusual_content(self, content: dict[str, Any], state: _Candidate) -> Any:
        fields, extras = split_fields(content, CONTENT_FIELDS)
        if fields.get("role", "model") != "model":
            extras["role"] = fields["role"]
        if extras:
            state.fields["content"] = extras
        return fields.get("parts")

    def _read_part(self, part: Any, state: _Candidate) -> None:
        call = get_field(part, "functionCall") if type(part) is dict else None
        if type(call) is dict and self._read_partial_call(part, call, state):
            return
        read = output_part(part, read_value(part, self._calls))
        if isinstance(read, Text | Thinking):
            self._append_text(state, read.text, isinstance(read, Thinking), read.native)
        else:
            self._emit_whole(state, read)

    def _append_text(self, state: _Candidate, text: str, is_thought: bool, native: NativeExtras | None) -> None:
        """Continue the open part if flag and signature match, else start a new one."""
        extras = gemini_extras(native)
        signature = extras.get("thoughtSignature")
        is_other = bool(signature and state.signature and signature != state.signature)
        if state.text_index >= 0 and state.is_thought is is_thought and not is_other:
            if text:
                self._out.append(PartDelta(state.text_index, text))
            if extras:
                self._out.append(PartExtended(state.text_index, {FORMAT: extras}))
                state.signature = signature or state.signature
            return
        if not text and not extras:
            return
        self._end_part(state)
        part: OutputPart = Thinking(native=native or {FORMAT: {}}) if is_thought else Text("", native=native)
        state.text_index, state.is_thought, state.signature = self._start_part(state, part), is_thought, signature
        if text:
            self._out.append(PartDelta(state.text_index, text))

    def _start_part(self, state: _Candidate, part: OutputPart) -> int:
        index = self._parts
        self._parts += 1
        self._out.append(PartStarted(index, part, state.number))
        return index

    def _end_part(self, state: _Candidate) -> None:
        if state.text_index >= 0:
            self._out.append(PartEnded(state.text_index))
            state.text_index = -1
        if state.call is not None:
            index, arguments = state.call.index, encode(state.call.finish()).decode()
            self._out += (PartDelta(index, arguments), PartEnded(index))
            state.call = None

    def _emit_whole(self, state: _Candidate, part: OutputPart) -> None:
        """A complete part."""
        self._end_part(state)
        if not isinstance(part, ToolCallRequest):
            self._out.append(PartEnded(self._start_part(state, part)))
            return
        state.has_calls = True
        index = self._start_part(state, structs.replace(part, arguments=""))
        self._out += (PartDelta(index, part.arguments), PartEnded(index))

    def _read_partial_call(self, part: dict[str, Any], call: dict[str, Any], state: _Candidate) -> bool:
        """A piece of a call; False if the call is complete."""
        continues = get_field(call, "willContinue") is True
        is_new = call.get("name") is not None or state.call is None
        if is_new and not continues and get_field(call, "partialArgs") is None:
            return False
        extras = {name: value for name, value in part.items() if name not in ("functionCall", "function_call")}
        if is_new:
            self._end_part(state)
            name, call_id = call.get("name"), call.get("id")
            name = name if type(name) is str else ""
            known_id = self._calls.add_call(name, call_id if type(call_id) is str else None)
            native = {FORMAT: extras} if extras else None
            state.has_calls = True
            state.call = PartialCall(self._start_part(state, ToolCallRequest(name, known_id, "", native=native)))
        elif extras and state.call is not None:
            self._out.append(PartExtended(state.call.index, {FORMAT: extras}))
        if state.call is not None:
            state.call.add(call)
        if not continues:
            self._end_part(state)
        return True

    def _end_of_stream(self) -> None:
        """Finish the candidates, or fail if the response is not complete."""
        rest = self._chunks.rest
        if rest:  # a server that fails between events sends its error without `data:`
            try:
                body = _decode(rest)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                self._fail(CUT)
            else:
                is_error = isinstance(body, dict) and body.get("error") is not None
                self._fail(read_error(body) if is_error else MALFORMED_STREAM)
            return
        states = [self._candidates[number] for number in sorted(self._candidates)]
        blocked = is_prompt_blocked(self._response_fields.get("promptFeedback"))
        is_finished = all(state.is_finished for state in states) if states else False
        if not self._chunks.is_complete or not (is_finished or blocked):
            self._fail(CUT)
            return
        for state in states:
            self._end_part(state)
        self._report_usage()
        if not states:
            native = output_extras(self._response_fields, {}, {}, has_candidates=False)
            self._out.append(Finished("content_filter", native=native))
        for index, state in enumerate(states):
            self._out.append(self._finished(state, index, blocked))
        self._is_over = True

    def _finished(self, state: _Candidate, index: int, blocked: bool) -> Finished:
        stop = read_stop_reason(state.finish_reason, state.has_calls) or (
            "content_filter" if blocked and index == 0 else ""
        )
        fields = state.fields
        if state.finish_reason != write_stop_reason(stop):
            fields["finishReason"] = state.finish_reason
        if state.number != index:
            fields["index"] = state.number
        native = output_extras(self._response_fields if index == 0 else {}, fields, state.unknown, has_candidates=True)
        return Finished(stop, candidate=state.number, native=native)
