"""The effective view: the log without what was rolled back.

A log without rollbacks is effective as a whole: one span, 1 to now. A rollback to version `to` closes the current span and
opens a new one behind the spans that were effective *at* that version. Spans are linked backwards and never changed, so
every rollback costs one span however long the log is (and one for each entry that it keeps), old views stay valid, and
rolling back over a rollback (a redo) needs no special case: the view at any version can still be found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from antiphon.history.entries import HistoryEntry


class Span(Struct, frozen=True, gc=False):
    """Effective entries `start` to `end` (sequence numbers, `end` open for the current one), behind those of `before`."""

    start: int
    end: int | None = None
    before: Span | None = None

    def until(self, version: int) -> Span | None:
        """The part of this view that lies at or before `version`."""
        span: Span | None = self
        while span is not None and span.start > version:
            span = span.before
        if span is None:
            return None
        end = version if span.end is None else min(span.end, version)
        return Span(span.start, end, span.before)


class EffectiveSpans:
    """The spans of a growing log, by version."""

    __slots__ = ("_opened", "_spans")

    def __init__(self) -> None:
        self._opened = [0]
        self._spans = [Span(1)]

    @property
    def current(self) -> Span:
        return self._spans[-1]

    def at(self, version: int) -> Span | None:
        """What was effective when the log had `version` entries."""
        return self._spans[bisect_right(self._opened, version) - 1].until(version)

    def roll_back(self, sequence_number: int, to: int, kept: Sequence[int] = ()) -> None:
        """The entry `sequence_number` rolls the log back to version `to`; the entries `kept` stay effective."""
        before = self.at(to)
        for number in kept:
            before = Span(number, number, before)
        self._spans.append(Span(sequence_number + 1, before=before))
        self._opened.append(sequence_number)


def effective_entries(log: Sequence[HistoryEntry], span: Span | None) -> list[HistoryEntry]:
    """The entries of a view, oldest first."""
    spans: list[Span] = []
    while span is not None:
        spans.append(span)
        span = span.before
    entries: list[HistoryEntry] = []
    for part in reversed(spans):
        entries.extend(log[part.start - 1 : part.end])
    return entries
