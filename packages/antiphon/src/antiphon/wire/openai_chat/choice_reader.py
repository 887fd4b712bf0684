"""One choice of a streamed response: its chunks in, neutral deltas out.

Text, reasoning and refusal have one open part at a time: another kind ends it, and text that continues later is a new part. Calls
stay open to the end, because their fragments may come in any order. A fragment belongs to the call at its `index`; without one to
that at its position in an array of several; otherwise to the last. It starts a new call if its id differs and it has a name
(Ollama and Gemini give every call the index 0, other hosts every fragment a new id). Id, name and type are taken once; arguments
are appended if they are text and merged if they are objects. What comes in pieces that no delta can express (audio, reasoning
state) is collected and emitted at the end.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import Native, NativeExtras, OutputPart, Refusal, Source, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, PartDelta
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.content import read_part, thinking_text
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS, REASONING_STATE_FIELDS
from antiphon.wire.openai_chat.messages import read_audio_output, read_generated_image, reasoning_text
from antiphon.wire.openai_chat.response import candidate_native, read_stop_reason
from antiphon.wire.openai_chat.shapes import (
    CALLED,
    DELTAS,
    FRAGMENTS,
    CalledFragment,
    CallFragment,
    ChunkChoice,
    DeltaShape,
)
from antiphon.wire.openai_chat.tools import is_object
from antiphon.wire.provenance import LEGACY_FUNCTION
from antiphon.wire.shapes import Loose
from antiphon.wire.streams.json_array import ObjectBraces
from antiphon.wire.streams.reader import GrowingObject, PartStream

_IGNORED_DELTA_FIELDS = frozenset(("padding", "token_id", "obfuscation"))
_IGNORED_CHOICE_FIELDS = frozenset(("delta", "index", "message", "text", "token_ids", "role", "usage"))
_NO_DELTA = DeltaShape()
_NO_CALL = CalledFragment()
_NOTHING: dict[str, Any] = {}
_LEGACY_CALL_KEY = -1_000_000


class _Call(Struct):
    """A call whose fragments are arriving; `place` counts the calls."""

    place: int
    id: str = ""
    name: str = ""
    freeform: bool = False
    native: NativeExtras | None = None
    source: Source | None = None
    number: int = -1  # the index of its part, once it is started
    pending: list[str] = []  # arguments that came before the call could be started
    pieces: list[str] = []
    merged: dict[str, Any] | None = None
    is_object: bool | None = None  # not known before the first brace is closed
    braces: ObjectBraces = msgspec.field(default_factory=ObjectBraces)

    def is_whole(self) -> bool:
        """Whether the arguments so far are an object."""
        if self.is_object is None and self.braces.are_closed(self.pieces):
            self.is_object = is_object("".join(self.pieces))
        return self.merged is not None or self.is_object is True


class ChoiceReader:
    """The state of one choice, whose parts go into `parts`. `cumulative_reasoning`: every chunk repeats the reasoning so far
    (MiniMax)."""

    def __init__(self, number: int, parts: PartStream, *, cumulative_reasoning: bool = False) -> None:
        self.finish_reason: Any = None
        self._number = number
        self._parts = parts
        self._has_field = False
        self._cumulative_reasoning = cumulative_reasoning
        self._reasoning_so_far: list[str] = []
        self._reasoning_size = 0
        self._open: type | None = None
        self._open_index = -1
        self._calls: list[_Call] = []
        self._by_key: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._next_id = 0  # what the next id that has to be made up ends with
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._reasoning_state: dict[str, Any] = {}
        self._logprobs: GrowingObject | None = None
        self._audio = GrowingObject({}, ("transcript",))
        self._audio_data: list[str] = []

    def read(self, choice: ChunkChoice, more: dict[str, Any] = _NOTHING) -> None:
        """Read the choice in one chunk; `more` has the fields that its shape does not name."""
        delta, others = choice.delta, _NOTHING
        if delta is None:
            delta, others = self._loose_delta(more)
        if delta.reasoning_content or delta.reasoning or others:
            self._read_reasoning(delta, others)
        content = delta.content
        if type(content) is str:
            if content:
                if self._open is not Text:
                    self._start_part(Text, Text(""))
                self._parts.deltas.append(PartDelta(self._open_index, content))
        elif content is not None:
            self._read_content(content)
        if delta.tool_calls:
            self._read_fragments(delta.tool_calls)
        if delta.refusal and type(delta.refusal) is str:
            self._append_text(Refusal, delta.refusal)
        if others:
            self._read_others(others)
        finish_reason = choice.finish_reason
        if finish_reason is not None and finish_reason != "":
            self.finish_reason = finish_reason
        if more or choice.logprobs is not None:
            self._read_extras(choice.logprobs, more)

    def _loose_delta(self, more: dict[str, Any]) -> tuple[DeltaShape, dict[str, Any]]:
        """A delta that does not fit its shape, and the fields that this does not name."""
        given = more.get("delta")
        if type(given) is not dict and not self._parts.of(self._number):
            given = more.get("message")  # a host that sends the message whole
        fitted = DELTAS.fit(given) if type(given) is dict else _NO_DELTA
        return (fitted.shape, fitted.more) if type(fitted) is Loose else (fitted, _NOTHING)

    def _read_extras(self, logprobs: Any, more: dict[str, Any]) -> None:
        for key, value in more.items():
            if key not in _IGNORED_CHOICE_FIELDS and value != {}:
                self._choice[key] = value
        if type(logprobs) is dict and self._logprobs is not None:
            self._logprobs.add(logprobs)
        elif type(logprobs) is dict:
            self._logprobs = GrowingObject(logprobs)
        elif logprobs is not None:
            self._choice["logprobs"], self._logprobs = logprobs, None

    def _read_reasoning(self, delta: DeltaShape, others: dict[str, Any]) -> None:
        given = {field: getattr(delta, field) for field in REASONING_FIELDS}
        fields = [field for field, text in given.items() if type(text) is str and text]
        if fields:
            text = given[fields[0]]
            self._append_reasoning(text, fields[0], [field for field in fields[1:] if given[field] == text])
            self._has_field = True
        elif "reasoning_details" in others and not self._has_field:  # else the text was already emitted
            self._append_reasoning(reasoning_text(others["reasoning_details"]), "reasoning_details", [])

    def _read_others(self, others: dict[str, Any]) -> None:
        for key, value in others.items():
            if key not in _IGNORED_DELTA_FIELDS:
                self._read_other(key, value)

    def _read_other(self, key: str, value: Any) -> None:
        if key in REASONING_STATE_FIELDS:
            if key == "reasoning_details":
                value = _append_details(self._reasoning_state.get(key), value)
            self._reasoning_state[key] = value
        elif key == "function_call" and type(value) is dict:
            self._read_function_call(value)
        elif key == "audio" and type(value) is dict:
            self._read_audio(value)
        elif key == "annotations" and type(value) is list:
            if value and self._open is Text:
                self._parts.extend(self._open_index, {FORMAT: {"annotations": value}})
            elif type(self._message.get(key)) is list:
                self._message[key] += value
            elif value:
                self._message[key] = value
        elif key == "images" and type(value) is list and value and all(map(read_generated_image, value)):
            for entry in value:
                self._emit_whole(read_generated_image(entry))
        else:
            self._message[key] = value

    def _read_content(self, content: Any) -> None:
        """Content that is not a string."""
        if type(content) is not list:
            self._message["content"] = content
            return
        for piece in content:
            thought = thinking_text(piece)
            part = read_part(piece) if thought is None else None
            if thought is not None:
                self._append_reasoning(thought, "thinking", [])
            elif type(part) is Text and part.native is None:
                if part.text:
                    self._append_text(Text, part.text)
            else:
                self._emit_whole(part)

    def _append_text(self, kind: type, text: str) -> None:
        if self._open is not kind:
            self._start_part(kind, kind(""))
        self._parts.text(self._open_index, text)

    def _append_reasoning(self, text: str, field: str, also: list[str]) -> None:
        if self._cumulative_reasoning:
            text = self._new_reasoning(text)
        if not text:
            return
        if self._open is not Thinking:
            self._start_part(Thinking, Thinking(source=Source(FORMAT, (field, *also))))
        self._parts.deltas.append(PartDelta(self._open_index, text))

    def _new_reasoning(self, text: str) -> str:
        """The text after the reasoning so far."""
        known = self._reasoning_size
        if len(text) >= known and text.startswith("".join(self._reasoning_so_far)):
            self._reasoning_so_far, self._reasoning_size = [text], len(text)
            return text[known:]
        self._reasoning_so_far.append(text)
        self._reasoning_size += len(text)
        return text

    def _start_part(self, kind: type, part: OutputPart) -> None:
        self._end_part()
        self._open, self._open_index = kind, self._parts.start(part, self._number)

    def _end_part(self) -> None:
        if self._open is not None:
            self._open = None
            self._parts.end(self._open_index)

    def _emit_whole(self, part: Any) -> None:
        self._start_part(Native, part)
        self._end_part()

    def _read_audio(self, audio: dict[str, Any]) -> None:
        if type(audio.get("data")) is str:
            self._audio_data.append(audio.pop("data"))
        self._audio.add(audio)

    def _read_fragments(self, fragments: list[Any]) -> list[int]:
        """Read fragments; the number of the call that each of them belongs to, counted from the first call."""
        numbers: list[int] = []
        for offset, given in enumerate(fragments):
            fragment, more = (given.shape, given.more) if type(given) is Loose else (given, _NOTHING)
            if fragment is None:
                numbers.append(-1)
                continue
            called, others = fragment.function or fragment.custom, _NOTHING
            if called is None:
                called, others = _loose_called(fragment, more)
            call = self._call_of(fragment, called, offset if len(fragments) > 1 else None)
            if not call.id or not call.name or fragment.custom is not None:
                self._add(call, fragment, called)
            if others or not more.keys() <= {"function", "custom"}:
                self._extend(call, {name: more[name] for name in more if name not in ("function", "custom")}, others)
            self._start_and_append(call, called)
            numbers.append(call.place)
        return numbers

    def number_fragments(self, fragments: list[Any]) -> list[int]:
        """The number of the call that each of these fragments of plain values belongs to."""
        numbers = self._read_fragments([FRAGMENTS.fit(fragment) for fragment in fragments])
        self._parts.deltas.clear()
        return numbers

    def _call_of(self, fragment: CallFragment, called: CalledFragment, offset: int | None) -> _Call:
        index, call_id = fragment.index, fragment.id
        key = index if type(index) is int else None if offset is None else -1 - offset
        call = self._by_key.get(key) if key is not None else self._calls[-1] if self._calls else None
        if type(call_id) is str and call_id:
            if key is None:
                call = self._by_id.get(call_id) or (call if not called.name else None)
            elif call is not None and call.id and call.id != call_id and called.name:
                call = None
        elif call is not None and called.name and called.arguments and fragment.custom is None and call.is_whole():
            call = None  # without an id, a name and arguments start another call if the last one is complete
        if call is None:
            call = self._open_call()
            call.source = LEGACY_FUNCTION if key == _LEGACY_CALL_KEY else None
        if key is not None:
            self._by_key[key] = call
        return call

    def _open_call(self) -> _Call:
        self._end_part()
        if self._calls and self._calls[-1].number < 0:  # those before it were started when it was opened
            self._start_call(self._calls[-1])
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call

    def _add(self, call: _Call, fragment: CallFragment, called: CalledFragment) -> None:
        """What a call gets once: id, name and type."""
        if not call.freeform and fragment.function is None and fragment.custom is not None:
            call.freeform = True
        if not call.id and type(fragment.id) is str:
            call.id = fragment.id
            self._by_id.setdefault(call.id, call)
        if not call.name and type(called.name) is str:
            call.name = called.name

    def _start_and_append(self, call: _Call, called: CalledFragment) -> None:
        if call.number < 0 and call.id and call.name:
            self._start_call(call)
        arguments = called.input if call.freeform else called.arguments
        if type(arguments) is str:
            if arguments:
                call.pieces.append(arguments)
                if call.number < 0:
                    call.pending.append(arguments)
                else:
                    self._parts.deltas.append(PartDelta(call.number, arguments))
        elif type(arguments) is dict:
            if call.merged is None:
                call.merged = {}
            _merge_object(call.merged, arguments)

    def _extend(self, call: _Call, own: dict[str, Any], more: dict[str, Any]) -> None:
        """Add what a fragment has beside the known fields, and what its function has."""
        if more:
            own["custom" if call.freeform else "function"] = more
        if call.number >= 0:
            self._parts.extend(call.number, {FORMAT: own})
        elif call.native is None:
            call.native = {FORMAT: own}
        else:
            call.native[FORMAT].update(own)

    def _start_call(self, call: _Call) -> None:
        if not call.id:
            while f"call_{self._next_id}" in self._by_id:
                self._next_id += 1
            call.id = f"call_{self._next_id}"
            self._by_id[call.id] = call
        part = ToolCallRequest(call.name, call.id, "", call.freeform, native=call.native, source=call.source)
        call.number = self._parts.start(part, self._number)
        for piece in call.pending:
            self._parts.text(call.number, piece)
        call.pending = []

    def _read_function_call(self, value: dict[str, Any]) -> None:
        """A piece of the only call of the legacy API."""
        called = CalledFragment(value.get("name"), value.get("arguments"))
        if called.name or called.arguments or _LEGACY_CALL_KEY in self._by_key:
            call_id = f"call_function_{self._number}"
            self._read_fragments([CallFragment(_LEGACY_CALL_KEY, call_id, function=called)])

    def close(self) -> None:
        """Emit what is pending, and end what is open."""
        self._end_part()
        for call in self._calls:
            if call.number < 0 and not (call.name or call.pieces or call.merged):
                continue
            if call.number < 0:
                self._start_call(call)
            if call.merged is not None:
                self._parts.text(call.number, msgspec.json.encode(call.merged).decode())
            self._parts.end(call.number)
        if self._audio.fields or self._audio_data:
            audio = {**self._audio.whole(), "data": _join_base64(self._audio_data)}
            if type(audio.get("id")) is str and audio["id"]:
                self._emit_whole(read_audio_output(audio))
            else:
                self._message["audio"] = audio
        details = self._reasoning_state.get("reasoning_details")
        if type(details) is list:
            whole = [entry.whole() if type(entry) is GrowingObject else entry for entry in details]
            self._reasoning_state["reasoning_details"] = whole
        if self._reasoning_state:
            self._emit_whole(Thinking(native={FORMAT: self._reasoning_state}))

    def finished(self, extras: dict[str, Any]) -> Finished:
        """The end of the choice; `extras` are those of the whole response."""
        parts = self._parts.of(self._number)
        reason = read_stop_reason(self.finish_reason, parts)
        if self._logprobs is not None and self._logprobs.fields:
            self._choice["logprobs"] = self._logprobs.whole()
        native = candidate_native(self.finish_reason, reason, parts, self._choice, self._message)
        if extras:
            native = {FORMAT: {**extras, **(native or {}).get(FORMAT, {})}}
        return Finished(reason, candidate=self._number, native=native)


def _loose_called(fragment: CallFragment, more: dict[str, Any]) -> tuple[CalledFragment, dict[str, Any]]:
    """What a fragment whose function does not fit says about it, and fields that have no place."""
    for name in ("function", "custom"):
        if type(more.get(name)) is dict:
            fitted = CALLED.fit(more[name])
            shape, others = (fitted.shape, fitted.more) if type(fitted) is Loose else (fitted, _NOTHING)
            setattr(fragment, name, shape)
            return shape, others
    return _NO_CALL, _NOTHING


def _merge_object(known: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        inner = known.get(key)
        if type(inner) is dict and type(value) is dict:
            _merge_object(inner, value)
        else:
            known[key] = value


def _append_details(known: Any, more: Any) -> Any:
    """OpenRouter's details with more entries; text of the same entry is appended."""
    if type(more) is not list or not more:
        return more if more else known
    details = known if type(known) is list else []
    for entry in more:
        last = details[-1] if details else None
        if type(entry) is not dict:
            details.append(entry)
        elif type(last) is GrowingObject and type(known) is list and _is_same_detail(last.fields, entry):
            last.add(entry)
        else:
            details.append(GrowingObject(entry, ("text", "summary")))
    return details


def _is_same_detail(last: dict[str, Any], entry: dict[str, Any]) -> bool:
    is_same = all(last.get(key) == entry.get(key) for key in ("type", "index"))
    return is_same and entry.get("type") in ("reasoning.text", "reasoning.summary")


def _join_base64(pieces: list[str]) -> str:
    """Base64 from pieces; padded pieces must be decoded first."""
    if not any(piece.endswith("=") for piece in pieces[:-1]):
        return "".join(pieces)
    try:
        return base64.b64encode(b"".join(base64.b64decode(piece) for piece in pieces)).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)
