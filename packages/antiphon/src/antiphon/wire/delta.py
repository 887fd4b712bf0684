"""`ModelOutputDelta`: a piece of a streamed answer; `Assembler` puts the pieces together, `deltas_from_output` makes them.

    stream   := Started? ( part events | UsageReported )* ( Finished+ | Failed )
    part     := PartStarted ( PartDelta | PartExtended )* PartEnded

Candidates are numbered in the order in which they come. Parts carry an `index` of their own, counted from 0 in the order in
which they start; several may be open at once. The text of a `PartDelta` is appended to the text of the part (or the arguments of
a call); a `PartExtended` adds what came with it or after it (a signature, citations) to its `native`. Exactly one terminal event
ends a stream: `Finished` for each candidate, or `Failed`. A stream that is cut is `Failed`, never `Finished`. However the bytes
were cut, the deltas are the same (law L6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from antiphon.parts import NativeExtras, OutputPart, Refusal, Source, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.output import ModelOutput, ProviderError, StopReason

_NO_TEXT = Text("")


class Started(Struct, frozen=True, omit_defaults=True, tag=True, gc=False):
    """The answer begins."""

    id: str = ""
    model: str = ""
    created: int | None = None
    format: str = ""
    native: NativeExtras | None = None


class PartStarted(Struct, frozen=True, omit_defaults=True, tag=True, gc=False):
    """A part begins: as much of it as is known. A call has its name and id, and no arguments yet (`arguments=""`)."""

    index: int
    part: OutputPart
    candidate: int = 0


class PartDelta(Struct, frozen=True, omit_defaults=True, tag=True, gc=False):
    """More of a part: text of a text, thinking or refusal, arguments of a call."""

    index: int
    text: str


class PartExtended(Struct, frozen=True, omit_defaults=True, tag=True, gc=False):
    """What the part's `native` gains. Lists grow, everything else is replaced."""

    index: int
    native: NativeExtras


class PartEnded(Struct, frozen=True, tag=True, gc=False):
    """The part is whole."""

    index: int


class UsageReported(Struct, frozen=True, tag=True, gc=False):
    """What it cost so far; the last one counts."""

    usage: TokenUsage


class Finished(Struct, frozen=True, omit_defaults=True, tag=True, gc=False):
    """The candidate is complete."""

    stop_reason: StopReason = "end"
    stop_sequence: str | None = None
    candidate: int = 0
    native: NativeExtras | None = None
    """The extras of the end. They replace those of `Started` that have the same names."""
    model: str = ""
    """The model that gave the answer, where it is another than the one named at the start."""
    source: Source | None = None


class Failed(Struct, frozen=True, tag=True, gc=False):
    """The stream ended in an error, or was cut; the output before it is not a finished turn."""

    error: ProviderError


ModelOutputDelta: TypeAlias = (
    Started | PartStarted | PartDelta | PartExtended | PartEnded | UsageReported | Finished | Failed
)


EMPTY_STOP_REASONS: frozenset[str] = frozenset({"", "end", "other", "malformed_call"})
"""Stop reasons that do not explain why an answer is empty. Any other one (a refusal, a length limit) is itself an answer."""


def is_visible(delta: ModelOutputDelta) -> bool:
    """Whether a reader sees something new. Until then nothing was shown, and the call may be made again or elsewhere.

    Visible are text in a `PartDelta` or `PartStarted`, the start of any part that is not text, thinking or refusal, and a stop
    reason that explains an empty answer.
    """
    kind = type(delta)
    shown: Any = delta
    if kind is PartDelta:
        return bool(shown.text)
    if kind is PartStarted:
        part = shown.part
        return not isinstance(part, Text | Thinking | Refusal) or bool(part.text)
    return kind is Finished and shown.stop_reason not in EMPTY_STOP_REASONS


def whole_part(part: Any, pieces: list[str], gained: Sequence[NativeExtras] = ()) -> Any:
    """A part with the pieces received so far, and the native extras that it gained."""
    if not pieces and not gained and (type(part) is not ToolCallRequest or part.arguments):
        return part
    changes: dict[str, Any] = {}
    if type(part) is ToolCallRequest:
        # A call without arguments streams nothing, or an empty string: it means an empty object.
        changes["arguments"] = part.arguments + "".join(pieces) or ("" if part.freeform else "{}")
    elif pieces:
        changes["text"] = part.text + "".join(pieces)
    if gained:
        changes["native"] = merged(part.native, *gained)
    return structs.replace(part, **changes)


class GrowingPart(Struct):
    """A part whose end has not come: more of it may follow."""

    part: Any
    candidate: int = 0
    pieces: list[str] = []
    gained: list[NativeExtras] = []

    def whole(self) -> Any:
        """The part with what was kept of it."""
        return whole_part(self.part, self.pieces, self.gained)


_UNFINISHED = Finished("")


class Assembler(Struct, eq=False):
    """Deltas in, a `ModelOutput` out. `add` them as they come; `output` is what is known so far."""

    error: ProviderError | None = None
    usage: TokenUsage | None = None
    _parts: dict[int, GrowingPart] = {}
    _started: Started = Started()
    _finished: dict[int, Finished] = {}
    _has_candidates: bool = False

    def add(self, delta: ModelOutputDelta) -> None:
        kind = type(delta)
        added: Any = delta
        if kind is PartDelta:
            self._parts[added.index].pieces.append(added.text)
        elif kind is PartEnded:
            pass  # the end of the stream ends every part
        elif kind is PartStarted:
            self._parts[added.index] = GrowingPart(added.part, added.candidate)
            self._has_candidates |= added.candidate > 0
        elif kind is UsageReported:
            self.usage = added.usage
        elif kind is Finished:
            self._finished[added.candidate] = added
            self._has_candidates |= added.candidate > 0
        elif kind is Started:
            self._started = added
        elif kind is PartExtended:
            self._parts[added.index].gained.append(added.native)
        elif kind is Failed:
            self.error = added.error

    @property
    def id(self) -> str:
        """The provider's id of the answer, if it has one."""
        return self._started.id

    @property
    def is_finished(self) -> bool:
        return bool(self._finished) and self.error is None

    @property
    def parts(self) -> tuple[OutputPart, ...]:
        """The parts of the first candidate so far, in order."""
        if len(self._parts) == 1 and not self._has_candidates:  # one call, or one text
            (part,) = self._parts.values()
            return (part.whole(),)
        return tuple([part.whole() for part in self._parts_of(0)])

    @property
    def stop_reason(self) -> StopReason:
        """Why the first candidate stopped, if it did."""
        return self._finished.get(0, _UNFINISHED).stop_reason

    @property
    def output(self) -> ModelOutput:
        """The answer so far."""
        if not self._has_candidates:
            return self._candidate(0, self._parts_of(0), ())
        numbers = {0, *self._finished, *(part.candidate for part in self._parts.values())}
        others = tuple(self._candidate(number, self._parts_of(number), ()) for number in sorted(numbers) if number)
        return self._candidate(0, self._parts_of(0), others)

    def _parts_of(self, candidate: int) -> list[GrowingPart]:
        ordered = [self._parts[index] for index in sorted(self._parts)]
        return [part for part in ordered if part.candidate == candidate] if self._has_candidates else ordered

    def _candidate(self, number: int, parts: list[GrowingPart], others: tuple[ModelOutput, ...]) -> ModelOutput:
        started = self._started
        finished = self._finished.get(number, _UNFINISHED)
        return ModelOutput(
            parts=tuple([part.whole() for part in parts]),
            stop_reason=finished.stop_reason,
            stop_sequence=finished.stop_sequence,
            id=started.id,
            model=finished.model or started.model,
            created=started.created,
            usage=self.usage if number == 0 else None,
            others=others,
            format=started.format,
            native=overlaid(started.native if number == 0 else None, finished.native),
            source=finished.source,
        )


def overlaid(native: NativeExtras | None, more: NativeExtras | None) -> NativeExtras | None:
    """Two native mappings as one: every value of the later replaces that of the earlier, lists too."""
    if not native or not more:
        return more or native
    return {**native, **{origin: {**native.get(origin, {}), **extras} for origin, extras in more.items()}}


def merged(*natives: NativeExtras | None) -> NativeExtras | None:
    """Native mappings as one: lists grow, everything else is replaced by the later. None of those given is changed."""
    given = [native for native in natives if native]
    if len(given) < 2:
        return given[0] if given else natives[0]
    result: NativeExtras = {}
    grown: dict[tuple[str, str], list[Any]] = {}  # lists of our own, which can be extended
    for native in given:
        for origin, extras in native.items():
            known = result.setdefault(origin, {})
            for name, value in extras.items():
                before, key = known.get(name), (origin, name)
                if not isinstance(value, list) or not isinstance(before, list):
                    known[name] = value
                elif grown.get(key) is before:
                    before += value
                else:
                    known[name] = grown[key] = [*before, *value]
    return result


def deltas_from_output(output: ModelOutput, chunk_size: int | None = None) -> list[ModelOutputDelta]:
    """The deltas of a complete output, from `Started` to `Finished`; assembled again they equal it (law L6)."""
    deltas: list[ModelOutputDelta] = [Started(output.id, output.model, output.created, output.format, output.native)]
    index = 0
    for candidate, answer in enumerate((output, *output.others)):
        for part in answer.parts:
            deltas += deltas_from_part(index, part, chunk_size, candidate)
            index += 1
    if output.usage is not None:
        deltas.append(UsageReported(output.usage))
    deltas.append(Finished(output.stop_reason, output.stop_sequence, source=output.source))
    for candidate, answer in enumerate(output.others, 1):
        deltas.append(
            Finished(answer.stop_reason, answer.stop_sequence, candidate, answer.native, source=answer.source)
        )
    return deltas


def deltas_from_part(
    index: int, part: OutputPart, chunk_size: int | None = None, candidate: int = 0
) -> Sequence[ModelOutputDelta]:
    """The deltas of one part. Text and arguments come in chunks of `chunk_size` characters, or in one if it is None."""
    text = ""
    if type(part) is Text:
        text = part.text
        part = _NO_TEXT if part.native is None else structs.replace(part, text="")
    elif type(part) is ToolCallRequest:
        text = part.arguments
        part = structs.replace(part, arguments="")
    elif isinstance(part, Thinking | Refusal):
        text = part.text
        part = structs.replace(part, text="")
    started, ended = PartStarted(index, part, candidate), PartEnded(index)
    if not text:
        return started, ended
    if chunk_size is None or len(text) <= chunk_size:
        return started, PartDelta(index, text), ended
    pieces = [PartDelta(index, text[at : at + chunk_size]) for at in range(0, len(text), chunk_size)]
    return started, *pieces, ended
