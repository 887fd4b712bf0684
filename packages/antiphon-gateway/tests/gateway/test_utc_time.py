"""Times of the operator database and of answers: the same moment as a number, a date and a text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

from antiphon_gateway.utc_time import date_of, day_of, microseconds_of, now_microseconds, time_at, utc_text


def test_stored_times_are_exact() -> None:
    assert time_at(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert time_at(1_700_000_000_123_457) == datetime(2023, 11, 14, 22, 13, 20, 123_457, tzinfo=UTC)
    assert microseconds_of(time_at(1_700_000_000_123_457)) == 1_700_000_000_123_457
    assert microseconds_of(datetime(1970, 1, 2)) == 86_400_000_000, "without a zone it is UTC"
    before = datetime.now(UTC)
    assert before - timedelta(seconds=1) < time_at(now_microseconds()) < datetime.now(UTC) + timedelta(seconds=1)


def test_days_and_dates() -> None:
    for day, when in ((0, date(1970, 1, 1)), (20_773, date(2026, 11, 16)), (-1, date(1969, 12, 31))):
        assert (date_of(day), day_of(when)) == (when, day)


def test_text_is_in_utc_and_without_fractions() -> None:
    when = datetime(2026, 12, 1, 1, 30, 0, 999_999, tzinfo=timezone(timedelta(hours=8)))
    assert utc_text(when) == "2026-11-30T17:30:00Z"
