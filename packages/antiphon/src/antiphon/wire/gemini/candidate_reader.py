"""One candidate of a streamed response: its pieces in, neutral deltas out.

Text continues the open part with the same `thought` flag; a signature belongs to the part it comes with, and a different one
starts a new part. A call may come in pieces (`partial_call`). The last value of every field of a candidate counts, except
citations, which are appended.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.parts import NativeExtras, OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Finished
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import SOURCE, encode, read_value
from antiphon.wire.gemini.native import gemini_extras, get_field, native_extras
from antiphon.wire.gemini.partial_call import PartialCall
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

    def finished(self, index: int, response: dict[str, Any], is_blocked: bool) -> Finished:
        """The end of the candidate at `index`; `response` are the fields of the whole response."""
        stop = finish_candidate(self._fields, self.finish_reason, self._parts.of(self._number), is_blocked)
        if self._number != index:
            self._fields["index"] = self._number
        return Finished(stop, candidate=self._number, native=output_extras(response, self._fields, self._unknown))


def _citation_key(citation: Any) -> bytes:
    return msgspec.json.encode(citation, order="sorted")
