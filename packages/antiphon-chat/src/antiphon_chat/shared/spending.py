"""What a conversation used and cost: tokens, cache hits and money, by call and in all. Both surfaces show these.

Money is derived from a price table (the list prices, or those of a gateway) at the time of each call; a call whose model has no
known price is counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal

from msgspec import Struct

from antiphon.context.model_usage import model_calls_of
from antiphon.history import HistoryEntry, ModelOutputEntry, Origin
from antiphon.parts import TokenUsage
from antiphon.prices import cost_of, spend_of
from antiphon.prices.table import PriceTable

_SMALLEST = Decimal("0.0001")


class Spending(Struct, frozen=True):
    """The tokens of model calls and what they cost in US dollars. `unpriced_calls` are not in the cost."""

    usage: TokenUsage
    cost: Decimal
    by_model: dict[str, Decimal]
    unpriced_calls: int = 0
    calls: int = 0

    @property
    def is_priced(self) -> bool:
        """Whether the price of any call is known."""
        return self.unpriced_calls < self.calls


def spending_of(entries: Iterable[HistoryEntry], prices: PriceTable | None = None) -> Spending:
    """What the model calls of a conversation used and cost; also those rolled back, of agents as tools, and of summaries."""
    recorded = [
        (entry, usages)
        for entry in entries
        if (usages := [call.usage for call in model_calls_of(entry) if call.usage is not None and call.usage.total])
    ]
    spend = spend_of((entry for entry, _ in recorded), prices)
    usage = sum((used for _, usages in recorded for used in usages), TokenUsage())
    return Spending(
        usage, spend.total, spend.by_model, spend.unpriced_calls, sum(len(usages) for _, usages in recorded)
    )


def usage_of(entry: ModelOutputEntry) -> TokenUsage:
    """The tokens of a call, as far as the provider reported them."""
    return (entry.metadata.usage if entry.metadata else None) or TokenUsage()


def cost_of_entry(entry: ModelOutputEntry, prices: PriceTable | None = None) -> Decimal | None:
    """What a call cost; None if that is not known."""
    usage, origin = usage_of(entry), entry.origin or Origin()
    if not usage.total:
        return None
    cost = cost_of(usage, origin.model, origin.provider, at=entry.timestamp, table=prices)
    return cost.total if cost is not None else None


def format_money(amount: Decimal) -> str:
    """Dollars as the page writes them: two decimals, up to three below a dollar and four below a cent if they say more."""
    if 0 < amount < _SMALLEST:
        return f"< ${_SMALLEST}"
    digits = 2 if amount >= 1 or not amount else 3 if amount >= Decimal("0.01") else 4
    whole, _, cents = f"{amount.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}".partition(".")
    return f"${whole}.{cents.rstrip('0'):0<2}"
