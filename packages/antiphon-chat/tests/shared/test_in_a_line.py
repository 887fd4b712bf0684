"""How many results a compaction shortened, for the line about it: those that were whole before."""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.history import CompactionEntry, HistoryEntry, ShortenedResultsEntry, ToolCallResultsEntry
from antiphon.parts import Text, ToolCallResult
from antiphon_chat.shared.in_a_line import count_shortened

places = st.integers(0, 25)
results = st.sampled_from([5, 50, 500]).map(
    lambda size: ToolCallResultsEntry((ToolCallResult("look", "c1", content=(Text("x" * size),)),))
)
kept = st.lists(places, max_size=3).map(tuple)
shortened = st.builds(ShortenedResultsEntry, places, places, st.sampled_from([0, 10, 100]), kept)
summaries = st.builds(CompactionEntry, st.just("so far"), places, places, kept)


NOTHING = CompactionEntry("so far", 0, 2)
"""A compaction that ends before it begins, as no planner makes it."""


def numbered(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    return [structs.replace(entry, sequence_number=number) for number, entry in enumerate(entries, 1)]


def covers(change: CompactionEntry | ShortenedResultsEntry, entry: HistoryEntry) -> bool:
    return change.since <= entry.sequence_number <= change.up_to and entry.sequence_number not in change.kept


def is_counted(entry: HistoryEntry, change: ShortenedResultsEntry, before: Sequence[HistoryEntry]) -> bool:
    """The definition, entry by entry."""
    if not isinstance(entry, ToolCallResultsEntry) or not covers(change, entry):
        return False
    is_whole = not any(
        (
            isinstance(one, CompactionEntry)
            or (isinstance(one, ShortenedResultsEntry) and one.max_chars <= change.max_chars)
        )
        and covers(one, entry)
        for one in before
    )
    return is_whole and len(entry.results[0].result_markdown) == 500  # the others are hardly longer than a note


@given(st.lists(st.one_of(results, results, shortened, summaries), max_size=25))
@example(
    [
        ToolCallResultsEntry((ToolCallResult("look", "c1", content=(Text("x" * 500),)),)),
        NOTHING,
        ShortenedResultsEntry(0, 1),
    ]
)
def test_results_that_were_whole_are_counted(entries: list[HistoryEntry]) -> None:
    log = numbered(entries)
    for change in log:
        if isinstance(change, ShortenedResultsEntry):
            before = log[: change.sequence_number - 1]
            assert count_shortened(log, change) == sum(is_counted(entry, change, before) for entry in before)


def test_a_log_with_many_compactions_is_counted_at_once() -> None:
    results = ToolCallResultsEntry((ToolCallResult("look", "c1", content=(Text("x" * 500),)),))
    log = numbered([ShortenedResultsEntry(1, 1) if n % 4 == 0 else results for n in range(1, 20_000)])
    last = ShortenedResultsEntry(1, 19_999, sequence_number=20_000)
    began = process_time()
    assert count_shortened([*log, last], last) == 14_999
    assert process_time() - began < 2  # each entry compared with each change: 4 s
