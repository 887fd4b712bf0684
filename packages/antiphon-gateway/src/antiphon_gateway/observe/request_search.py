"""Search in the recent requests: by key, model, status, outcome, day, and text of the error or the request id.

`search_ledger` looks in the usage ledger for what is older than the requests in memory, or was on another host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.search import AttemptFilter, AttemptPage, search_attempts
from antiphon_gateway.observe.recent import RequestRecord, exact_percentile

_OUTCOMES = {"": "", "answered": "ok", "cancelled": "disconnected", "failed": "failed"}
_MOST_DIGITS = 18
_LONGEST = 200


class RequestFilter(Struct, frozen=True, kw_only=True):
    """What a reader looks for; empty fields match everything. Texts are compared without case, anywhere in the field."""

    text: str = ""
    key: str = ""
    model: str = ""
    status: str = ""
    """The status or its beginning: `502` or `5`."""
    outcome: str = ""
    day: str = ""
    """The day on which it ended, UTC: `2026-11-30`."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> RequestFilter:
        """The filter in a query."""
        names = {"text": "q"}
        given = {name: query.get(names.get(name, name), "").strip()[:_LONGEST] for name in cls.__struct_fields__}
        return cls(**given)

    @property
    def is_empty(self) -> bool:
        """Whether it matches everything."""
        return not any(getattr(self, name) for name in self.__struct_fields__)

    def matches(self, record: RequestRecord) -> bool:
        """Whether a request is one that the reader looks for."""
        return (
            _contains(record.key, self.key)
            and (_contains(record.model, self.model) or _contains(record.target, self.model))
            and str(record.status).startswith(self.status)
            and self.outcome in ("", record.outcome)
            and self.day in ("", record.time.date().isoformat())
            and (not self.text or any(_contains(text, self.text) for text in _texts(record)))
        )


class TargetStats(Struct, frozen=True, kw_only=True):
    """The recent requests of one target in numbers. Times and tokens are of those that it answered."""

    target: str
    requests: int
    """How many asked it."""
    failed: int
    """How many of them it failed, whether another target answered or not."""
    p50_seconds: float | None
    p95_seconds: float | None
    ttft_p50_seconds: float | None
    ttft_p95_seconds: float | None
    prompt_tokens: int
    cached_tokens: int


def target_stats(records: Sequence[RequestRecord]) -> list[TargetStats]:
    """The numbers of each target, the most used first."""
    by_target: dict[str, list[RequestRecord]] = {}
    for record in records:
        for target in dict.fromkeys(filter(None, (*(attempt.target for attempt in record.attempts), record.target))):
            by_target.setdefault(target, []).append(record)
    return sorted((_stats(target, held) for target, held in by_target.items()), key=lambda one: -one.requests)


def _has_failed(target: str, record: RequestRecord) -> bool:
    """Whether a target failed a request: by its last attempt, or by the end of the request if it was the last target."""
    attempts = [attempt for attempt in record.attempts if attempt.target == target]
    return bool(attempts and attempts[-1].is_failed) or (target == record.target and record.outcome == "failed")


def _stats(target: str, asked: list[RequestRecord]) -> TargetStats:
    records = [record for record in asked if record.target == target]
    answered = [record.seconds for record in records if record.outcome == "answered"]
    first = [record.first_token_seconds for record in records if record.first_token_seconds is not None]
    return TargetStats(
        target=target,
        requests=len(asked),
        failed=sum(_has_failed(target, record) for record in asked),
        p50_seconds=exact_percentile(answered, 0.5),
        p95_seconds=exact_percentile(answered, 0.95),
        ttft_p50_seconds=exact_percentile(first, 0.5),
        ttft_p95_seconds=exact_percentile(first, 0.95),
        prompt_tokens=sum(record.prompt_tokens for record in records),
        cached_tokens=sum(record.cached_tokens for record in records),
    )


def _texts(record: RequestRecord) -> tuple[str, ...]:
    attempts = [attempt.error for attempt in record.attempts]
    return (record.id, record.error, *attempts, *record.fallbacks, *record.repairs, *record.losses)


def _contains(text: str, part: str) -> bool:
    return not part or part.casefold() in text.casefold()


class LedgerSearch(Struct, frozen=True, kw_only=True):
    """What was found. `problem` is why nothing could be searched."""

    page: AttemptPage = AttemptPage()
    problem: str = ""


async def search_ledger(
    database: OperatorDatabase, search: RequestFilter, query: Mapping[str, str]
) -> LedgerSearch | None:
    """What a reader looks for, in the ledger; None without a search. `before` in the query is the cursor."""
    if search.is_empty and "before" not in query:
        return None
    cursor = query.get("before", "")
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MOST_DIGITS):
        return LedgerSearch(problem=f"before is a cursor from the page before, not {cursor[:40]!r}")
    try:
        day = date.fromisoformat(search.day) if search.day else None
    except ValueError:
        return LedgerSearch(problem=f"day is a date as 2026-11-30, not {search.day[:40]!r}")
    if search.outcome not in _OUTCOMES:
        return LedgerSearch()  # a request that was refused here was not sent to a provider
    wanted = AttemptFilter(
        request_id=search.text,
        key=search.key,
        model=search.model,
        status=search.status,
        outcome=_OUTCOMES[search.outcome],
        day=day,
    )
    if not database.exists:
        return LedgerSearch()
    before = int(cursor) if cursor else None
    try:
        return LedgerSearch(page=await database.run(lambda opened: search_attempts(opened, wanted, before=before)))
    except AntiphonError as error:
        return LedgerSearch(problem=str(error))
