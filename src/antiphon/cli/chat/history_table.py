"""The log of a conversation as a table, in its own terms: versions, kinds, rounds and usage."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.cli.chat.painter import Painter
from antiphon.conversation import Round, rounds_of
from antiphon.history import AgentHistorySnapshot, HistoryEntry, RollbackEntry, TokenUsage
from antiphon.history.entries import TITLES
from antiphon.history.transcript import entry_lines

_WIDE = 70


def history_table(painter: Painter, snapshot: AgentHistorySnapshot, last: int | None = None) -> str:
    """The last entries (all with None), those that were rolled back marked."""
    effective = {entry.sequence_number for entry in snapshot.effective}
    places = {number: each for each in rounds_of(snapshot) for number in each.entries}
    entries = list(snapshot.entries)[-last:] if last else list(snapshot.entries)
    rows = [_row(entry, places.get(entry.sequence_number), entry.sequence_number in effective) for entry in entries]
    if painter.columns < _WIDE:  # what a narrow terminal has room for
        return painter.table(("V", "KIND", "SAID"), [(row[0], row[1], row[5]) for row in rows])
    return painter.table(("VERSION", "KIND", "ROUND", "TIME", "TOKENS", "SAID"), rows)


def rounds_table(painter: Painter, snapshot: AgentHistorySnapshot) -> str:
    """The rounds, with who answered, what it called, how long it took and what it cost."""
    rows = [
        (
            f"{each.turn}.{each.number}",
            each.model or "-",
            f"{each.seconds:.1f} s",
            _spent(each.usage),
            ", ".join(each.calls) + (f" ({each.failed_calls} failed)" if each.failed_calls else ""),
        )
        for each in rounds_of(snapshot)
        if each.number
    ]
    return painter.table(("ROUND", "MODEL", "TIME", "TOKENS", "CALLS"), rows) if rows else "no rounds yet"


def usage_line(usage: TokenUsage) -> str:
    """What was spent, in words."""
    told = [f"{usage.prompt_tokens:,} in", f"{usage.completion_tokens:,} out"]
    told += [f"{usage.cached_tokens:,} of those in from a cache"] if usage.cached_tokens else []
    told += [f"{usage.reasoning_tokens:,} of those out for reasoning"] if usage.reasoning_tokens else []
    return ", ".join(told)


def _row(entry: HistoryEntry, place: Round | None, is_effective: bool) -> tuple[str, ...]:
    usage = entry.metadata.usage if entry.metadata else None
    mark = "" if is_effective or isinstance(entry, RollbackEntry) else "(rolled back) "
    return (
        str(entry.sequence_number),
        TITLES.get(entry.kind, entry.kind),
        f"{place.turn}.{place.number}" if place else "",
        f"{entry.timestamp.astimezone():%H:%M:%S}" if entry.timestamp else "",
        _spent(usage) if usage else "",
        mark + " ".join(_words(list(entry_lines(entry)))),
    )


def _words(lines: Sequence[str]) -> Sequence[str]:
    return [line[:400] for line in lines[:4]]


def _spent(usage: TokenUsage) -> str:
    return f"{usage.prompt_tokens:,}+{usage.completion_tokens:,}"
