"""`ContextGauge`: how many tokens the next request has, before it is sent.

The API's figure comes first: what it reported for the last request and its answer, plus what came since. After a compaction that
figure is outdated; then everything is counted here. Our count is not the provider's, so it is multiplied by the ratio of the two
for the last request that was reported (`ratio`, 1 to 3). Where a provider refuses a request as too long, requests of that size
are not sent again (`ceiling`): the window is smaller than it seemed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from antiphon.context.tokens import TokenLedger
from antiphon.context.view import ContextView
from antiphon.history import AgentHistorySnapshot, ContextEntry, HistoryEntry, ModelOutputEntry
from antiphon.parts import TokenUsage

MARGIN = 0.95
"""A compaction leaves a request smaller than the limit by this factor: the ratio is that of another request."""
_MAX_RATIO = 3.0
_REFUSED = 0.9


class ContextGauge:
    """Measures the requests of one conversation."""

    def __init__(self, ledger: TokenLedger) -> None:
        self.ledger = ledger
        self._ratio = (0, 1.0)  # the output whose request was reported, and the ratio
        self._sum: tuple[Sequence[ContextEntry], int, int] = ((), 0, 0)
        self._ceilings: dict[str, int] = {}

    def tokens(
        self,
        snapshot: AgentHistorySnapshot,
        shown: Sequence[ContextEntry] | None = None,
        fixed: Callable[[], int] = lambda: 0,
        readers: frozenset[str] | None = None,
    ) -> int:
        """The tokens of a request with what is `shown` of a history and, besides it, `fixed` tokens of instruction and tools.

        If it goes to other models than the last one (`readers`, as `provider/model`), what that reported does not count.
        """
        if shown is None:
            shown = _shown(snapshot.effective)
        reported = _last_reported(snapshot)
        if reported is None:
            return self.count(shown) + fixed()
        output, usage = reported
        is_measure = readers is None or output.origin is None or output.origin.name in readers
        if is_measure and output.sequence_number > snapshot.last_change:
            later = self._count_since(shown, output) - self.ledger.tokens_of(output)
            return usage.total + (math.ceil(later * self.ratio(snapshot, shown, fixed) / MARGIN) if later else 0)
        return math.ceil((self.count(shown) + fixed()) * self.ratio(snapshot, shown, fixed))

    def room(
        self, limit: int, snapshot: AgentHistorySnapshot, shown: Sequence[ContextEntry], fixed: Callable[[], int]
    ) -> int:
        """How many tokens, by our own count, the entries of a request may have so that it is within `limit`."""
        ratio = self.ratio(snapshot, shown, fixed)
        room = int(limit * MARGIN / ratio) - fixed()
        if ratio < _MAX_RATIO or (size := self.tokens(snapshot, shown, fixed)) <= limit:
            return room
        return min(
            room, int(self.count(shown) * limit * MARGIN / size)
        )  # the provider counts even more than the ratio says

    def ratio(self, snapshot: AgentHistorySnapshot, shown: Sequence[ContextEntry], fixed: Callable[[], int]) -> float:
        """The prompt of the last reported call as its provider counted it, by our own count of the same prompt."""
        reported = _last_reported(snapshot)
        if reported is None:
            return 1.0
        output, usage = reported
        if output.sequence_number != self._ratio[0]:
            if output.sequence_number > snapshot.last_change:
                counted = self.count(shown) - self._count_since(shown, output)
            else:  # it was answered before the last compaction, and by another process
                before = _shown(one for one in snapshot.effective if one.sequence_number < output.sequence_number)
                counted = sum(map(self.ledger.tokens_of, before))
            ratio = usage.prompt_tokens / max(1, counted + fixed())
            self._ratio = (output.sequence_number, min(_MAX_RATIO, max(1.0, ratio)))
        return self._ratio[1]

    def count(self, shown: Sequence[ContextEntry]) -> int:
        """Our own count of entries; of a list that has grown, only what is new is added."""
        known, length, total = self._sum
        if known is not shown or length > len(shown):
            length = total = 0
        for index in range(length, len(shown)):
            total += self.ledger.tokens_of(shown[index])
        self._sum = (shown, len(shown), total)
        return total

    def _count_since(self, shown: Sequence[ContextEntry], output: HistoryEntry) -> int:
        """Our own count of an output and what came after it."""
        total, number = 0, output.sequence_number
        for entry in reversed(shown):
            if getattr(entry, "sequence_number", number) < number:
                break
            total += self.ledger.tokens_of(entry)
        return total

    # What a provider refused.

    def lower_ceiling(self, model: str, tokens: int) -> None:
        """A provider refused a request of `tokens` as too long."""
        self._ceilings[model] = max(1, int(min(tokens, self._ceilings.get(model, tokens)) * _REFUSED))

    def limit(self, model: str, limit: int | None) -> int | None:
        """The limit that applies: the one that was set, or the size that the provider of `model` refused."""
        ceiling = self._ceilings.get(model)
        return ceiling if limit is None else limit if ceiling is None else min(limit, ceiling)


def _shown(entries: Iterable[HistoryEntry]) -> list[ContextEntry]:
    view = ContextView()
    view.add(entries)
    return view.shown


def _last_reported(snapshot: AgentHistorySnapshot) -> tuple[ModelOutputEntry, TokenUsage] | None:
    """The last output whose provider reported the tokens of its prompt."""
    for entry in reversed(snapshot.effective):
        if type(entry) is ModelOutputEntry and entry.content and entry.metadata is not None:
            usage = entry.metadata.usage
            if usage is not None and usage.prompt_tokens:
                return entry, usage
    return None
