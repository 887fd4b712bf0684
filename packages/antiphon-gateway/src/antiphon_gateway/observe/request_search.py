"""Search in the recent requests: by key, model, status, outcome, day, and text of the error or the request id.

`search_ledger` looks in the usage ledger for what is older than the requests in memory, or was on another host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.search import AttemptPage, RequestFilter, search_attempts
from antiphon_gateway.observe.recent import RequestRecord, exact_percentile

_MOST_DIGITS = 18


def matches(search: RequestFilter, record: RequestRecord) -> bool:
    """Whether a request is one that the reader looks for."""
    return (
        _contains(record.key, search.key)
        and (_contains(record.model, search.model) or _contains(record.target, search.model))
        and str(record.status).startswith(search.status)
        and search.outcome in ("", record.outcome)
        and search.day in ("", record.time.date().isoformat())
        and (not search.text or any(_contains(text, search.text) for text in _texts(record)))
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
    before = int(cursor) if cursor else None
    try:
        search.read_day()  # a wrong one is said, whatever there is to search
        if not database.exists:
            return LedgerSearch()
        return LedgerSearch(page=await database.run(lambda opened: search_attempts(opened, search, before=before)))
    except AntiphonError as error:
        return LedgerSearch(problem=str(error))
