"""What a compaction did, in a line: how many results became notes, which entries were summarised or left out."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.context.view import shorten_results
from antiphon.history import CompactionEntry, HistoryEntry, ShortenedResultsEntry, ToolCallResultsEntry
from antiphon_chat.language import translate


def count_shortened(effective: Iterable[HistoryEntry], change: ShortenedResultsEntry) -> int:
    """The results that `change` shortens for a model, and no earlier entry shortened as much or took out."""
    earlier: list[CompactionEntry | ShortenedResultsEntry] = []
    inside: list[ToolCallResultsEntry] = []
    for entry in effective:
        if entry.sequence_number >= change.sequence_number:
            break
        if isinstance(entry, CompactionEntry) or (
            isinstance(entry, ShortenedResultsEntry) and entry.max_chars <= change.max_chars
        ):
            earlier.append(entry)
        elif isinstance(entry, ToolCallResultsEntry) and _covers(change, entry.sequence_number):
            inside.append(entry)
    whole = (entry for entry in inside if not any(_covers(one, entry.sequence_number) for one in earlier))
    pairs = ((entry.results, shorten_results(entry, change.max_chars).results) for entry in whole)
    return sum(new is not old for before, after in pairs for old, new in zip(before, after, strict=True))


def _covers(change: CompactionEntry | ShortenedResultsEntry, number: int) -> bool:
    return change.since <= number <= change.up_to and number not in change.kept


def compaction_line(effective: Iterable[HistoryEntry], change: CompactionEntry | ShortenedResultsEntry) -> str:
    """The line about a compaction, in the language in use; empty if nothing was whole before it."""
    if isinstance(change, CompactionEntry):
        since, to = max(1, change.since), change.up_to
        if change.summary:
            return translate("entries {since} to {to} summarised", since=since, to=to)
        return translate("entries {since} to {to} left out", since=since, to=to)
    count = count_shortened(effective, change)
    if not count:
        return ""
    if change.max_chars:
        return translate("1 result shortened") if count == 1 else translate("{count:,} results shortened", count=count)
    if count == 1:
        return translate("1 result shortened to a note")
    return translate("{count:,} results shortened to notes", count=count)
