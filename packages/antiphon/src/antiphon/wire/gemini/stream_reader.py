"""Streams of `streamGenerateContent`, read; `stream_writer` writes them.

Each chunk is a GenerateContentResponse with what is new; `candidate_reader` reads each candidate. Usage comes in every chunk and
the last one counts; so does the last value of every other field.

A `finishReason` is not the end: with code execution the model continues after one. A candidate is finished if nothing follows
its last `finishReason`, so `Finished` comes when the bytes end. A stream that ends otherwise, or with an error, has failed.
Normalised: empty text without a signature is dropped; `index` is the place of a candidate in the order in which they come.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import Native
from antiphon.wire.delta import Finished, PartDelta, Started, UsageReported
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.candidate_reader import Candidate
from antiphon.wire.gemini.errors import read_error
from antiphon.wire.gemini.native import as_list, gemini_extras, split_fields
from antiphon.wire.gemini.response import (
    CANDIDATE_FIELDS,
    NO_CANDIDATES,
    RESPONSE_FIELDS,
    is_prompt_blocked,
    output_extras,
    read_usage,
    take_names,
    take_parts,
)
from antiphon.wire.output import NOT_AN_ANSWER, ProviderError
from antiphon.wire.shapes import Shape
from antiphon.wire.shared_google import parse_time
from antiphon.wire.streams.json_array import JsonStreamReader
from antiphon.wire.streams.reader import CUT, CandidateReader
from antiphon.wire.tools.call_ids import CallIdTracker

NO_USAGE = msgspec.Raw()
(_BRACE,) = b"{"
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
    create_time: str | None = None


_decode_chunk = msgspec.json.Decoder(TextChunk).decode


class StreamReader(CandidateReader[TextChunk, Candidate]):
    """Bytes in, deltas out, however the bytes are split; SSE or a JSON array."""

    def __init__(self) -> None:
        self._chunks = JsonStreamReader()
        super().__init__(self._chunks, _decode_chunk)
        self._started = Started()
        self._create_time: str | None = None
        self._calls = CallIdTracker()
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

    def _read_event(self, chunk: TextChunk) -> None:
        if not self._is_started or (chunk.create_time is not None and chunk.create_time != self._create_time):
            self._create_time = chunk.create_time
            time = {} if chunk.create_time is None else {"createTime": chunk.create_time}
            self._read_head({"modelVersion": chunk.model_version, "responseId": chunk.response_id, **time}, {})
        if chunk.usage_metadata is not NO_USAGE:
            if memoryview(chunk.usage_metadata)[0] != _BRACE:
                self._read_odd(self._given)
                return
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
                    state.append_text(part.text, part.thought, part.thought_signature)
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
        model, response_id = take_names(fields, unknown)
        if not self._is_started:
            time = fields.pop("createTime", None)
            native = {FORMAT: {"createTime": time}} if time is not None else None
            self._started = Started(response_id, model, parse_time(time), FORMAT, native)
            self._calls = CallIdTracker(response_id)
            self._begin(self._started)
        else:
            if fields.get("createTime") == gemini_extras(self._started.native).get("createTime"):
                fields.pop("createTime", None)
            if self._started.model:
                unknown.pop("modelVersion", None)
            if self._started.id:
                unknown.pop("responseId", None)
        self._response_fields.update(fields)
        self._response_fields.update(unknown)

    def _report_usage(self) -> None:
        if type(self._usage) is msgspec.Raw:
            given, self._usage = self._usage, None  # which stays if it cannot be read
            self._usage = decode_json(given)
        if self._usage is not None and self._usage is not self._reported:
            usage = read_usage(self._usage)
            if usage is not None:
                self.parts.deltas.append(UsageReported(usage))
            self._reported = self._usage

    def _read_candidate(self, value: Any, position: int) -> None:
        fields, unknown = split_fields(value if type(value) is dict else {}, CANDIDATE_FIELDS)
        candidate = self._candidate(fields.pop("index", None), position)
        if candidate is None:
            return
        if type(value) is not dict:
            candidate.emit_whole(Native(FORMAT, value))
            return
        parts, finish_reason = take_parts(fields), fields.pop("finishReason", None)
        candidate.merge_fields(fields, unknown)
        for part in parts:
            candidate.read_part(part)
        if finish_reason is not None:
            candidate.finish_reason, candidate.is_finished = finish_reason, True

    def _new_candidate(self, number: int) -> Candidate:
        return Candidate(number, self.parts, self._calls)

    def _end_of_stream(self) -> None:
        """Finish the candidates, or fail if the response is not complete."""
        rest = self._chunks.rest
        if rest:  # a server that fails between events sends its error without `data:`
            try:
                body = decode_json(rest)
            except NOT_JSON:
                self._fail(CUT)
            else:
                is_error = isinstance(body, dict) and body.get("error") is not None
                self._fail(read_error(body) if is_error else MALFORMED_STREAM)
            return
        candidates = list(self._candidates.values())
        blocked = is_prompt_blocked(self._response_fields.get("promptFeedback"))
        is_finished = all(candidate.is_finished for candidate in candidates) if candidates else False
        if not self._chunks.is_complete or not (is_finished or blocked):
            self._fail(CUT)
            return
        for candidate in candidates:
            candidate.end_part()
        self._report_usage()
        if not candidates:
            native = output_extras(self._response_fields, {}, {})
            self._end(Finished("content_filter", native=native, source=NO_CANDIDATES))
        fields = [self._response_fields, *({} for _ in candidates[1:])]
        self._end(
            *(candidate.finished(fields[index], blocked and index == 0) for index, candidate in enumerate(candidates))
        )
