"""`SharedBudgets`: what clients used per day and month, counted in the store by all workers and hosts.

A counter is a hash of tokens and billionths of a dollar per client and period, changed only by adding. One that does not exist,
because the client is new or the store was emptied, begins with what the ledger has; without a ledger it begins with what is
reported. Counters expire with their period.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.errors import SharedStoreUnavailable
from antiphon_gateway.access.budgets import (
    NOTHING,
    Amount,
    BudgetExchange,
    Totals,
    Unavailable,
    UsageReport,
    month_start,
)
from antiphon_gateway.cluster.redis_store import PREFIX, Command, SharedStore, StoreScript
from antiphon_gateway.utc_time import DAY_SECONDS, date_of

_MAX_BATCH = 256
_KEPT_SECONDS = 2 * DAY_SECONDS
_LONGEST_MONTH = 31

# Keys: day and month. Values: tokens, nanos, when both expire, then the values of a counter that does not exist, or none.
_SCRIPT = StoreScript("""
if redis.call('EXISTS', KEYS[2]) == 0 then
  if #ARGV == 4 then return {0} end
  redis.call('DEL', KEYS[1])
  for number, key in ipairs(KEYS) do
    redis.call('HSET', key, 'tokens', ARGV[3 + 2 * number], 'nanos', ARGV[4 + 2 * number])
  end
else
  for _, key in ipairs(KEYS) do
    redis.call('HINCRBY', key, 'tokens', ARGV[1])
    redis.call('HINCRBY', key, 'nanos', ARGV[2])
  end
end
local totals = {1}
for number, key in ipairs(KEYS) do
  redis.call('EXPIREAT', key, ARGV[2 + number])
  local kept = redis.call('HMGET', key, 'tokens', 'nanos')
  totals[2 * number] = kept[1]
  totals[2 * number + 1] = kept[2]
end
return totals
""")


class SharedBudgets:
    """Counts in `store`. `ledger` gives the first value of a counter: the totals of clients, reports included."""

    def __init__(self, store: SharedStore, ledger: BudgetExchange | None = None) -> None:
        self._store = store
        self._ledger = ledger

    async def __call__(self, reports: Sequence[UsageReport], today: int) -> list[Totals]:
        """Count the reports. Raises `Unavailable`."""
        totals: list[Totals] = []
        try:
            for start in range(0, len(reports), _MAX_BATCH):
                totals += await self._count(reports[start : start + _MAX_BATCH], today)
        except SharedStoreUnavailable as error:
            raise Unavailable(str(error)) from error
        return totals

    async def _count(self, reports: Sequence[UsageReport], today: int) -> list[Totals]:
        # What was charged before midnight goes to its own day; it is rare, and its totals are not needed.
        earlier = [
            (report.client, day, amount) for report in reports for day, amount in report.charged.items() if day != today
        ]
        if earlier:
            # A month without a counter begins below with the ledger, which has these charges too.
            firsts = [None if self._ledger is not None else Totals(amount, amount) for _, _, amount in earlier]
            commands = [_command(*charge, first) for charge, first in zip(earlier, firsts, strict=True)]
            await self._store.run_script(_SCRIPT, commands)
        charged = [report.charged.get(today, NOTHING) for report in reports]
        answers = await self._store.run_script(
            _SCRIPT, [_command(report.client, today, amount) for report, amount in zip(reports, charged, strict=True)]
        )
        missing = [number for number, answer in enumerate(answers) if not int(answer[0])]
        if missing:
            wanted = [reports[number] for number in missing]
            if self._ledger is not None:
                first = list(await self._ledger(wanted, today))
            else:
                first = [Totals(charged[number], charged[number]) for number in missing]
            commands = [
                _command(reports[number].client, today, charged[number], totals)
                for number, totals in zip(missing, first, strict=True)
            ]
            for number, answer in zip(missing, await self._store.run_script(_SCRIPT, commands), strict=True):
                answers[number] = answer
        return [_totals(answer) for answer in answers]


def _command(client: str, day: int, amount: Amount, first: Totals | None = None) -> Command:
    month = month_start(day)
    keys = (f"{PREFIX}spent:{client}:{date_of(day)}", f"{PREFIX}spent:{client}:{date_of(month):%Y-%m}")
    ends = ((day + 1) * DAY_SECONDS + _KEPT_SECONDS, (month + _LONGEST_MONTH) * DAY_SECONDS + _KEPT_SECONDS)
    given = (
        () if first is None else (first.day.tokens, first.day.nanodollars, first.month.tokens, first.month.nanodollars)
    )
    return _SCRIPT.call(keys, amount.tokens, amount.nanodollars, *ends, *given)


def _totals(answer: Sequence[Any]) -> Totals:
    day_tokens, day_nanos, month_tokens, month_nanos = (int(value or 0) for value in answer[1:])
    return Totals(Amount(day_tokens, day_nanos), Amount(month_tokens, month_nanos))
