"""What is taken out of a context that has grown too large: a pure function of what is shown and what may stay.

`CompactionPlanner.next_step` names one entry to append, and is asked again until the request fits. In this order:

- clamp: new results that take more than a quarter of the room are shortened before they are ever sent;
- clear: the text of old results becomes a note; if that is enough, only of those that the same call brought again later;
- segment: one summary for the rounds between the last segment and the tail;
- fold: one summary for the oldest half of the segments, once segments take more than a third;
- window: the oldest entries are left out without a summary; new results are shortened to what is left of the room.

Never taken out: the last message of a person, what no model has answered yet, messages of operators, pinned entries, results of
tools that keep them, a call without a result, and the last round; the last three, if they take less than a third.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from antiphon.context.tokens import TokenLedger
from antiphon.context.view import ContextView, SegmentText, has_open_calls
from antiphon.context.window import MessageGroup, group_messages
from antiphon.errors import ContextError
from antiphon.history import (
    CompactionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ShortenedResultsEntry,
    ToolCallResultsEntry,
)

Tier = Literal["clamp", "clear", "segment", "fold", "window"]

CLAMP_SHARE, _TAIL_SHARE, _FOLD_SHARE = 1 / 4, 0.3, 1 / 3
_LEAST_SUMMARY, _MOST_SUMMARY = 64, 2_000
_LEAST_SAVING = 5_000
_REQUEST_TOKENS = 200
"""About the size of the request for a summary."""


class Compaction(Struct, frozen=True, kw_only=True):
    """How a conversation is kept within its limit.

    A compaction that the limit forces leaves at most `target` of it, where it can; the last `tail_rounds` rounds stay as they
    are. `model` (a name or a client) writes the summaries, if not the conversation's; `prompt` asks for them in other words, and
    `focus` says what they must not miss. `thrift="clear"` also clears old results below the limit, once reading them again has
    cost as much as clearing them does; where prices are not known, only the limit decides. `recall` offers the tool by which the
    model reads again what was left out, if the conversation has tools. With `native` the provider compacts at the limit where its
    API can do that, and nothing is compacted here; elsewhere all of this applies.
    """

    target: float = 0.45
    tail_rounds: int = 3
    model: Any = None
    prompt: str = ""
    focus: str = ""
    recall: bool = True
    thrift: Literal["clear", "off"] = "clear"
    native: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise ContextError(f"target={self.target}: must be above 0 and below 1")
        if self.tail_rounds < 1:
            raise ContextError(f"tail_rounds={self.tail_rounds}: must be at least 1")
        if self.thrift not in ("clear", "off"):
            raise ContextError(f"thrift={self.thrift!r}: must be 'clear' or 'off'")


class Step(Struct, frozen=True):
    """One entry to append. A `segment` and a `fold` want a summary of the entries of their range."""

    tier: Tier
    entry: CompactionEntry | ShortenedResultsEntry


class CompactionPlanner:
    """Plans for one view. `room` is what entries may take by the count of `ledger`; `protected` are entries to keep.

    `reading_room` is what another model that writes the summaries can read; it reads the range alone.
    """

    def __init__(
        self,
        view: ContextView,
        ledger: TokenLedger,
        room: int,
        options: Compaction,
        protected: Iterable[int] = (),
        reading_room: int | None = None,
    ) -> None:
        self._view = view
        self._room = max(0, room)
        self._reading_room = reading_room
        self._options = options
        self._protected = frozenset(protected)
        self._weigh = ledger.tokens_of
        self._shown: list[Any] = view.shown
        self._groups = group_messages(self._shown)
        self._weights = [sum(map(self._weigh, self._shown[group.start : group.stop])) for group in self._groups]
        self.weight = sum(self._weights)
        """What the entries take now."""
        self.max_summary_tokens = max(_LEAST_SUMMARY, min(_MOST_SUMMARY, self._room // 8))

    @property
    def fits(self) -> bool:
        return self.weight <= self._room

    def clamp(self) -> Step | None:
        """Shorten results that no model has seen yet and that take more than a quarter of the room."""
        new = self._new_results()
        if new is None or self._weigh(new) <= self._room * CLAMP_SHARE:
            return None
        return self._clamp(new, int(self._room * CLAMP_SHARE))

    def next_step(self, *, can_summarize: bool = True, after: Tier | None = None) -> Step | None:
        """What to do next if the entries do not fit; None if nothing can be done any more, or if they fit.

        `after` is the step before. Another model that reads a range in pieces reads them down to the target: one change of
        the prefix, not one per piece.
        """
        if self.fits:
            is_in_pieces = after == "segment" and self._reading_room is not None
            return self.segment() if is_in_pieces and self.weight > self._room * self._options.target else None
        if (step := self.clamp()) is not None:
            return step
        for clear in (self.clear(only_repeated=True), self.clear()):
            if clear is not None and self.weight_after(clear) <= self._room * self._options.target:
                return clear
        if not can_summarize:
            return clear or self._window() or self._last_clamp()
        segments = [index for index, group in enumerate(self._groups) if self._segment_of(group) is not None]
        taken = sum(self._weights[index] for index in segments)
        if len(segments) > 1 and taken > self._room * _FOLD_SHARE and (fold := self._fold(segments)) is not None:
            return fold
        return self.segment() or clear or self._fold(segments) or self._window() or self._last_clamp()

    def weight_after(self, step: Step) -> int:
        """What the entries take once the entry of `step` is appended, without the summary that it wants."""
        return sum(map(self._weigh, self._view.after(step.entry).shown))

    def cheaper(self, since: int, read: float, write: float) -> Step | None:
        """Clear old results, if reading them again since entry `since` has cost as much as the clear does.

        It is the rule of ski rental: without a forecast, never more than twice what would have been best. `read` and `write` are
        the prices of a token that is read from the cache, and of one that is not.
        """
        step = self.clear()
        if step is None or self.weight - self.weight_after(step) < min(self._room // 20, _LEAST_SAVING):
            return None
        paid = calls = rest = 0
        for entry in reversed(self._shown):
            number = getattr(entry, "sequence_number", 0)
            if number < step.entry.since:
                break
            rest += self._weigh(entry)
            if type(entry) is ModelOutputEntry and number > since:
                calls += 1
            elif type(entry) is ToolCallResultsEntry and number <= step.entry.up_to and number not in step.entry.kept:
                paid += self._weigh(entry) * max(0, calls - self._options.tail_rounds)
        rest -= self.weight - self.weight_after(step)
        return step if paid * read >= rest * (write - read) else None

    # The tiers.

    def clear(self, *, only_repeated: bool = False) -> Step | None:
        """Replace the text of the results before the tail by notes; or of those alone that the same calls brought again."""
        tail = self._tail()
        numbers = [
            entry.sequence_number
            for group in self._groups[:tail]
            for entry in self._shown[group.start : group.stop]
            if type(entry) is ToolCallResultsEntry
        ]
        wanted = [number for number in numbers if number not in self._protected]
        if only_repeated and wanted:
            repeated = self._repeated_results()
            wanted = [number for number in wanted if number in repeated]
        if not wanted:
            return None
        chosen = set(wanted)
        kept = tuple(number for number in numbers if wanted[0] < number < wanted[-1] and number not in chosen)
        return self._if_smaller(Step("clear", ShortenedResultsEntry(wanted[0], wanted[-1], 0, kept)))

    def segment(self) -> Step | None:
        """Put a summary in place of the rounds between the last segment and the tail."""
        tail, read = self._tail(), 0
        start = self._after_segments(tail)
        for index in range(tail):  # a model reads all that comes before the end of the range
            if self._reading_room is None or index >= start:
                read += self._weights[index]
            if index > start and read > (self._reading_room or self._room) - _REQUEST_TOKENS:
                tail = index
                break
        step = self._range("segment", start, tail)
        return None if step is None else self._if_smaller(step, needs_summary=True)

    def earlier_turns(self) -> Step | None:
        """The same for all turns but the latest, whatever it saves; for a first turn, for all but its last rounds."""
        tail = self._tail()
        turns = [
            index
            for index, group in enumerate(self._groups)
            if index
            and not self._protected.isdisjoint(
                [getattr(entry, "sequence_number", 0) for entry in self._shown[group.start : group.stop]]
            )
        ]
        turn = turns[-1] if turns else 0
        return self._range("segment", self._after_segments(turn), turn) or self._range(
            "segment", self._after_segments(tail), tail
        )

    def _after_segments(self, stop: int) -> int:
        """The index of the first group after the last segment before `stop`."""
        return max([i + 1 for i in range(stop) if self._segment_of(self._groups[i]) is not None], default=0)

    def _fold(self, segments: Sequence[int]) -> Step | None:
        """Put one summary in place of the oldest half of the segments."""
        if len(segments) < 2:
            return None
        oldest = segments[: (len(segments) + 1) // 2] if len(segments) > 2 else segments
        first, last = self._segment_of(self._groups[oldest[0]]), self._segment_of(self._groups[oldest[-1]])
        assert first is not None
        assert last is not None
        kept = tuple(number for number in sorted(self._protected) if first.since <= number <= last.up_to)
        return self._if_smaller(Step("fold", CompactionEntry("", last.up_to, first.since, kept)), needs_summary=True)

    def _window(self) -> Step | None:
        """Leave out the oldest rounds, as many as needed; what summaries say, only if nothing else is left."""
        tail = self._tail(1)
        summaries = [index for index in range(tail) if (one := self._segment_of(self._groups[index])) and one.summary]
        first = summaries[-1] + 1 if summaries else 0
        for start in (first, 0) if first else (0,):
            left, stop = self.weight, start
            while stop < tail and left > self._room * self._options.target:
                left -= self._weights[stop] if self._is_removable(self._groups[stop]) else 0
                stop += 1
            step = self._range("window", start, stop)
            if step is not None and (step := self._if_smaller(step)) is not None:
                return step
        return None

    def _last_clamp(self) -> Step | None:
        """Shorten the results that no model has seen yet to what is left of the room."""
        new = self._new_results()
        if new is None:
            return None
        return self._clamp(new, self._room - (self.weight - self._weigh(new)))

    # What they have in common.

    def _range(self, tier: Tier, start: int, stop: int) -> Step | None:
        """A segment for the groups `start` to `stop`, as far as they may be taken out."""
        groups = [group for group in self._groups[start:stop] if self._is_removable(group)]
        if not groups:
            return None
        first, last = self._numbers(groups[0])[0], self._numbers(groups[-1])[1]
        kept = tuple(number for number in sorted(self._protected) if first <= number <= last)
        return Step(tier, CompactionEntry("", last, first, kept))

    def _if_smaller(self, step: Step, *, needs_summary: bool = False) -> Step | None:
        """The step, if it takes out more than it adds."""
        added = self.max_summary_tokens if needs_summary else 0
        return step if self.weight_after(step) + added < self.weight else None

    def _numbers(self, group: MessageGroup) -> tuple[int, int]:
        segment = self._segment_of(group)
        if segment is not None:
            return segment.since, segment.up_to
        return self._shown[group.start].sequence_number, self._shown[group.stop - 1].sequence_number

    def _segment_of(self, group: MessageGroup) -> CompactionEntry | None:
        entry = self._shown[group.start]
        return entry.segment if type(entry) is SegmentText else None

    def _is_removable(self, group: MessageGroup) -> bool:
        if self._segment_of(group) is not None:
            return True
        members = self._shown[group.start : group.stop]
        return self._protected.isdisjoint([entry.sequence_number for entry in members]) and not has_open_calls(
            self._shown, group
        )

    def _tail(self, rounds: int | None = None) -> int:
        """The index of the first group of the tail."""
        most = self._options.tail_rounds if rounds is None else rounds
        taken = found = 0
        tail = len(self._groups)
        for index in range(len(self._groups) - 1, -1, -1):
            group = self._groups[index]
            taken += self._weights[index]
            members = self._shown[group.start : group.stop]
            is_input = group.stop < len(self._shown) and type(members[0]) is ModelInputEntry
            if self._segment_of(group) is not None:
                break
            if found and (found >= most or taken > self._room * _TAIL_SHARE):
                break
            tail = index
            found += is_input or any(type(entry) is ModelOutputEntry for entry in members)
        return tail

    def _repeated_results(self) -> set[int]:
        """The entries of results whose calls were all made again later, with the same arguments."""
        repeated: set[int] = set()
        later: set[tuple[str, str]] = set()
        results: list[ToolCallResultsEntry] = []
        for entry in reversed(self._shown):
            if type(entry) is ToolCallResultsEntry:
                results.append(entry)
            elif entry.tool_calls:
                made = {call.tool_call_id: (call.tool_name, call.arguments) for call in entry.tool_calls}
                repeated.update(
                    one.sequence_number
                    for one in results
                    if later.issuperset([made.get(result.tool_call_id, ("", "")) for result in one.results])
                )
                later.update(made.values())
                results = []
        return repeated

    def _new_results(self) -> ToolCallResultsEntry | None:
        """The results that came after the last output."""
        for entry in reversed(self._shown):
            if type(entry) is ToolCallResultsEntry:
                return entry
            if type(entry) is not ModelInputEntry:
                return None
        return None

    def _clamp(self, entry: ToolCallResultsEntry, tokens: int) -> Step | None:
        """Shorten the results of an entry to `tokens` together; each to the same length, short ones stay whole."""
        if entry.sequence_number in self._protected:
            return None
        number, weight = entry.sequence_number, self._weigh(entry)
        lengths = sorted(len(result.result_markdown) for result in entry.results)
        chars = max(0.0, tokens * sum(lengths) / max(1, weight))
        while True:
            step = Step("clamp", ShortenedResultsEntry(number, number, _share(lengths, chars)))
            after = self._weigh(self._view.shorten(number, step.entry.max_chars))  # type: ignore[union-attr]
            if after <= tokens or chars < 1:
                return step if after < weight else None
            chars *= 0.8

    def largest(self) -> tuple[str, int]:
        """The largest piece that is still there, and what it takes."""
        weights = [(self._weigh(entry), index) for index, entry in enumerate(self._shown)]
        if not weights:
            return "the instruction and the tools", 0
        weight, index = max(weights)
        entry = self._shown[index]
        number = entry.segment.sequence_number if type(entry) is SegmentText else entry.sequence_number
        return f"entry {number} ({getattr(entry, 'kind', 'summary')})", weight


def _share(lengths: Sequence[int], chars: float) -> int:
    """The most that each may have so that all together have at most `chars`; `lengths` are in ascending order."""
    left = chars
    for index, length in enumerate(lengths):
        each = left / (len(lengths) - index)
        if length > each:
            return int(each)
        left -= length
    return lengths[-1] if lengths else 0
