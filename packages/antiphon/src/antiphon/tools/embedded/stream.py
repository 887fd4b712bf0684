"""`EmbeddedCalls`: finds calls that a model wrote into its text: deltas in, deltas with calls out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from antiphon.parts import NativeExtras, OutputPart, Text, ToolCallRequest
from antiphon.tools.embedded.markdown_context import MarkdownContext
from antiphon.tools.embedded.parsed_call import KnownTools, NotACall, ParsedCall
from antiphon.tools.embedded.parser import NeedsMore, parse_call
from antiphon.wire.delta import (
    Assembler,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
    deltas_from_output,
    merged,
)
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ToolDefinition

Chunk: TypeAlias = str | ParsedCall

_MAY_BEGIN = re.compile(r"[<\[{`~]")
_MAY_BEGIN_TAG = re.compile("<")
_NEVER = re.compile(r"(?!)")
_WORK_RATIO, _FREE_WORK = 8, 20_000
"""How often what may become a call is parsed: so many times its length, and so many characters for nothing."""


class Scanner:
    """One text. `feed` its pieces and `close` it; each gives what has become certain by then.

    The Markdown around a place matters only where a call may begin, so text that has no such place is not looked at twice. What
    may become a call is parsed again as it grows, but not more often than its length allows: the work is linear.
    """

    def __init__(self, offer: KnownTools, *, only_closed: bool = False) -> None:
        self._offer = offer
        self._only_closed = only_closed
        self._may_begin = _NEVER if not offer else _MAY_BEGIN_TAG if only_closed else _MAY_BEGIN
        self._held = ""
        """Text that is not passed on: a call may begin it."""
        self._work = 0
        """How many characters of it were parsed so far."""
        self._place: MarkdownContext | None = None
        self._unnoted: list[str] = []
        self._white: list[str] = []
        self._is_after_call = False
        self._pieces: list[Chunk] = []

    def passes(self, text: str) -> bool:
        """Take text that is passed on as it is, if nothing is held back and no call may begin in it; False if that is not so."""
        if self._white or self._held or self._is_after_call or text[-1:].strip() == "":
            return False
        if "<" in text or (not self._only_closed and self._may_begin.search(text) is not None):
            return False
        self._unnoted.append(text)
        return True

    def feed(self, text: str) -> list[Chunk]:
        if self._held or self._is_after_call or self._may_begin.search(text) is not None:
            self._scan(text, is_ended=False)
            return self._take_chunks()
        # Most text: nothing is held back, and no call may begin in it.
        self._unnoted.append(text)
        visible = text.rstrip()
        if not visible:
            if text:
                self._white.append(text)
            return []
        white = self._white
        chunk = "".join(white) + visible if white else visible
        white.clear()
        if len(visible) < len(text):
            white.append(text[len(visible) :])
        return [chunk]

    def close(self) -> list[Chunk]:
        """The text is over: a call that only lacks its closer counts."""
        if self._held:
            self._scan("", is_ended=True)
        elif not self._white:
            return []
        self._release_white()
        return self._take_chunks()

    def abandon(self) -> list[Chunk]:
        """The text was cut: what was held back is text, whatever it might have become."""
        held, self._held = self._held, ""
        self._emit(held)
        self._release_white()
        return self._take_chunks()

    def _scan(self, more: str, *, is_ended: bool) -> None:
        is_candidate = bool(self._held)
        text, position = self._held + more, 0
        while is_candidate or (position := self._pass_prose(text, position)) < len(text):
            self._work += len(text) - position
            if is_candidate and not is_ended and self._work > _WORK_RATIO * (len(text) - position) + _FREE_WORK:
                self._work -= len(text) - position
                break  # it is parsed again when it is longer
            is_candidate = False
            try:
                calls, end = parse_call(text, position, self._offer, is_ended=is_ended, only_closed=self._only_closed)
            except NeedsMore:
                break
            except NotACall as refusal:
                self._pass(text[position : refusal.position])
                position = refusal.position
            else:
                self._context().note_call()
                self._white.clear()
                self._is_after_call = True
                self._pieces += calls
                position = end
            self._work = 0
        self._held = text[position:]

    def _pass_prose(self, text: str, position: int) -> int:
        """Pass text on up to where a call may begin; returns that place, or the end."""
        while found := self._may_begin.search(text, position):
            self._pass(text[position : found.start()])
            position = found.start()
            if self._is_place_for(found[0]):
                return position
            self._pass(found[0])
            position += 1
        self._pass(text[position:])
        return len(text)

    def _is_place_for(self, front: str) -> bool:
        place = self._context()
        return place.is_line_start if front in "`~" else place.allows_call

    def _context(self) -> MarkdownContext:
        if self._place is None:
            self._place = MarkdownContext()
        if self._unnoted:
            self._place.note("".join(self._unnoted))
            self._unnoted.clear()
        return self._place

    def _pass(self, text: str) -> None:
        if text:
            self._unnoted.append(text)
            self._emit(text)

    def _emit(self, text: str) -> None:
        if self._is_after_call:
            text = text.lstrip()
            self._is_after_call = not text
        visible = text.rstrip()
        if visible:
            self._release_white()
            self._pieces.append(visible)
        if len(visible) < len(text):
            self._white.append(text[len(visible) :])

    def _release_white(self) -> None:
        if self._white:
            self._pieces.append("".join(self._white))
            self._white.clear()

    def _take_chunks(self) -> list[Chunk]:
        """The pieces, text next to text as one."""
        pieces: list[Chunk] = []
        words: list[str] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                words.append(piece)
                continue
            if words:
                pieces.append("".join(words))
                words.clear()
            pieces.append(piece)
        if words:
            pieces.append("".join(words))
        self._pieces = []
        return pieces


_ENDED_BY_ITSELF = frozenset({"", "end", "stop_sequence", "other"})


def find_calls(text: str, tools: Iterable[str | ToolDefinition], *, id_seed: str = "") -> tuple[OutputPart, ...]:
    """The parts of a whole text: its words, and the calls of `tools` that are written in it."""
    whole = ModelOutput(parts=(Text(text),) if text else ())
    return with_calls_read(whole, tools, id_seed=id_seed).parts


def with_calls_read(output: ModelOutput, tools: Iterable[str | ToolDefinition], *, id_seed: str = "") -> ModelOutput:
    """A whole answer with the calls of `tools` that are written in its texts, read as a stream of it; itself if it has none."""
    reader, whole = EmbeddedCalls(tools, id_seed), Assembler()
    for delta in deltas_from_output(output):
        for read in reader.feed(delta):
            whole.add(read)
    return whole.output if reader.has_found else output


class _CallIds(Struct):
    """Gives calls their ids, one after the other."""

    seed: str
    answer_id: str = ""
    _count: int = 0

    def request(self, call: ParsedCall) -> ToolCallRequest:
        source = "\0".join((self.seed, self.answer_id, str(self._count), call.tool_name, call.arguments))
        self._count += 1
        digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        return ToolCallRequest(call.tool_name, f"call_{digest[:20]}", call.arguments)


class _TextPart(Struct):
    """A text part of the stream we read, and what it has become so far."""

    scanner: Scanner
    candidate: int
    native: NativeExtras | None
    open_index: int | None = None
    has_given: bool = False


class EmbeddedCalls:
    """Reads one stream. `feed` it each delta in order and pass on what it gives; `close` it if the stream just stops.

    With `only_closed` it reads `<tool_call>…</tool_call>` and `<function_call>…</function_call>` alone: that is safe for a model
    that has tools of its own, too, whose answer may be about JSON. A reader that begins at the first text of an answer gets its
    index and the answer's id; what came before is passed on as it is.
    """

    def __init__(
        self,
        tools: Iterable[str | ToolDefinition],
        id_seed: str = "",
        only_closed: bool = False,
        first_index: int = 0,
        answer_id: str = "",
    ) -> None:
        self._tools = tools
        self._only_closed = only_closed
        self._offer: KnownTools | None = None
        self._naming = _CallIds(id_seed, answer_id)
        self._texts: dict[int, _TextPart] = {}
        self._indexes: dict[int, int] = {}
        self._next_index = first_index
        self._with_calls: set[int] = set()

    @property
    def has_found(self) -> bool:
        """Whether there was a call in the text so far."""
        return bool(self._with_calls)

    def feed(self, delta: ModelOutputDelta) -> Sequence[ModelOutputDelta]:
        """The deltas to pass on after `delta`."""
        if isinstance(delta, PartDelta):
            part = self._texts.get(delta.index)
            if part is not None:
                if part.open_index == delta.index and part.scanner.passes(delta.text):
                    return (delta,)
                return self._written(part, part.scanner.feed(delta.text))
            index = self._indexes.get(delta.index, delta.index)
            return (delta if index == delta.index else PartDelta(index, delta.text),)
        if isinstance(delta, PartStarted):
            return self._start(delta)
        if isinstance(delta, PartEnded):
            return self._end(delta.index)
        if isinstance(delta, PartExtended):
            return self._extend(delta)
        if isinstance(delta, Finished):
            return self._finish(delta)
        if isinstance(delta, Started):
            self._naming.answer_id = delta.id
        elif not isinstance(delta, UsageReported):
            return (*self.close(), delta)
        return (delta,)

    def close(self) -> list[ModelOutputDelta]:
        """What was still held back when the stream stopped, as text. After a terminal event that is nothing."""
        held: list[ModelOutputDelta] = []
        for part in self._texts.values():
            held += self._written(part, part.scanner.abandon())
            if part.native or not part.has_given:
                held.append(self._open(part))
        self._texts.clear()
        return held

    def _start(self, delta: PartStarted) -> Sequence[ModelOutputDelta]:
        if isinstance(delta.part, Text):
            if self._offer is None:  # an answer of calls alone needs none
                self._offer = _offer_of(self._tools)
            scanner = Scanner(self._offer, only_closed=self._only_closed)
            part = self._texts[delta.index] = _TextPart(scanner, delta.candidate, delta.part.native)
            return self._written(part, part.scanner.feed(delta.part.text)) if delta.part.text else ()
        self._indexes[delta.index] = index = self._next_index
        self._next_index += 1
        return (delta if index == delta.index else structs.replace(delta, index=index),)

    def _extend(self, delta: PartExtended) -> Sequence[ModelOutputDelta]:
        part = self._texts.get(delta.index)
        if part is None:
            return (PartExtended(self._indexes.get(delta.index, delta.index), delta.native),)
        if part.open_index is not None:
            return (PartExtended(part.open_index, delta.native),)
        part.native = merged(part.native, delta.native)
        return ()

    def _end(self, index: int) -> Sequence[ModelOutputDelta]:
        part = self._texts.pop(index, None)
        if part is None:
            return (PartEnded(self._indexes.pop(index, index)),)
        ending = self._written(part, part.scanner.close())
        if part.native or not part.has_given:
            ending.append(self._open(part))  # a text that is empty, or has nothing left but its extras
        if part.open_index is not None:
            ending.append(PartEnded(part.open_index))
        return ending

    def _finish(self, delta: Finished) -> Sequence[ModelOutputDelta]:
        if not self._texts and not self._with_calls:
            return (delta,)
        ending: list[ModelOutputDelta] = []
        for index, part in list(self._texts.items()):
            if part.candidate == delta.candidate:
                ending += self._end(index)
        if delta.candidate in self._with_calls and delta.stop_reason in _ENDED_BY_ITSELF:
            delta = structs.replace(delta, stop_reason="tool_calls")
        ending.append(delta)
        return ending

    def _written(self, part: _TextPart, pieces: list[Chunk]) -> list[ModelOutputDelta]:
        """What has become certain of a text, as deltas."""
        written: list[ModelOutputDelta] = []
        for piece in pieces:
            part.has_given = True
            if isinstance(piece, str):
                if part.open_index is None:
                    written.append(self._open(part))
                    assert part.open_index is not None, "it has just been opened"
                written.append(PartDelta(part.open_index, piece))
                continue
            if part.open_index is not None:
                written.append(PartEnded(part.open_index))
                part.open_index = None
            request = self._naming.request(piece)
            index = self._next_index
            self._next_index += 1
            written += (
                PartStarted(index, structs.replace(request, arguments=""), part.candidate),
                PartDelta(index, request.arguments),
                PartEnded(index),
            )
            self._with_calls.add(part.candidate)
        return written

    def _open(self, part: _TextPart) -> PartStarted:
        part.open_index = self._next_index
        self._next_index += 1
        started = PartStarted(part.open_index, Text("", native=part.native), part.candidate)
        part.native = None
        return started


def _offer_of(tools: Iterable[str | ToolDefinition]) -> KnownTools:
    offer: dict[str, Any] = {}
    for tool in tools:
        if isinstance(tool, str):
            offer[tool] = {}
        elif not tool.freeform:
            properties = (tool.parameters or {}).get("properties")
            offer[tool.name] = properties if isinstance(properties, dict) else {}
    return offer
