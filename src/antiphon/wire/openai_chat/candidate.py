"""One candidate of a streamed answer: the deltas of its choice in, neutral deltas out.

Theory of operation. Text, thinking and refusal are said one at a time: when another begins, the open one ends, and words that
come back to it later are a new part. Calls stay open to the end, for their fragments may come in any order. A fragment
belongs to the call at its `index`; without one to that at its place in an array of several; without that to the last. It opens
a new call when its id is another than that call's (Ollama and Gemini give every call the index 0). Id, name and type count
once; arguments are appended if they are text and merged if they are objects. What comes in pieces that no delta can say
(sound, proofs of reasoning) is gathered and said whole at the end.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import Native, NativeExtras, OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished, ModelOutputDelta, PartDelta, PartEnded, PartExtended, PartStarted
from antiphon.wire.openai_chat.assistant import PROOFS, REASONING_FIELDS, drawn, read_sound, words_of
from antiphon.wire.openai_chat.calls import DEPRECATED_NATIVE, is_object
from antiphon.wire.openai_chat.content import FORMAT, read_part, thinking_text
from antiphon.wire.openai_chat.response import candidate_native, stop_reason

_REASONING = frozenset((*REASONING_FIELDS, "reasoning_details"))
_NOISE = frozenset(("role", "padding", "token_id", "obfuscation"))
_PLAIN_CHOICE = frozenset(("index", "delta", "finish_reason", "logprobs"))
_CHOICE_NOISE = frozenset(("delta", "index", "finish_reason", "message", "text", "token_ids", "role", "usage"))
_FRAGMENT_KEYS = frozenset(("index", "id", "type", "function", "custom"))
_CALLED_KEYS = frozenset(("name", "arguments", "input"))
_FUNCTION_CALL = -1_000_000

Deltas = list[ModelOutputDelta]


class _Call(Struct):
    """A call while its fragments come in."""

    id: str = ""
    name: str = ""
    freeform: bool = False
    native: NativeExtras | None = None
    number: int = -1  # of its part; it has none before it is started
    held: list[str] = []  # arguments that came before the call could be started
    pieces: list[str] = []
    merged: dict[str, Any] | None = None


class Candidate:
    """What one choice of a stream has said so far.

    `numbers` counts the parts of all candidates; `repeats` tells that chunks repeat the reasoning before them.
    """

    def __init__(self, number: int, numbers: Iterator[int], *, repeats: bool = False) -> None:
        self.word: Any = None
        self._number = number
        self._numbers = numbers
        self._has_field = False
        self._repeats = repeats
        self._thought = ""
        self._open: type | None = None
        self.open_number = -1
        self._parts: list[OutputPart] = []
        self._calls: list[_Call] = []
        self._by_key: dict[int, _Call] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._proofs: dict[str, Any] = {}
        self._sound: dict[str, Any] = {}
        self._sound_pieces: list[str] = []

    @property
    def is_saying_text(self) -> bool:
        """Whether a text is under way, as part `open_number`, and the end was not spoken of."""
        return self._open is Text and self.word is None

    def read(self, choice: dict[str, Any], out: Deltas) -> None:
        """Take one choice of one chunk."""
        delta = choice.get("delta")
        if type(delta) is dict:
            self._read_delta(delta, out)
        elif type(choice.get("message")) is dict and not self._parts:
            self._read_delta(choice["message"], out)  # a host that says it all at once
        word = choice.get("finish_reason")
        if word is not None and word != "":
            self.word = word
        if not choice.keys() <= _PLAIN_CHOICE or choice.get("logprobs") is not None:
            self._read_extras(choice)

    def _read_extras(self, choice: dict[str, Any]) -> None:
        for key, value in choice.items():
            if value is None or key in _CHOICE_NOISE or value == {}:
                continue
            known = self._choice.get(key)
            if key == "logprobs" and type(known) is dict and type(value) is dict:
                grown = dict(known)
                for name, more in value.items():
                    before = known.get(name)
                    is_list = type(before) is list and type(more) is list
                    grown[name] = before + more if is_list else before if more is None else more
                value = grown
            self._choice[key] = value

    def _read_delta(self, delta: dict[str, Any], out: Deltas) -> None:
        if not _REASONING.isdisjoint(delta):
            self._read_reasoning(delta, out)
        for key, value in delta.items():
            if value is None or key in _NOISE:
                continue
            if key == "content":
                self._read_content(value, out)
            elif key == "tool_calls":
                self._read_fragments(value, out)
            elif key == "refusal":
                if type(value) is str and value:
                    self._say(Refusal, value, out)
            elif key not in REASONING_FIELDS:
                self._read_other(key, value, out)

    def _read_reasoning(self, delta: dict[str, Any], out: Deltas) -> None:
        fields = [field for field in REASONING_FIELDS if type(delta.get(field)) is str and delta[field]]
        if fields:
            text = delta[fields[0]]
            self._think(text, fields[0], [field for field in fields[1:] if delta[field] == text], out)
            self._has_field = True
        elif "reasoning_details" in delta and not self._has_field:  # else its words were said already
            self._think(words_of(delta["reasoning_details"]), "reasoning_details", [], out)

    def _read_other(self, key: str, value: Any, out: Deltas) -> None:
        if key in PROOFS:
            self._proofs[key] = _joined_details(self._proofs.get(key), value) if key == "reasoning_details" else value
        elif key == "function_call" and type(value) is dict:
            self._read_function_call(value, out)
        elif key == "audio" and type(value) is dict:
            self._read_sound(value)
        elif key == "annotations" and type(value) is list:
            if value and self._open is Text:
                out.append(PartExtended(self.open_number, {FORMAT: {"annotations": value}}))
            elif value:
                self._message[key] = [*self._message.get(key, ()), *value]
        elif key == "images" and type(value) is list and value and all(map(drawn, value)):
            for entry in value:
                self._show(drawn(entry), out)
        else:
            self._message[key] = value

    def _read_content(self, content: Any, out: Deltas) -> None:
        if type(content) is str:
            if content:
                self._say(Text, content, out)
            return
        if type(content) is not list:
            self._message["content"] = content
            return
        for piece in content:
            thought = thinking_text(piece)
            part = read_part(piece) if thought is None else None
            if thought is not None:
                self._think(thought, "thinking", [], out)
            elif type(part) is Text and part.native is None:
                if part.text:
                    self._say(Text, part.text, out)
            else:
                self._show(part, out)

    def _say(self, kind: type, text: str, out: Deltas) -> None:
        if self._open is not kind:
            self._start(kind, kind(""), out)
        out.append(PartDelta(self.open_number, text))

    def _think(self, text: str, field: str, also: list[str], out: Deltas) -> None:
        if self._repeats:
            text = self._new_thought(text)
        if not text:
            return
        if self._open is not Thinking:
            self._start(Thinking, Thinking(native={FORMAT: {"field": field, **({"also": also} if also else {})}}), out)
        out.append(PartDelta(self.open_number, text))

    def _new_thought(self, text: str) -> str:
        """What is new in it: MiniMax repeats the reasoning so far in every chunk."""
        before = self._thought
        if text.startswith(before):
            self._thought = text
            return text[len(before) :]
        self._thought += text
        return text

    def _start(self, kind: type, part: OutputPart, out: Deltas) -> None:
        self._end(out)
        self._open, self.open_number = kind, next(self._numbers)
        self._parts.append(part)
        out.append(PartStarted(self.open_number, part, self._number))

    def _end(self, out: Deltas) -> None:
        if self._open is not None:
            self._open = None
            out.append(PartEnded(self.open_number))

    def _show(self, part: Any, out: Deltas) -> None:
        """A part that comes whole."""
        self._start(Native, part, out)
        self._end(out)

    def _read_sound(self, audio: dict[str, Any]) -> None:
        for key, value in audio.items():
            if key == "data" and type(value) is str:
                self._sound_pieces.append(value)
            elif key == "transcript" and type(value) is str:
                self._sound[key] = self._sound.get(key, "") + value
            elif value is not None:
                self._sound[key] = value

    def _read_fragments(self, fragments: Any, out: Deltas) -> None:
        if type(fragments) is not list:
            self._message["tool_calls"] = fragments
            return
        for offset, fragment in enumerate(fragments):
            if type(fragment) is dict:
                call = self._call_of(fragment, offset if len(fragments) > 1 else None, out)
                self._add(call, fragment, out)

    def _call_of(self, fragment: dict[str, Any], offset: int | None, out: Deltas) -> _Call:
        index, call_id = fragment.get("index"), fragment.get("id")
        key = index if type(index) is int else None if offset is None else -1 - offset
        call = self._by_key.get(key) if key is not None else self._calls[-1] if self._calls else None
        if type(call_id) is str and call_id:
            if key is None:
                call = next((known for known in self._calls if known.id == call_id), None)
            elif call is not None and call.id and call.id != call_id:
                call = None
        elif call is not None and _begins_anew(call, fragment):
            call = None
        if call is None:
            call = self._open_call(out)
        if key is not None:
            self._by_key[key] = call
        return call

    def _open_call(self, out: Deltas) -> _Call:
        self._end(out)
        for waiting in self._calls:
            if waiting.number < 0:
                self._start_call(waiting, out)
        call = _Call()
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
            call.merged = _merged(call.merged or {}, arguments)

    def _append(self, call: _Call, arguments: str, out: Deltas) -> None:
        call.pieces.append(arguments)
        if call.number < 0:
            call.held.append(arguments)
        else:
            out.append(PartDelta(call.number, arguments))

    def _extend(self, call: _Call, fragment: dict[str, Any], called: dict[str, Any], out: Deltas) -> None:
        own = {key: value for key, value in fragment.items() if key not in _FRAGMENT_KEYS and value is not None}
        more = {key: value for key, value in called.items() if key not in _CALLED_KEYS and value is not None}
        if more:
            own["custom" if call.freeform else "function"] = more
        if not own:
            return
        if call.number < 0:
            known = call.native.get(FORMAT, {}) if call.native else {}
            call.native = {FORMAT: {**known, **own}}
        else:
            out.append(PartExtended(call.number, {FORMAT: own}))

    def _start_call(self, call: _Call, out: Deltas) -> None:
        if not call.id:
            taken = {known.id for known in self._calls}
            call.id = next(name for name in (f"call_{number}" for number in range(len(taken) + 1)) if name not in taken)
        call.number = next(self._numbers)
        part = ToolCallRequest(call.name, call.id, "", call.freeform, native=call.native)
        self._parts.append(part)
        out.append(PartStarted(call.number, part, self._number))
        out.extend(PartDelta(call.number, piece) for piece in call.held)
        call.held = []

    def _read_function_call(self, value: dict[str, Any], out: Deltas) -> None:
        name, arguments = value.get("name"), value.get("arguments")
        call = self._by_key.get(_FUNCTION_CALL)
        if call is None:
            if not name and not arguments:
                return
            call = self._by_key[_FUNCTION_CALL] = self._open_call(out)
            call.id, call.native = f"call_function_{self._number}", DEPRECATED_NATIVE
        if type(name) is str and not call.name:
            call.name = name
        if call.number < 0 and call.name:
            self._start_call(call, out)
        if type(arguments) is str and arguments:
            self._append(call, arguments, out)

    def close(self, out: Deltas) -> None:
        """The choice is over: say what was held back, and end what is open."""
        self._end(out)
        for call in self._calls:
            if call.number < 0 and not (call.name or call.pieces or call.merged):
                continue
            if call.number < 0:
                self._start_call(call, out)
            if call.merged is not None:
                out.append(PartDelta(call.number, msgspec.json.encode(call.merged).decode()))
            out.append(PartEnded(call.number))
        if self._sound or self._sound_pieces:
            sound = {**self._sound, "data": _joined_sound(self._sound_pieces)}
            if type(sound.get("id")) is str and sound["id"]:
                self._show(read_sound(sound), out)
            else:
                self._message["audio"] = sound
        if self._proofs:
            self._show(Thinking(native={FORMAT: self._proofs}), out)

    def finished(self, extras: dict[str, Any]) -> Finished:
        """Why it stopped; `extras` are those of the whole answer."""
        reason = stop_reason(self.word, self._parts)
        native = candidate_native(self.word, reason, self._parts, self._choice, self._message)
        if extras:
            native = {FORMAT: {**extras, **(native or {}).get(FORMAT, {})}}
        return Finished(reason, candidate=self._number, native=native)


def _begins_anew(call: _Call, fragment: dict[str, Any]) -> bool:
    """Whether a fragment without an id begins another call: it has a name and arguments, and the call before is whole."""
    called = fragment.get("function")
    if type(called) is not dict or not called.get("name") or not called.get("arguments"):
        return False
    return call.merged is not None or is_object("".join(call.pieces))


def _merged(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    result = dict(known)
    for key, value in more.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if type(inner) is dict and type(value) is dict else value
    return result


def _joined_details(known: Any, more: Any) -> Any:
    """OpenRouter's details out of their pieces: words of the same entry are appended."""
    if type(known) is not list or type(more) is not list:
        return more if more else known
    joined = list(known)
    for entry in more:
        last = joined[-1] if joined else None
        if type(entry) is not dict or type(last) is not dict or not _continues(last, entry):
            joined.append(entry)
            continue
        grown = {**last, **{key: value for key, value in entry.items() if value is not None}}
        for key in ("text", "summary"):
            if type(last.get(key)) is str and type(entry.get(key)) is str:
                grown[key] = last[key] + entry[key]
        joined[-1] = grown
    return joined


def _continues(last: dict[str, Any], entry: dict[str, Any]) -> bool:
    is_same = all(last.get(key) == entry.get(key) for key in ("type", "index"))
    return is_same and entry.get("type") in ("reasoning.text", "reasoning.summary")


def _joined_sound(pieces: list[str]) -> str:
    """Base64 out of its pieces: those that are padded must be decoded first."""
    if not any(piece.endswith("=") for piece in pieces[:-1]):
        return "".join(pieces)
    try:
        return base64.b64encode(b"".join(base64.b64decode(piece) for piece in pieces)).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)
