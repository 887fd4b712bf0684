"""What a model sees of each entry: the entry itself, a summary in place of several, or results without their long text.

A fold over the effective entries. An ordinary entry is added at the end. A `CompactionEntry` puts one text in place of the rounds
between `since` and `up_to`; a `ShortenedResultsEntry` replaces the text of results by a note. What they cover is decided when
they are taken in, by what the log had then: a round that a range cuts, that has an entry to be kept, or a call without a result
stays whole. So whatever is appended changes nothing shown before the first entry that it names (law L9).

A compaction of the provider itself (`native`) is its block for the model that made it, and its text for any other. If there is
no text (it is encrypted), other models see the originals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, structs

from antiphon.context.window import MessageGroup, group_messages
from antiphon.history import (
    CompactionEntry,
    ContextEntry,
    ContextEntryRole,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpaqueEntry,
    Origin,
    ShortenedResultsEntry,
    ToolCallResultsEntry,
)
from antiphon.history.codec import sequence_number_of
from antiphon.parts import Native, Part, Text, ToolCallRequest, ToolCallResult, text_of

SUMMARY_TITLE = "[Summary of the conversation so far]"

_CONTEXT = frozenset({ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry})
_CHANGES = frozenset({CompactionEntry, ShortenedResultsEntry})
_NOTE_CHARS = 120
"""A text that is hardly longer than the note about it stays."""


class SegmentText(Struct, frozen=True):
    """The text in place of the entries of a segment. It is shown, and not part of the log: the `segment` is."""

    segment: CompactionEntry
    content: tuple[Part, ...]
    origin: Origin | None = None
    """Who reads the provider's own block of the segment, if it has one."""
    originals: tuple[ContextEntry, ...] = ()
    """What others see instead of a block without a text."""

    @property
    def role(self) -> ContextEntryRole:
        return ContextEntryRole.MODEL_INPUT

    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]:
        return ()

    @property
    def live_screen(self) -> str | None:
        return None


class _Segment(Struct, frozen=True):
    """A segment in force: the numbers of the entries that it covers, and the index of the entry before which its text stands."""

    text: SegmentText
    covered: tuple[int, ...]
    index: int

    @property
    def since(self) -> int:
        return self.text.segment.since


class ContextView:
    """The effective entries of a growing history as a model sees them."""

    def __init__(self, readers: frozenset[str] | None = None) -> None:
        self._readers = readers  # the models that get it, as `provider/model`; None: not known
        self.shown: list[ContextEntry] = []
        """What a model sees, in order."""
        self.opaque: list[int] = []
        """The entries that a newer version wrote."""
        self.compacted: tuple[int, ...] = ()
        """The entries that are not shown because of a segment."""
        self.ends: tuple[int, ...] = ()
        """Where the last two changes end, as indexes of `shown`: what comes before them stays as it is."""
        self._last_changes: list[CompactionEntry | ShortenedResultsEntry] = []
        self._entries: list[Any] = self.shown  # all that a model could see; another list once something is changed
        self._segments: list[_Segment] = []
        self._replaced: dict[int, Any] = {}  # what is shown in place of an entry, by its number

    def add(self, entries: Iterable[HistoryEntry]) -> None:
        """Take in effective entries that were appended."""
        shown = self.shown
        for entry in entries:
            kind = type(entry)
            if kind in _CONTEXT:
                if kind is not ModelOutputEntry or entry.content:  # type: ignore[attr-defined]
                    shown.append(entry)  # type: ignore[arg-type]
                    if self._entries is not shown:
                        self._entries.append(entry)
            elif kind in _CHANGES:
                self._change(entry)
                shown = self.shown
            elif kind is OpaqueEntry:
                self.opaque.append(entry.sequence_number)

    def after(self, entry: CompactionEntry | ShortenedResultsEntry) -> ContextView:
        """The view as it would be if `entry` was appended now; this one stays as it is."""
        other = ContextView(self._readers)
        other._entries = self._entries.copy()
        other._segments = self._segments.copy()
        other._replaced = self._replaced.copy()
        other._change(entry)
        return other

    def shorten(self, number: int, max_chars: int) -> ToolCallResultsEntry:
        """The results of an entry as they would be shown with at most `max_chars` characters each."""
        index = bisect_left(self._entries, number, key=sequence_number_of)
        return shorten_results(self._entries[index], max_chars)

    def _change(self, entry: Any) -> None:
        if type(entry) is CompactionEntry:
            self._compact(entry)
        else:
            self._shorten(entry)
        shown: list[ContextEntry] = []
        covered = {number for segment in self._segments for number in segment.covered}
        segments = iter([*self._segments, None])
        segment = next(segments)
        for index, known in enumerate(self._entries):
            while segment is not None and segment.index <= index:
                shown.append(segment.text)
                segment = next(segments)
            number = known.sequence_number
            known = self._replaced.get(number, known)
            if number not in covered and (known.content or type(known) is not ModelOutputEntry):
                shown.append(known)
        while segment is not None:
            shown.append(segment.text)
            segment = next(segments)
        if self._entries is self.shown:
            self._entries = self.shown.copy()
        self.shown = shown
        self.compacted = tuple(sorted(covered))
        self._last_changes = [*self._last_changes[-1:], entry]
        self.ends = tuple(sorted({self._end_of(change) for change in self._last_changes} - {-1}))

    def _end_of(self, change: CompactionEntry | ShortenedResultsEntry) -> int:
        """The index of the last thing that is shown because of a change; -1 if there is none."""
        for index in range(len(self.shown) - 1, -1, -1):
            entry: Any = self.shown[index]
            if type(entry) is SegmentText:
                if entry.segment is change:
                    return index
            elif type(change) is ShortenedResultsEntry and entry.sequence_number <= change.up_to:
                return index if type(entry) is ToolCallResultsEntry else -1
        return -1

    def _compact(self, entry: CompactionEntry) -> None:
        since, up_to, kept = entry.since, entry.up_to, set(entry.kept)
        others = [known for known in self._segments if not since <= known.since <= up_to]
        taken = {number for known in others for number in known.covered}
        entries, covered, place = self._entries, list[int](), len(self._entries)
        for group in group_messages(entries):
            first, last = entries[group.start].sequence_number, entries[group.stop - 1].sequence_number
            if first < since:
                continue
            place = min(place, group.start)
            if last > up_to:
                break
            numbers = [known.sequence_number for known in entries[group.start : group.stop]]
            if kept.isdisjoint(numbers) and taken.isdisjoint(numbers) and not has_open_calls(entries, group):
                covered += numbers
        text = SegmentText(entry, (Text(segment_text(entry)),))
        if entry.native is not None:
            origin = self._take_out(entry.native, up_to)
            if not entry.summary:
                if self._readers is not None and (origin is None or origin.name not in self._readers):
                    return
                hidden = set(covered)
                hidden_entries = [one for one in entries if one.sequence_number in hidden]
                originals = tuple([self._replaced.get(one.sequence_number, one) for one in hidden_entries])
                text = structs.replace(text, origin=origin, originals=originals)
            else:
                text = structs.replace(text, origin=origin)
        self._segments = [*others, _Segment(text, tuple(covered), place)]
        self._segments.sort(key=lambda segment: (segment.index, segment.since))

    def _take_out(self, native: Native, up_to: int) -> Origin | None:
        """Show the answer that brought a block without it, since the segment has it; returns who made it."""
        for index in range(bisect_left(self._entries, up_to + 1, key=sequence_number_of), len(self._entries)):
            entry = self._entries[index]
            if type(entry) is ModelOutputEntry and native in entry.content:
                rest = tuple(part for part in entry.content if part != native)
                self._replaced[entry.sequence_number] = structs.replace(entry, content=rest)
                return entry.origin
        return None

    def _shorten(self, entry: ShortenedResultsEntry) -> None:
        kept = set(entry.kept)
        for known in self._entries:
            number = known.sequence_number
            if type(known) is ToolCallResultsEntry and entry.since <= number <= entry.up_to and number not in kept:
                shorter = shorten_results(known, entry.max_chars)
                if shorter is known:
                    self._replaced.pop(number, None)
                elif shorter != self._replaced.get(number):
                    self._replaced[number] = shorter


def has_open_calls(entries: Sequence[ContextEntry], group: MessageGroup) -> bool:
    """Whether a call of the group has no result."""
    members = entries[group.start : group.stop]
    calls = {call.tool_call_id for entry in members for call in entry.tool_calls}
    if not calls:
        return False
    answered = (part for entry in members for part in entry.content if isinstance(part, ToolCallResult))
    return bool(calls - {part.tool_call_id for part in answered})


def segment_text(entry: CompactionEntry) -> str:
    """The text in place of the entries of a segment."""
    if not entry.summary and entry.native is not None:
        return f"[The entries {entry.since} to {entry.up_to}, as the provider compacted them]"
    if not entry.summary:
        return f"[The entries {entry.since} to {entry.up_to} are left out]"
    title = f"[Summary of the entries {entry.since} to {entry.up_to}]" if entry.since else SUMMARY_TITLE
    return f"{title}\n{entry.summary}"


def shorten_results(entry: ToolCallResultsEntry, max_chars: int) -> ToolCallResultsEntry:
    """The entry with at most `max_chars` characters of each result, and a note about the rest; itself if nothing is too long."""
    number = entry.sequence_number
    results = tuple([_shorten_result(result, number, index, max_chars) for index, result in enumerate(entry.results)])
    overall = entry.overall_result
    if len(overall) > max_chars + _NOTE_CHARS:
        overall = _around(overall, max_chars, f"[{len(overall) - max_chars:,} characters left out]")
    if all(map(_is_same, results, entry.results)) and overall == entry.overall_result:
        return entry
    return structs.replace(entry, results=results, overall_result=overall)


def _is_same(one: object, other: object) -> bool:
    return one is other


def _shorten_result(result: ToolCallResult, number: int, index: int, max_chars: int) -> ToolCallResult:
    text = text_of(result.content)
    others = (
        [part for part in result.content if not isinstance(part, Text)] if len(result.content) > 1 or not text else []
    )
    if len(text) <= max_chars + _NOTE_CHARS and (max_chars or not others):
        return result
    left_out = [f"{len(text) - max_chars:,} characters"] if len(text) > max_chars else []
    if others and not max_chars:
        left_out.append(f"{len(others)} attachment{'s' if len(others) > 1 else ''}")
        others = []
    place = f"entry={number}, call={index}" if index else f"entry={number}"
    note = f"[{' and '.join(left_out)} of {result.tool_name} left out; recall({place}) shows them]"
    return structs.replace(result, content=(Text(_around(text, max_chars, note)), *others))


def _around(text: str, max_chars: int, note: str) -> str:
    """The beginning and the end of a text, and the note between them."""
    if not max_chars:
        return note
    head = max_chars * 2 // 3
    return f"{text[:head]}\n{note}\n{text[len(text) - (max_chars - head) :]}"
