"""One candidate of a streamed response: its pieces in, neutral deltas out.

Text continues the open part with the same `thought` flag; a signature belongs to the part it comes with, and a different one
starts a new part. The last value of every field of a candidate counts, except citations, which are appended.

The arguments of a call may arrive piece by piece (Vertex, `streamFunctionCallArguments`). Each piece has a JSON path into them
(`$.recipe.steps[2]`) and a value for it. A string may continue in the next piece with the same path. The arguments are complete
when the call no longer has `willContinue`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import NativeExtras, OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import SOURCE, encode, read_value
from antiphon.wire.gemini.native import as_list, gemini_extras, get_field, native_extras
from antiphon.wire.gemini.response import finish_candidate, output_extras, output_part
from antiphon.wire.streams.reader import PartStream
from antiphon.wire.tools.call_ids import CallIdTracker


class Candidate:
    """The state of one candidate, whose parts go into `parts`."""

    def __init__(self, number: int, parts: PartStream, calls: CallIdTracker) -> None:
        self.text_index = -1  # the open text part
        self.is_thought = False
        self.finish_reason: Any = None
        self.is_finished = False
        self._number, self._parts, self._calls = number, parts, calls
        self._signature: Any = None
        self._call: PartialCall | None = None
        self._fields: dict[str, Any] = {}
        self._unknown: dict[str, Any] = {}
        self._citations: dict[str, set[bytes]] = {}  # those in each list of the citation metadata

    def merge_fields(self, fields: dict[str, Any], unknown: dict[str, Any]) -> None:
        """Add the fields of a chunk to those of the candidate."""
        for name, value in fields.items():
            known = self._fields.get(name)
            grows = name in ("groundingMetadata", "citationMetadata")
            if not grows or not isinstance(known, dict) or not isinstance(value, dict):
                self._fields[name] = value
            elif name == "groundingMetadata":
                known.update(value)
            else:
                self._append_citations(known, value)
        self._unknown.update(unknown)

    def _append_citations(self, known: dict[str, Any], later: dict[str, Any]) -> None:
        """Append the citations of a chunk to the earlier ones; chunks repeat them."""
        for name, value in later.items():
            earlier = known.get(name)
            if not isinstance(earlier, list) or not isinstance(value, list):
                known[name] = value
                self._citations.pop(name, None)
                continue
            seen = self._citations.get(name)
            if seen is None:
                seen = self._citations[name] = set(map(_citation_key, earlier))
            new = [(citation, _citation_key(citation)) for citation in value]
            earlier += [citation for citation, key in new if key not in seen]
            seen.update(key for _, key in new)

    def read_part(self, part: Any) -> None:
        """Read a part of plain values."""
        self.is_finished = False
        call = get_field(part, "functionCall") if type(part) is dict else None
        if type(call) is dict and self._read_partial_call(part, call):
            return
        read = output_part(part, read_value(part, self._calls))
        if isinstance(read, Text | Thinking):
            signature = gemini_extras(read.native).get("thoughtSignature")
            self.append_text(read.text, isinstance(read, Thinking), signature, read.native)
        else:
            self.emit_whole(read)

    def append_text(self, text: str, is_thought: bool, signature: Any, native: NativeExtras | None = None) -> None:
        """Continue the open part if flag and signature match, else start a new one."""
        if native is None and signature is not None:
            native = {FORMAT: {"thoughtSignature": signature}}
        extras = gemini_extras(native)
        is_other = bool(signature and self._signature and signature != self._signature)
        if self.text_index >= 0 and self.is_thought is is_thought and not is_other:
            self._parts.text(self.text_index, text)
            if extras:
                self._parts.extend(self.text_index, {FORMAT: extras})
                self._signature = signature or self._signature
            return
        if not text and not extras:
            return
        self.end_part()
        part: OutputPart = Thinking(native=native, source=SOURCE) if is_thought else Text("", native=native)
        self.text_index, self.is_thought, self._signature = self._parts.start(part, self._number), is_thought, signature
        self._parts.text(self.text_index, text)

    def emit_whole(self, part: OutputPart) -> None:
        self.end_part()
        self._parts.whole(part, self._number)

    def end_part(self) -> None:
        """End the text or the call that is open."""
        if self.text_index >= 0:
            self._parts.end(self.text_index)
            self.text_index = -1
        if self._call is not None:
            self._parts.text(self._call.index, encode(self._call.finish()).decode())
            self._parts.end(self._call.index)
            self._call = None

    def _read_partial_call(self, part: dict[str, Any], call: dict[str, Any]) -> bool:
        """A piece of a call; False if the call is complete."""
        continues = get_field(call, "willContinue") is True
        is_new = call.get("name") is not None or self._call is None
        if is_new and not continues and get_field(call, "partialArgs") is None:
            return False
        native = native_extras({name: part[name] for name in part if name not in ("functionCall", "function_call")})
        if is_new or self._call is None:
            self.end_part()
            name, call_id = (value if type(value) is str else "" for value in (call.get("name"), call.get("id")))
            known_id = self._calls.add_call(name, call_id or None)
            started = ToolCallRequest(name, known_id, "", native=native)
            self._call = PartialCall(self._parts.start(started, self._number))
        else:
            self._parts.extend(self._call.index, native)
        self._call.add(call)
        if not continues:
            self.end_part()
        return True

    def finished(self, response: dict[str, Any], is_blocked: bool) -> Finished:
        """The end of the candidate; `response` are the fields of the whole response."""
        stop = finish_candidate(self._fields, self.finish_reason, self._parts.of(self._number), is_blocked)
        return Finished(stop, candidate=self._number, native=output_extras(response, self._fields, self._unknown))


def _citation_key(citation: Any) -> bytes:
    return msgspec.json.encode(citation, order="sorted")


_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]|\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MAX_GAP = 1_000


class PartialCall(Struct):
    """The arguments of one call so far."""

    index: int
    arguments: dict[str, Any] = {}
    open_string_path: str | None = None  # path of a string that the next piece continues
    open_string: list[str] = []  # its pieces, and where they belong once they are joined
    place: tuple[Any, str | int] = (None, 0)

    def add(self, call: dict[str, Any]) -> None:
        """Add a piece; malformed pieces are ignored."""
        args = call.get("args")
        if isinstance(args, dict):
            self._join()
            self.arguments.update(args)
        for piece in as_list(get_field(call, "partialArgs")):
            path = get_field(piece, "jsonPath") if isinstance(piece, dict) else None
            if isinstance(path, str):
                self._set(path, piece)

    def finish(self) -> dict[str, Any]:
        self._join()
        return self.arguments

    def _join(self) -> None:
        """Put the open string into the arguments: joining it with every piece would copy it each time."""
        if self.open_string:
            _set_item(*self.place, "".join(self.open_string))
            self.open_string = []

    def _set(self, path: str, piece: dict[str, Any]) -> None:
        has_value, value = _piece_value(piece)
        continues = get_field(piece, "willContinue") is True
        if self.open_string and self.open_string_path == path and isinstance(value, str):
            self.open_string.append(value)
            self.open_string_path = path if continues else None
            return
        self._join()
        steps = _parse_path(path)
        if not steps or not has_value:
            return
        container: Any = self.arguments
        for step, following in pairwise(steps):
            container = _get_or_create(container, step, [] if isinstance(following, int) else {})
            if container is None:
                return
        last = steps[-1]
        existing = _get_item(container, last)
        if isinstance(value, str) and isinstance(existing, str) and self.open_string_path == path:
            value = existing + value
        _set_item(container, last, value)
        self.open_string_path = path if continues else None
        if continues and isinstance(value, str) and _get_item(container, last) is value:
            self.open_string, self.place = [value], (container, last)


def _parse_path(path: str) -> list[str | int]:
    """The names and indexes of a JSON path; empty if it is malformed."""
    position = 1
    steps: list[str | int] = []
    while path.startswith("$") and position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return []
        name, number, single, double = match.groups()
        quoted = single if single is not None else double
        if number is not None:
            steps.append(int(number))
        else:
            steps.append(name if name is not None else _ESCAPE.sub(r"\1", quoted))
        position = match.end()
    return steps


def _piece_value(piece: dict[str, Any]) -> tuple[bool, Any]:
    """Whether the piece has a value, and the value."""
    for name in ("stringValue", "numberValue", "boolValue", "nullValue"):
        value = get_field(piece, name)
        if value is not None:
            if name == "nullValue":
                return True, None
            # All numbers are doubles; an integral one is written without a point.
            return True, int(value) if isinstance(value, float) and value.is_integer() else value
    return "nullValue" in piece, None


def _get_item(container: Any, step: str | int) -> Any:
    if isinstance(container, list) and isinstance(step, int):
        return container[step] if step < len(container) else None
    return container.get(step) if isinstance(container, dict) else None


def _set_item(container: Any, step: str | int, value: Any) -> bool:
    if isinstance(container, list) and isinstance(step, int):
        if step - len(container) > _MAX_GAP:
            return False
        container.extend([None] * (step + 1 - len(container)))
        container[step] = value
        return True
    if isinstance(container, dict):
        container[str(step)] = value
        return True
    return False


def _get_or_create(container: Any, step: str | int, empty: Any) -> Any:
    """The container at a step, created if missing; None if that is impossible."""
    existing = _get_item(container, step)
    if isinstance(existing, dict | list):
        return existing
    return empty if _set_item(container, step, empty) else None
