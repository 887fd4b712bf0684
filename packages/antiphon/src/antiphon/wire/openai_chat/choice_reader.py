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
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import Native, NativeExtras, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.call_restorer import LEGACY_FUNCTION_EXTRAS
from antiphon.wire.delta import Finished, ModelOutputDelta, PartDelta, PartEnded, PartExtended, PartStarted
from antiphon.wire.loss import other_fields
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.assistant import read_audio_output, read_generated_image, reasoning_text
from antiphon.wire.openai_chat.content import read_part, thinking_text
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS, REASONING_STATE_FIELDS
from antiphon.wire.openai_chat.response import candidate_native, read_stop_reason
from antiphon.wire.openai_chat.tools import is_object
from antiphon.wire.streams.json_array import ObjectBraces

_REASONING = frozenset((*REASONING_FIELDS, "reasoning_details"))
_IGNORED_DELTA_FIELDS = frozenset(("role", "padding", "token_id", "obfuscation"))
_BASIC_CHOICE_FIELDS = frozenset(("index", "delta", "finish_reason", "logprobs"))
_IGNORED_CHOICE_FIELDS = frozenset(("delta", "index", "finish_reason", "message", "text", "token_ids", "role", "usage"))
_FRAGMENT_KEYS = frozenset(("index", "id", "type", "function", "custom"))
_CALLED_KEYS = frozenset(("name", "arguments", "input"))
_LEGACY_CALL_KEY = -1_000_000

Deltas = list[ModelOutputDelta]


class _Call(Struct):
    """A call whose fragments are arriving; `place` counts the calls."""

    place: int
    id: str = ""
    name: str = ""
    freeform: bool = False
    native: NativeExtras | None = None
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


class _Detail(Struct):
    """An entry of OpenRouter's details, and the pieces of its texts."""

    fields: Any
    texts: dict[str, list[str]] = {}

    def add(self, entry: dict[str, Any]) -> None:
        """More of the same entry: text is appended, everything else replaced."""
        for key, value in entry.items():
            known = self.fields.get(key)
            if key in ("text", "summary") and type(known) is str and type(value) is str:
                self.texts.setdefault(key, [known]).append(value)
            elif value is not None:
                self.texts.pop(key, None)
                self.fields[key] = value

    def whole(self) -> Any:
        if not self.texts:
            return self.fields
        return {**self.fields, **{name: "".join(pieces) for name, pieces in self.texts.items()}}


class ChoiceReader:
    """The state of one choice. `numbers` counts the parts of all choices; `cumulative_reasoning`: every chunk repeats the
    reasoning so far (MiniMax)."""

    def __init__(self, number: int, numbers: Iterator[int], *, cumulative_reasoning: bool = False) -> None:
        self.finish_reason: Any = None
        self._number = number
        self._numbers = numbers
        self._has_field = False
        self._cumulative_reasoning = cumulative_reasoning
        self._reasoning_so_far: list[str] = []
        self._reasoning_size = 0
        self._open: type | None = None
        self.open_number = -1
        self._parts: list[OutputPart] = []
        self._calls: list[_Call] = []
        self._by_key: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._next_id = 0  # what the next id that has to be made up ends with
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._reasoning_state: dict[str, Any] = {}
        self._audio: dict[str, Any] = {}
        self._audio_pieces: dict[str, list[str]] = {}

    @property
    def has_open_text(self) -> bool:
        """Whether part `open_number` is an open text, and no finish reason came yet."""
        return self._open is Text and self.finish_reason is None

    def read(self, choice: dict[str, Any], out: Deltas) -> None:
        """Read the choice in one chunk."""
        delta = choice.get("delta")
        if type(delta) is dict:
            self._read_delta(delta, out)
        elif type(choice.get("message")) is dict and not self._parts:
            self._read_delta(choice["message"], out)  # a host that sends the message whole
        finish_reason = choice.get("finish_reason")
        if finish_reason is not None and finish_reason != "":
            self.finish_reason = finish_reason
        if not choice.keys() <= _BASIC_CHOICE_FIELDS or choice.get("logprobs") is not None:
            self._read_extras(choice)

    def _read_extras(self, choice: dict[str, Any]) -> None:
        for key, value in choice.items():
            if value is None or key in _IGNORED_CHOICE_FIELDS or value == {}:
                continue
            known = self._choice.get(key)
            if key == "logprobs" and type(known) is dict and type(value) is dict:
                for name, more in value.items():
                    before = known.setdefault(name, None)
                    if type(before) is list and type(more) is list:
                        before += more
                    elif more is not None:
                        known[name] = more
            else:
                self._choice[key] = value

    def _read_delta(self, delta: dict[str, Any], out: Deltas) -> None:
        if not _REASONING.isdisjoint(delta):
            self._read_reasoning(delta, out)
        for key, value in delta.items():
            if value is None or key in _IGNORED_DELTA_FIELDS:
                continue
            if key == "content":
                self._read_content(value, out)
            elif key == "tool_calls":
                self._read_fragments(value, out)
            elif key == "refusal":
                if type(value) is str and value:
                    self._append_text(Refusal, value, out)
            elif key not in REASONING_FIELDS:
                self._read_other(key, value, out)

    def _read_reasoning(self, delta: dict[str, Any], out: Deltas) -> None:
        fields = [field for field in REASONING_FIELDS if type(delta.get(field)) is str and delta[field]]
        if fields:
            text = delta[fields[0]]
            self._append_reasoning(text, fields[0], [field for field in fields[1:] if delta[field] == text], out)
            self._has_field = True
        elif "reasoning_details" in delta and not self._has_field:  # else the text was already emitted
            self._append_reasoning(reasoning_text(delta["reasoning_details"]), "reasoning_details", [], out)

    def _read_other(self, key: str, value: Any, out: Deltas) -> None:
        if key in REASONING_STATE_FIELDS:
            if key == "reasoning_details":
                value = _append_details(self._reasoning_state.get(key), value)
            self._reasoning_state[key] = value
        elif key == "function_call" and type(value) is dict:
            self._read_function_call(value, out)
        elif key == "audio" and type(value) is dict:
            self._read_audio(value)
        elif key == "annotations" and type(value) is list:
            if value and self._open is Text:
                out.append(PartExtended(self.open_number, {FORMAT: {"annotations": value}}))
            elif type(self._message.get(key)) is list:
                self._message[key] += value
            elif value:
                self._message[key] = value
        elif key == "images" and type(value) is list and value and all(map(read_generated_image, value)):
            for entry in value:
                self._emit_whole(read_generated_image(entry), out)
        else:
            self._message[key] = value

    def _read_content(self, content: Any, out: Deltas) -> None:
        if type(content) is str:
            if content:
                self._append_text(Text, content, out)
            return
        if type(content) is not list:
            self._message["content"] = content
            return
        for piece in content:
            thought = thinking_text(piece)
            part = read_part(piece) if thought is None else None
            if thought is not None:
                self._append_reasoning(thought, "thinking", [], out)
            elif type(part) is Text and part.native is None:
                if part.text:
                    self._append_text(Text, part.text, out)
            else:
                self._emit_whole(part, out)

    def _append_text(self, kind: type, text: str, out: Deltas) -> None:
        if self._open is not kind:
            self._start_part(kind, kind(""), out)
        out.append(PartDelta(self.open_number, text))

    def _append_reasoning(self, text: str, field: str, also: list[str], out: Deltas) -> None:
        if self._cumulative_reasoning:
            text = self._new_reasoning(text)
        if not text:
            return
        if self._open is not Thinking:
            self._start_part(
                Thinking, Thinking(native={FORMAT: {"field": field, **({"also": also} if also else {})}}), out
            )
        out.append(PartDelta(self.open_number, text))

    def _new_reasoning(self, text: str) -> str:
        """The text after the reasoning so far."""
        known = self._reasoning_size
        if len(text) >= known and text.startswith("".join(self._reasoning_so_far)):
            self._reasoning_so_far, self._reasoning_size = [text], len(text)
            return text[known:]
        self._reasoning_so_far.append(text)
        self._reasoning_size += len(text)
        return text

    def _start_part(self, kind: type, part: OutputPart, out: Deltas) -> None:
        self._end_part(out)
        self._open, self.open_number = kind, next(self._numbers)
        self._parts.append(part)
        out.append(PartStarted(self.open_number, part, self._number))

    def _end_part(self, out: Deltas) -> None:
        if self._open is not None:
            self._open = None
            out.append(PartEnded(self.open_number))

    def _emit_whole(self, part: Any, out: Deltas) -> None:
        """Emit a complete part."""
        self._start_part(Native, part, out)
        self._end_part(out)

    def _read_audio(self, audio: dict[str, Any]) -> None:
        for key, value in audio.items():
            if key in ("data", "transcript") and type(value) is str:
                self._audio_pieces.setdefault(key, []).append(value)
                if key == "transcript":
                    self._audio[key] = ""  # joined at the end
            elif value is not None:
                self._audio[key] = value

    def _read_fragments(self, fragments: Any, out: Deltas) -> None:
        if type(fragments) is not list:
            self._message["tool_calls"] = fragments
            return
        for offset, fragment in enumerate(fragments):
            if type(fragment) is dict:
                call = self._call_of(fragment, offset if len(fragments) > 1 else None, out)
                self._add(call, fragment, out)

    def number_fragments(self, fragments: list[Any]) -> list[int]:
        """Read fragments; the number of the call that each of them belongs to, counted from the first call."""
        numbers: list[int] = []
        for offset, fragment in enumerate(fragments):
            if type(fragment) is dict:
                call = self._call_of(fragment, offset if len(fragments) > 1 else None, [])
                self._add(call, fragment, [])
                numbers.append(call.place)
            else:
                numbers.append(-1)
        return numbers

    def _call_of(self, fragment: dict[str, Any], offset: int | None, out: Deltas) -> _Call:
        index, call_id = fragment.get("index"), fragment.get("id")
        key = index if type(index) is int else None if offset is None else -1 - offset
        call = self._by_key.get(key) if key is not None else self._calls[-1] if self._calls else None
        if type(call_id) is str and call_id:
            if key is None:
                call = self._by_id.get(call_id) or (call if not _has_name(fragment) else None)
            elif call is not None and call.id and call.id != call_id and _has_name(fragment):
                call = None
        elif call is not None and _starts_new_call(call, fragment):
            call = None
        if call is None:
            call = self._open_call(out)
        if key is not None:
            self._by_key[key] = call
        return call

    def _open_call(self, out: Deltas) -> _Call:
        self._end_part(out)
        if self._calls and self._calls[-1].number < 0:  # those before it were started when it was opened
            self._start_call(self._calls[-1], out)
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call

    def _add(self, call: _Call, fragment: dict[str, Any], out: Deltas) -> None:
        called = fragment.get("function")
        if type(called) is not dict:
            called = fragment.get("custom")
            call.freeform = call.freeform or type(called) is dict
        if type(called) is not dict:
            called = {}
        call_id, name = fragment.get("id"), called.get("name")
        if not call.id and type(call_id) is str:
            call.id = call_id
            self._by_id.setdefault(call_id, call)
        if not call.name and type(name) is str:
            call.name = name
        if len(called) > 2 or not fragment.keys() <= _FRAGMENT_KEYS:
            self._extend(call, fragment, called, out)
        if call.number < 0 and call.id and call.name:
            self._start_call(call, out)
        arguments = called.get("input" if call.freeform else "arguments")
        if type(arguments) is str and arguments:
            self._append(call, arguments, out)
        elif type(arguments) is dict:
            if call.merged is None:
                call.merged = {}
            _merge_object(call.merged, arguments)

    def _append(self, call: _Call, arguments: str, out: Deltas) -> None:
        call.pieces.append(arguments)
        if call.number < 0:
            call.pending.append(arguments)
        else:
            out.append(PartDelta(call.number, arguments))

    def _extend(self, call: _Call, fragment: dict[str, Any], called: dict[str, Any], out: Deltas) -> None:
        own = other_fields(fragment, _FRAGMENT_KEYS)
        more = other_fields(called, _CALLED_KEYS)
        if more:
            own["custom" if call.freeform else "function"] = more
        if not own:
            return
        if call.number >= 0:
            out.append(PartExtended(call.number, {FORMAT: own}))
        elif call.native is None:
            call.native = {FORMAT: own}
        else:
            call.native[FORMAT].update(own)

    def _start_call(self, call: _Call, out: Deltas) -> None:
        if not call.id:
            while f"call_{self._next_id}" in self._by_id:
                self._next_id += 1
            call.id = f"call_{self._next_id}"
            self._by_id[call.id] = call
        call.number = next(self._numbers)
        part = ToolCallRequest(call.name, call.id, "", call.freeform, native=call.native)
        self._parts.append(part)
        out.append(PartStarted(call.number, part, self._number))
        out.extend(PartDelta(call.number, piece) for piece in call.pending)
        call.pending = []

    def _read_function_call(self, value: dict[str, Any], out: Deltas) -> None:
        name, arguments = value.get("name"), value.get("arguments")
        call = self._by_key.get(_LEGACY_CALL_KEY)
        if call is None:
            if not name and not arguments:
                return
            call = self._by_key[_LEGACY_CALL_KEY] = self._open_call(out)
            call.id, call.native = f"call_function_{self._number}", LEGACY_FUNCTION_EXTRAS
        if type(name) is str and not call.name:
            call.name = name
        if call.number < 0 and call.name:
            self._start_call(call, out)
        if type(arguments) is str and arguments:
            self._append(call, arguments, out)

    def close(self, out: Deltas) -> None:
        """Emit what is pending, and end what is open."""
        self._end_part(out)
        for call in self._calls:
            if call.number < 0 and not (call.name or call.pieces or call.merged):
                continue
            if call.number < 0:
                self._start_call(call, out)
            if call.merged is not None:
                out.append(PartDelta(call.number, msgspec.json.encode(call.merged).decode()))
            out.append(PartEnded(call.number))
        if self._audio or self._audio_pieces:
            pieces = self._audio_pieces
            spoken = {"transcript": "".join(pieces["transcript"])} if "transcript" in pieces else {}
            audio = {**self._audio, **spoken, "data": _join_base64(pieces.get("data", []))}
            if type(audio.get("id")) is str and audio["id"]:
                self._emit_whole(read_audio_output(audio), out)
            else:
                self._message["audio"] = audio
        details = self._reasoning_state.get("reasoning_details")
        if type(details) is list:
            self._reasoning_state["reasoning_details"] = [detail.whole() for detail in details]
        if self._reasoning_state:
            self._emit_whole(Thinking(native={FORMAT: self._reasoning_state}), out)

    def finished(self, extras: dict[str, Any]) -> Finished:
        """The end of the choice; `extras` are those of the whole response."""
        reason = read_stop_reason(self.finish_reason, self._parts)
        native = candidate_native(self.finish_reason, reason, self._parts, self._choice, self._message)
        if extras:
            native = {FORMAT: {**extras, **(native or {}).get(FORMAT, {})}}
        return Finished(reason, candidate=self._number, native=native)


def _starts_new_call(call: _Call, fragment: dict[str, Any]) -> bool:
    """Whether a fragment without an id starts another call: it has a name and arguments, and the last call is complete."""
    called = fragment.get("function")
    if type(called) is not dict or not called.get("name") or not called.get("arguments"):
        return False
    return call.is_whole()


def _has_name(fragment: dict[str, Any]) -> bool:
    called = fragment.get("function")
    if type(called) is not dict:
        called = fragment.get("custom")
    return type(called) is dict and bool(called.get("name"))


def _merge_object(known: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        inner = known.get(key)
        if type(inner) is dict and type(value) is dict:
            _merge_object(inner, value)
        else:
            known[key] = value


def _append_details(known: Any, more: Any) -> Any:
    """OpenRouter's details with more entries, each a `_Detail`; text of the same entry is appended."""
    if type(more) is not list or not more:
        return more if more else known
    if type(known) is not list:
        return [_Detail(entry) for entry in more]
    for entry in more:
        if type(entry) is dict and known and _same_detail(known[-1].fields, entry):
            known[-1].add(entry)
        else:
            known.append(_Detail(entry))
    return known


def _same_detail(last: Any, entry: dict[str, Any]) -> bool:
    if type(last) is not dict:
        return False
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
