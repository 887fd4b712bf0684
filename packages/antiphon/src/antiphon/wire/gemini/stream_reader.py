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
from msgspec import Struct

from antiphon.parts import Native, NativeExtras, OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, PartDelta, Started, UsageReported
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import SOURCE, encode, read_value
from antiphon.wire.gemini.errors import read_error
from antiphon.wire.gemini.messages import CONTENT_FIELDS
from antiphon.wire.gemini.native import as_list, gemini_extras, get_field, split_fields
from antiphon.wire.gemini.partial_call import PartialCall
from antiphon.wire.gemini.response import (
    CANDIDATE_FIELDS,
    NO_CANDIDATES,
    RESPONSE_FIELDS,
    STOP_REASONS,
    is_prompt_blocked,
    output_extras,
    output_part,
    read_stop_reason,
    read_usage,
)
from antiphon.wire.output import MAX_CANDIDATES, NOT_AN_ANSWER, ProviderError
from antiphon.wire.shapes import INVALID, Shape
from antiphon.wire.streams.json_array import JsonStreamReader
from antiphon.wire.streams.reader import CUT, EventReader, decode_json
from antiphon.wire.streams.sse import SseEvent
from antiphon.wire.tools.call_ids import CallIdTracker
from antiphon.wire.vendors.google import parse_time

NO_USAGE = msgspec.Raw()
"""The usage of a chunk without usage."""
MALFORMED_STREAM = ProviderError("invalid stream: not JSON", "server", code=NOT_AN_ANSWER)


class TextPart(Shape, rename="camel"):
    text: str
    thought: bool = False
    thought_signature: str | None = None


class TextContent(Shape):
    parts: list[TextPart]
    role: Literal["model"] = "model"


class TextCandidate(Shape, rename="camel"):
    content: TextContent
    index: int | None = None
    finish_reason: str | None = None


class TextChunk(Shape, rename="camel"):
    """A chunk with only text, as nearly all are. The usage is not decoded: only the last one counts."""

    candidates: list[TextCandidate]
    usage_metadata: msgspec.Raw = NO_USAGE
    model_version: str = ""
    response_id: str = ""


_decode_chunk = msgspec.json.Decoder(TextChunk).decode


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


class StreamReader(EventReader[TextChunk]):
    """Bytes in, deltas out, however the bytes are split; SSE or a JSON array."""

    def __init__(self) -> None:
        self._chunks = JsonStreamReader()
        super().__init__(self._chunks, _decode_chunk)
        self._started = Started()
        self._calls = CallIdTracker()
        self._candidates: dict[int, _Candidate] = {}
        self._usage: Any = None  # the last one, not decoded where that was not needed
        self._reported: dict[str, Any] | None = None
        self._response_fields: dict[str, Any] = {}

    def _fail(self, error: ProviderError) -> None:
        if not self._is_over:
            self._report_usage()
        super()._fail(error)

    def _malformed(self, problem: str) -> None:
        del problem
        self._fail(CUT if self._is_closing else MALFORMED_STREAM)

    def _read(self, events: list[SseEvent]) -> None:
        super()._read(events)
        if self._chunks.is_broken:
            self._fail(MALFORMED_STREAM)

    def _read_event(self, chunk: TextChunk) -> None:
        if not self._is_started:
            self._read_head({"modelVersion": chunk.model_version, "responseId": chunk.response_id}, {})
        if chunk.usage_metadata is not NO_USAGE:
            self._usage = chunk.usage_metadata
            if self._reported is None:
                self._report_usage()
        for position, candidate in enumerate(chunk.candidates):
            index = candidate.index
            state = self._candidates.get(position if index is None else index) or self._candidate(index, position)
            if state is None:
                return
            for part in candidate.content.parts:
                state.is_finished = False
                if part.thought_signature is None and part.thought is state.is_thought and state.text_index >= 0:
                    if part.text:  # most parts: more of the open text
                        self.parts.deltas.append(PartDelta(state.text_index, part.text))
                else:
                    self._append_text(state, part.text, part.thought, part.thought_signature)
            if candidate.finish_reason is not None:
                state.finish_reason, state.is_finished = candidate.finish_reason, True

    def _read_other(self, value: Any) -> None:
        if type(value) is not list:
            self._malformed("")
            return
        for item in value:
            if type(item) is dict:
                self._read_object(b"", item)
            else:
                self._malformed("")
            if self._is_over:
                return

    def _read_object(self, name: bytes, value: dict[str, Any]) -> None:
        del name
        if value.get("error") is not None:
            self._fail(read_error(value))
            return
        fields, unknown = split_fields(value, RESPONSE_FIELDS)
        candidates, usage = fields.pop("candidates", None), fields.pop("usageMetadata", None)
        self._read_head(fields, unknown)
        if type(usage) is dict:
            self._usage = usage
            if self._reported is None:
                self._report_usage()
        elif usage is not None:
            self._response_fields["usageMetadata"] = usage
        for position, candidate in enumerate(as_list(candidates)):
            self._read_candidate(candidate, position)

    def _read_head(self, fields: dict[str, Any], unknown: dict[str, Any]) -> None:
        for name in ("modelVersion", "responseId"):
            if type(fields.get(name, "")) is not str:
                unknown[name] = fields.pop(name)
        model, response_id = fields.pop("modelVersion", ""), fields.pop("responseId", "")
        if not self._is_started:
            time = fields.pop("createTime", None)
            native = {FORMAT: {"createTime": time}} if time is not None else None
            self._started = Started(response_id, model, parse_time(time), FORMAT, native)
            self._calls = CallIdTracker(response_id)
            self._begin(self._started)
        elif fields.get("createTime") == gemini_extras(self._started.native).get("createTime"):
            fields.pop("createTime", None)
        self._response_fields.update(fields)
        self._response_fields.update(unknown)

    def _report_usage(self) -> None:
        if type(self._usage) is msgspec.Raw:
            try:
                self._usage = decode_json(self._usage)
            except INVALID:  # a number out of range
                self._usage = None
            if type(self._usage) is not dict:
                if self._usage is not None:
                    self._response_fields["usageMetadata"] = self._usage
                self._usage = self._reported
        if self._usage is not None and self._usage is not self._reported:
            usage = read_usage(self._usage)
            if usage is not None:
                self.parts.deltas.append(UsageReported(usage))
            self._reported = self._usage

    def _read_candidate(self, candidate: Any, position: int) -> None:
        fields, unknown = split_fields(candidate if type(candidate) is dict else {}, CANDIDATE_FIELDS)
        state = self._candidate(fields.pop("index", None), position)
        if state is None:
            return
        if type(candidate) is not dict:
            self._emit_whole(state, Native(FORMAT, candidate))
            return
        content, finish_reason = fields.pop("content", None), fields.pop("finishReason", None)
        state.merge_fields(fields, unknown)
        if type(content) is dict:
            for part in as_list(self._read_content(content, state) or None):
                state.is_finished = False
                self._read_part(part, state)
        elif content is not None:
            state.fields["content"] = content
        if finish_reason is not None:
            state.finish_reason, state.is_finished = finish_reason, True

    def _candidate(self, index: Any, position: int) -> _Candidate | None:
        """The state of a candidate; None if its index is impossible."""
        number = index if type(index) is int and index >= 0 else position
        if number >= MAX_CANDIDATES:
            problem = f"invalid stream: candidate index {number} exceeds {MAX_CANDIDATES - 1}"
            self._fail(ProviderError(problem, "server"))
            return None
        state = self._candidates.get(number)
        if state is None:
            state = self._candidates[number] = _Candidate(number)
        return state

    def _read_content(self, content: dict[str, Any], state: _Candidate) -> Any:
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
            native = read.native
            signature = gemini_extras(native).get("thoughtSignature")
            self._append_text(state, read.text, isinstance(read, Thinking), signature, native)
        else:
            self._emit_whole(state, read)

    def _append_text(
        self, state: _Candidate, text: str, is_thought: bool, signature: Any, native: NativeExtras | None = None
    ) -> None:
        """Continue the open part if flag and signature match, else start a new one."""
        if native is None and signature is not None:
            native = {FORMAT: {"thoughtSignature": signature}}
        extras = gemini_extras(native)
        is_other = bool(signature and state.signature and signature != state.signature)
        if state.text_index >= 0 and state.is_thought is is_thought and not is_other:
            self.parts.text(state.text_index, text)
            if extras:
                self.parts.extend(state.text_index, {FORMAT: extras})
                state.signature = signature or state.signature
            return
        if not text and not extras:
            return
        self._end_part(state)
        part: OutputPart = Thinking(native=native, source=SOURCE) if is_thought else Text("", native=native)
        state.text_index, state.is_thought, state.signature = (
            self.parts.start(part, state.number),
            is_thought,
            signature,
        )
        self.parts.text(state.text_index, text)

    def _end_part(self, state: _Candidate) -> None:
        if state.text_index >= 0:
            self.parts.end(state.text_index)
            state.text_index = -1
        if state.call is not None:
            self.parts.text(state.call.index, encode(state.call.finish()).decode())
            self.parts.end(state.call.index)
            state.call = None

    def _emit_whole(self, state: _Candidate, part: OutputPart) -> None:
        """A complete part."""
        self._end_part(state)
        state.has_calls = state.has_calls or type(part) is ToolCallRequest
        self.parts.whole(part, state.number)

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
            state.call = PartialCall(self.parts.start(ToolCallRequest(name, known_id, "", native=native), state.number))
        elif extras and state.call is not None:
            self.parts.extend(state.call.index, {FORMAT: extras})
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
                body = decode_json(rest)
            except INVALID:
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
            native = output_extras(self._response_fields, {}, {})
            self._end(Finished("content_filter", native=native, source=NO_CANDIDATES))
        self._end(*(self._finished(state, index, blocked) for index, state in enumerate(states)))

    def _finished(self, state: _Candidate, index: int, blocked: bool) -> Finished:
        stop = read_stop_reason(state.finish_reason, state.has_calls) or (
            "content_filter" if blocked and index == 0 else ""
        )
        fields = state.fields
        if state.finish_reason != STOP_REASONS.write(stop):
            fields["finishReason"] = state.finish_reason
        if state.number != index:
            fields["index"] = state.number
        native = output_extras(self._response_fields if index == 0 else {}, fields, state.unknown)
        return Finished(stop, candidate=state.number, native=native)
