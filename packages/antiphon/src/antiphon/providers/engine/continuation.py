"""`Continuation`: the rest of an answer whose stream broke, from another target. No I/O here.

It watches the deltas that were passed on. If the stream breaks and only text (and reasoning) was shown, another target may finish
the answer, in one of two ways: it continues the shown text as a prefix, where the model can (`is_prefilled`); or it gets the same
request, and only what follows the shown text is passed on, if its answer begins with exactly that text. If it does not, `feed`
ends with a `Failed`. For the reader it is one stream: one start, growing parts, one end, and the usage of all answers that
reported one (law L6).
"""

from __future__ import annotations

from msgspec import structs

from antiphon.parts import Text, Thinking, TokenUsage
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.output import ProviderError

_BREAKS = frozenset({"stream_cut", "timeout", "server", "overloaded"})
"""Kinds of errors after which another target may finish the answer."""
_DIFFERENT = ProviderError(
    "the answer of the fallback does not begin with the text that was shown", "stream_cut", code="different_answer"
)


class Continuation:
    """What was shown of one answer so far."""

    def __init__(self) -> None:
        self.has_usage = False
        """Whether the answer that is read now has reported its usage."""
        self.is_prefilled = False
        """Whether it continues the shown text as a prefix."""
        self._seen: list[ModelOutputDelta] = []  # without the text of parts
        self._texts: dict[int, list[str]] = {}
        self._is_text_only = True
        self._open: int | None = None  # the part that grows
        self._open_is_text = False
        self._next_index = 0
        self._usage: TokenUsage | None = None  # as the reader knows it
        self._earlier: TokenUsage | None = None  # that of the answers before the one that is read now
        self._is_continued = False
        self._expected = ""  # shown text that the answer has to begin with
        self._repeated = 0  # how much of it the answer has
        self._overlap = ""  # white space that the answer may begin with
        self._places: dict[int, int | None] = {}  # index in the answer -> index for the reader; None: it is left out
        self._is_text: set[int] = set()

    @property
    def text(self) -> str:
        """The text that was shown."""
        pieces: list[str] = []
        for delta in self._seen:
            if isinstance(delta, PartStarted) and isinstance(delta.part, Text):
                pieces += (delta.part.text, *self._texts.get(delta.index, ()))
        return "".join(pieces)

    @property
    def shown(self) -> list[ModelOutputDelta]:
        """What was shown, as the fewest deltas that say the same."""
        deltas: list[ModelOutputDelta] = []
        for delta in self._seen:
            deltas.append(delta)
            if isinstance(delta, PartStarted) and self._texts.get(delta.index):
                deltas.append(PartDelta(delta.index, "".join(self._texts[delta.index])))
        return deltas

    @property
    def _is_repeating(self) -> bool:
        """Whether the answer has not come to the end of the shown text yet."""
        return self._repeated < len(self._expected)

    def accepts(self, error: ProviderError) -> bool:
        """Whether another target may finish the answer after this error."""
        return self._is_text_only and (error.kind in _BREAKS)

    def begin(self, *, is_prefilled: bool) -> None:
        """The answer of another target follows. `is_prefilled`: it continues `text`, without white space at its end."""
        self._is_continued, self.is_prefilled = True, is_prefilled
        self._earlier, self.has_usage = self._usage, False
        text = self.text
        self._expected, self._repeated = "" if is_prefilled else text, 0
        self._overlap = text[len(text.rstrip()) :] if is_prefilled else ""
        self._places, self._is_text = {}, set()

    def feed(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        """What the reader gets of these deltas. If the last is `Failed`, nothing follows."""
        if not self._is_continued:
            for delta in deltas:
                self._note(delta)
            return deltas
        passed: list[ModelOutputDelta] = []
        for delta in deltas:
            continued = self._continue(delta)
            for shown in continued:
                self._note(shown)
            passed += continued
            if passed and isinstance(passed[-1], Failed):
                break
        return passed

    def _note(self, delta: ModelOutputDelta) -> None:
        """The reader gets this delta."""
        if isinstance(delta, PartDelta):
            if self._is_text_only:
                self._texts.setdefault(delta.index, []).append(delta.text)
            return
        self._seen.append(delta)
        if isinstance(delta, PartStarted):
            self._next_index = max(self._next_index, delta.index + 1)
            if isinstance(delta.part, Text | Thinking) and not delta.candidate:
                self._open, self._open_is_text = delta.index, isinstance(delta.part, Text)
            else:
                self._is_text_only = False
        elif isinstance(delta, PartEnded) and delta.index == self._open:
            self._open = None
        elif isinstance(delta, UsageReported):
            self._usage, self.has_usage = delta.usage, True
        elif isinstance(delta, Finished):
            self._is_text_only = False  # it is complete
        if not self._is_text_only:  # nothing can finish it
            self._seen, self._texts = [], {}

    def _continue(self, delta: ModelOutputDelta) -> list[ModelOutputDelta]:
        """What the reader gets of a delta of another target."""
        match delta:
            case Started():
                return []
            case UsageReported(usage):
                return [UsageReported(usage if self._earlier is None else self._earlier + usage)]
            case PartStarted(index, part, candidate):
                if candidate:
                    return [Failed(_DIFFERENT)]
                if isinstance(part, Text):
                    self._is_text.add(index)
                    return self._add_text(part.text) if part.text else []
                if isinstance(part, Thinking):
                    self._places[index] = None
                    return []
                if self._is_repeating:
                    return [Failed(_DIFFERENT)]
                self._places[index] = self._next_index
                return [*self._end_part(), structs.replace(delta, index=self._next_index)]
            case PartDelta(index, text) if index in self._is_text:
                return self._add_text(text)
            case PartEnded(index) if index in self._is_text:
                return [] if self._is_repeating or not self._open_is_text else self._end_part()
            case PartExtended(index, _) if index in self._is_text:
                return []
            case PartDelta() | PartEnded() | PartExtended():
                place = self._places.get(delta.index)
                return [] if place is None else [structs.replace(delta, index=place)]
            case Finished(candidate=candidate):
                if self._is_repeating or candidate:
                    return [Failed(_DIFFERENT)]
                return [*self._end_part(), delta]
        return [delta]

    def _add_text(self, text: str) -> list[ModelOutputDelta]:
        if self._is_repeating:
            size = min(len(text), len(self._expected) - self._repeated)
            if not self._expected.startswith(text[:size], self._repeated):
                return [Failed(_DIFFERENT)]
            self._repeated, text = self._repeated + size, text[size:]
        elif self._overlap and text:
            pairs = zip(self._overlap, text, strict=False)
            size = next(
                (at for at, (shown, given) in enumerate(pairs) if shown != given), min(len(self._overlap), len(text))
            )
            self._overlap = self._overlap[size:] if size == len(text) else ""
            text = text[size:]
        if not text:
            return []
        if self._open is not None and self._open_is_text:
            return [PartDelta(self._open, text)]
        index = self._next_index
        return [*self._end_part(), PartStarted(index, Text("")), PartDelta(index, text)]

    def _end_part(self) -> list[ModelOutputDelta]:
        return [] if self._open is None else [PartEnded(self._open)]
