"""Times in UTC: as the operator database has them (microseconds and days since 1970), and as text in answers."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta

DAY_SECONDS = 86_400
DAY_MICROSECONDS = DAY_SECONDS * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_microseconds() -> int:
    """The present time, in microseconds since 1970."""
    return time.time_ns() // 1_000


def time_at(microseconds: int) -> datetime:
    """A time that is stored in microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def as_utc(when: datetime) -> datetime:
    """A time as a person wrote it: without a zone it is UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


def microseconds_of(when: datetime) -> int:
    """A time in microseconds since 1970; without a zone it is UTC."""
    return (as_utc(when) - _EPOCH) // timedelta(microseconds=1)


def date_of(day: int) -> date:
    """A day since 1970 as a date."""
    return _EPOCH.date() + timedelta(days=day)


def start_of(day: int) -> datetime:
    """When a day since 1970 begins."""
    return _EPOCH + timedelta(days=day)


def day_of(when: date) -> int:
    """A date as a day since 1970."""
    return (when - _EPOCH.date()).days


def utc_text(when: datetime) -> str:
    """A time to the second: `2026-11-30T12:00:00Z`."""
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
