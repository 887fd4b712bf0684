"""Search in the rows of the ledger, newest first, page by page.

A page looks at a bounded number of rows before a cursor, whatever the ledger holds: the time is bounded too, and no further index
slows the writer. If fewer rows match, the cursor continues with the rows before those. Rows are in the order in which they were
written, which is the order of their times but for the seconds that a writer may be late.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.history.sql.database import Database
from antiphon_gateway.utc_time import DAY_MICROSECONDS, day_of, time_at

PAGE_ROWS = 50
SCANNED_ROWS = 200_000
_OUTCOMES = {"answered": "ok", "cancelled": "disconnected"}
"""How the ledger names these outcomes; one that failed has the kind of its error."""
_LONGEST = 200
_LATE_ROWS = 10_000
"""How many rows may be between a row and another one with a time of the same day."""


class RequestFilter(Struct, frozen=True, kw_only=True):
    """What a reader looks for, in the recent requests and in the ledger; empty fields match everything.

    Texts are compared without case, anywhere in the field; `text` is the beginning of the id of a request in the ledger.
    """

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

    def read_day(self) -> date | None:
        """That day. Raises `AntiphonError`."""
        try:
            return date.fromisoformat(self.day) if self.day else None
        except ValueError:
            raise AntiphonError(f"day is a date as 2026-11-30, not {self.day[:40]!r}") from None


class FoundAttempt(Struct, frozen=True):
    """One request to a provider. `time` is when it ended."""

    time: datetime
    request_id: str
    attempt: int
    key: str
    client_format: str
    operation: str
    provider: str
    credential: str
    model: str
    """What the client asked for."""
    target_model: str
    status: int
    outcome: str
    metering: str
    seconds: float
    first_token_seconds: float | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int


_NAMED_OTHERWISE = {"time": "at", "key": "key_name", "model": "model_asked", "target_model": "model_served"}
_COLUMNS = [_NAMED_OTHERWISE.get(name, name) for name in FoundAttempt.__struct_fields__]


class AttemptPage(Struct, frozen=True, kw_only=True):
    """The rows of a page. `next` is the cursor of the next one; None: there are no older rows."""

    rows: tuple[FoundAttempt, ...] = ()
    next: int | None = None
    searched_to: datetime | None = None
    """The time of the oldest row that was looked at, if there are older ones."""


def search_attempts(
    database: Database,
    wanted: RequestFilter,
    *,
    before: int | None = None,
    limit: int = PAGE_ROWS,
    scanned: int = SCANNED_ROWS,
) -> AttemptPage:
    """The newest rows that match, before the cursor `before`."""
    ((lowest,),) = database.rows("SELECT min(id) FROM usage")
    ((highest,),) = database.rows("SELECT max(id) FROM usage")
    conditions, values = _conditions(database, wanted)
    if lowest is None or conditions is None:
        return AttemptPage()
    if (day := wanted.read_day()) is not None:
        lowest, highest = _rows_of_day(database, day, lowest, highest)
    end = highest + 1 if before is None else min(before, highest + 1)
    start = max(lowest, end - scanned)
    found = database.rows(
        f"SELECT id FROM usage WHERE {' AND '.join(['id >= :start', 'id < :before', *conditions])} "
        "ORDER BY id DESC LIMIT :most",
        start=start,
        before=end,
        most=limit,
        **values,
    )
    ids = [number for (number,) in found]
    is_full = len(ids) == limit
    cursor = ids[-1] if is_full else start
    rest = cursor if cursor > lowest else None
    searched_to = None
    if rest is not None and not is_full:
        times = database.rows("SELECT at FROM usage WHERE id >= :start ORDER BY id LIMIT 1", start=start)
        searched_to = time_at(times[0][0]) if times else None
    return AttemptPage(rows=tuple(_attempts(database, ids)), next=rest, searched_to=searched_to)


def _attempts(database: Database, ids: list[int]) -> list[FoundAttempt]:
    if not ids:
        return []
    statement = f"SELECT {', '.join(_COLUMNS)} FROM attempts WHERE {database.one_of('id', 'ids')} ORDER BY id DESC"
    return [FoundAttempt(time_at(at), *rest) for at, *rest in database.rows(statement, ids=ids)]


def _conditions(database: Database, wanted: RequestFilter) -> tuple[list[str] | None, dict[str, Any]]:
    """The conditions on a row, and their values; None if no row can match."""
    conditions: list[str] = []
    values: dict[str, Any] = {}
    if wanted.key or wanted.model or wanted.outcome:
        names: dict[int, str] = dict(database.rows("SELECT id, name FROM names"))
        if wanted.key:
            values["keys"] = _matching(names, wanted.key)
            conditions.append(database.one_of("key_id", "keys"))
        if wanted.model:
            targets: dict[int, str] = dict(database.rows("SELECT id, provider || '/' || model FROM buckets"))
            values["models"], values["buckets"] = _matching(names, wanted.model), _matching(targets, wanted.model)
            conditions.append(
                f"({database.one_of('model_asked_id', 'models')} OR {database.one_of('bucket_id', 'buckets')})"
            )
        if wanted.outcome:
            is_failed = wanted.outcome == "failed"
            known = tuple(_OUTCOMES.values()) if is_failed else (_OUTCOMES.get(wanted.outcome),)
            values["outcomes"] = [number for number, name in names.items() if name in known]
            condition = database.one_of("outcome_id", "outcomes")
            conditions.append(f"NOT {condition}" if is_failed else condition)
    if wanted.status:
        if not (wanted.status.isascii() and wanted.status.isdigit() and len(wanted.status) <= 3):
            return None, {}
        unit = 10 ** (3 - len(wanted.status))
        values["low_status"] = int(wanted.status) * unit
        values["high_status"] = values["low_status"] + unit - 1
        conditions.append("status BETWEEN :low_status AND :high_status")
    if wanted.text:
        values["request"], values["request_end"] = wanted.text, wanted.text + "\U0010ffff"
        conditions.append("request_id >= :request AND request_id < :request_end")
    if (day := wanted.read_day()) is not None:
        values["first_at"] = day_of(day) * DAY_MICROSECONDS
        values["end_at"] = values["first_at"] + DAY_MICROSECONDS
        conditions.append("at >= :first_at AND at < :end_at")
    return conditions, values


def _rows_of_day(database: Database, day: date, lowest: int, highest: int) -> tuple[int, int]:
    """Between which rows those of a day are."""
    first = day_of(day) * DAY_MICROSECONDS
    oldest = database.rows("SELECT id FROM usage WHERE at >= :at ORDER BY at LIMIT 1", at=first)
    newest = database.rows("SELECT id FROM usage WHERE at < :at ORDER BY at DESC LIMIT 1", at=first + DAY_MICROSECONDS)
    if not oldest or not newest:
        return highest + 1, highest
    return max(lowest, oldest[0][0] - _LATE_ROWS), min(highest, newest[0][0] + _LATE_ROWS)


def _matching(names: dict[int, str], part: str) -> list[int]:
    folded = part.casefold()
    return [number for number, name in names.items() if folded in name.casefold()]
