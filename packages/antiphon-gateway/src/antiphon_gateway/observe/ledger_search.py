"""The search of the status page in the usage ledger: what is older than the requests in memory, or was on another host."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.search import AttemptFilter, AttemptPage, search_attempts
from antiphon_gateway.observe.request_search import RequestFilter

_OUTCOMES = {"": "", "answered": "ok", "cancelled": "disconnected", "failed": "failed"}
_MOST_DIGITS = 18


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
