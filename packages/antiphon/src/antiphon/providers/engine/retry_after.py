"""How long a provider asks to wait, in any of the forms that providers use.

In order of trust: `retry-after-ms`; `retry-after` as seconds, a fraction or a date; a delay in the error body (Google's
`RetryInfo`, and fields of others); text such as "try again in 20s"; last, the reset times of rate limits, which are when a limit
is full again and not when the next call succeeds. A wait of 0 is ignored.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from antiphon.wire.output import ProviderError

LONGEST = 7 * 86_400.0
"""A longer wait is a misread date."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_STEP = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|s|m|h|d))+")
_WORDS = re.compile(
    rf"(?:try again|retry|wait)(?: again)?(?: in| after)?(?: about| at least)? "
    rf"((?:{_NUMBER}(?:ms|s|m|h|d))+\b|{_NUMBER} ?(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours?))",
    re.IGNORECASE,
)
_LONG_UNITS = (("milli", "ms"), ("sec", "s"), ("min", "m"), ("hour", "h"))
_FIELDS = ("retryDelay", "retry_after", "retry_after_seconds", "retryAfter")
_is_reset = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:.+-)?reset(?:-.+)?").fullmatch
_MAX_DEPTH = 6


def retry_after(headers: Mapping[str, str], error: ProviderError, now: float | None = None) -> float | None:
    """The seconds to wait, or None. Header names are in lower case; `now` is in seconds since 1970."""
    if now is None:
        now = (_date(headers["date"]) if "date" in headers else None) or time.time()
    for wait in _waits(headers, error, now):
        if wait is not None and wait > 0:
            return min(wait, LONGEST)
    return None


def _waits(headers: Mapping[str, str], error: ProviderError, now: float) -> Iterator[float | None]:
    """What is stated, in the order in which it counts."""
    if "retry-after-ms" in headers:
        yield _scaled(headers["retry-after-ms"], 0.001)
    if "retry-after" in headers:
        yield _wait(headers["retry-after"], now)
    if error.native:
        yield from _delays_in_body(error.native, now)
    yield _delay_in_message(error.message)
    if error.kind == "rate_limit":
        yield _reset_delay(headers, now)


def _scaled(text: str | None, unit: float) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number * unit if isfinite(number) else None


def _duration(text: str) -> float | None:
    """`1h2m3.5s`, `120ms`, `20s`."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(step[1]) * _UNITS[step[2]] for step in _STEP.finditer(text))


def _date(text: str) -> float | None:
    """A time in HTTP or ISO 8601 format."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _wait(text: str, now: float) -> float | None:
    """Seconds, a duration, or a time (a date, or seconds or milliseconds since 1970)."""
    text = text.strip()
    number = _scaled(text, 1.0)
    if number is not None:
        if number > 1e11:
            number /= 1000
        return number - now if number > 1e9 else number
    duration = _duration(text)
    if duration is not None:
        return duration
    moment = _date(text) if text else None
    return None if moment is None else moment - now


def _delays_in_body(value: Any, now: float, depth: int = 0) -> Iterator[float | None]:
    """The delays in an error body."""
    if isinstance(value, dict):
        for name in _FIELDS:
            delay = value.get(name)
            if isinstance(delay, str | int | float) and not isinstance(delay, bool):
                yield _wait(str(delay), now)
        if isinstance(value.get("retry_after_ms"), int | float):
            yield _scaled(str(value["retry_after_ms"]), 0.001)
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list) and depth < _MAX_DEPTH:
            yield from _delays_in_body(inner, now, depth + 1)


def _delay_in_message(message: str) -> float | None:
    match = _WORDS.search(message)
    if match is None:
        return None
    text = match[1].lower()
    duration = _duration(text)
    if duration is not None:
        return duration
    unit = next(short for long, short in _LONG_UNITS if long in text)
    return _scaled(re.match(_NUMBER, text)[0], _UNITS[unit])  # type: ignore[index]


def _reset_delay(headers: Mapping[str, str], now: float) -> float | None:
    """When the exhausted limits reset; if none is marked as exhausted, the soonest reset of any."""
    waits: list[tuple[bool, float]] = []
    for header, value in headers.items():
        wait = _wait(value, now) if _is_reset(header) else None
        if wait is not None and wait > 0:
            waits.append((headers.get(header.replace("reset", "remaining", 1), "") == "0", wait))
    spent = [wait for is_spent, wait in waits if is_spent]
    return max(spent) if spent else min((wait for _, wait in waits), default=None)
