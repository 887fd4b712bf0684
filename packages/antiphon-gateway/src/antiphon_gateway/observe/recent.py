"""`RecentRequests`: the last 500 requests, and the last hour minute by minute.

Texts in a `RequestRecord` are truncated, because clients and providers write them. A `Minute` counts requests,
refused ones (the client's fault) and failed ones (ours or a provider's). Its latencies are a histogram whose buckets grow by a
tenth: percentiles are right to 5 % in a few hundred bytes, and histograms of several workers add up.

With `WorkerFiles` each worker publishes its own, and `activity` merges those of all workers. Both handle hundreds of records,
so they run in a thread; the event loop only hands over what is new.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec import Struct, field

from antiphon.errors import StoreBusy
from antiphon.providers.call import Attempt
from antiphon_gateway.observe.record import CLIENT_ERRORS, CacheRecord, Outcome, Record
from antiphon_gateway.share.workers import WorkerFiles
from antiphon_gateway.threads import RECORDS

MAX_RECORDS = 500
MAX_REFUSED = 50
"""How many refused requests of clients that are not known, or over their limits, are in the list."""
MINUTES = 60

_CLIENT_OUTCOMES = ("refused", "cancelled")
_MAX_LINES = 20
_MAX_LINE_CHARS = 300
_SHORTEST, _RATIO = 0.001, 1.1
_BUCKETS = tuple(_SHORTEST * _RATIO**number for number in range(200))
"""The longest time of each step; the last one is two days."""


class AttemptRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a provider on behalf of a request. `credential` is its name or masked form."""

    provider: str
    model: str = ""
    credential: str = ""
    status: int | None = None
    seconds: float = 0.0
    error: str = ""

    @property
    def target(self) -> str:
        """The target that was asked, as `provider/model`."""
        return target_name(self.provider, self.model)

    @property
    def is_failed(self) -> bool:
        """Whether it failed, and not by the client's fault."""
        return bool(self.error) and self.error.partition(":")[0] not in CLIENT_ERRORS

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRecord:
        """The parts of an attempt that may be shown: not the provider's own object, which may repeat the request."""
        error = attempt.error
        return cls(
            provider=attempt.provider,
            model=attempt.model,
            credential=attempt.credential,
            status=attempt.status,
            seconds=attempt.seconds,
            error=_truncate(str(error)) if error is not None else "",
        )


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One request as it is shown: client, model, target, cost, and what was repaired or lost."""

    id: str
    time: datetime = field(default_factory=partial(datetime.now, UTC))
    """When it ended."""
    client_format: str = ""
    upstream_format: str = ""
    model: str = ""
    """The requested model."""
    target: str = ""
    """The target, `provider/model`."""
    key: str = ""
    status: int = 200
    streamed: bool = False
    seconds: float = 0.0
    first_token_seconds: float | None = None
    overhead_seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    operation: str = "chat"
    repairs: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    fallbacks: tuple[str, ...] = ()
    """The steps from one target to the next, each with its cause."""
    began_early: bool = False
    """Whether the head of the stream was sent before a provider answered."""
    error: str = ""
    cache: CacheRecord | None = None
    """What the cache doctor found, if it is on."""
    outcome: Outcome = "answered"

    @classmethod
    def of(cls, record: Record) -> RequestRecord:
        """The record of a finished request."""
        usage = record.usage
        error = record.error
        return cls(
            id=record.request_id,
            time=datetime.fromtimestamp(record.ended_at, UTC),
            client_format=record.client_format,
            upstream_format=record.upstream_format,
            model=_truncate(record.requested_model),
            target=target_name(record.provider, record.model),
            key=record.key,
            status=record.status,
            streamed=record.streams,
            seconds=record.seconds,
            first_token_seconds=record.first_token_seconds,
            overhead_seconds=record.overhead_seconds,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            cached_tokens=usage.cached_tokens if usage else 0,
            reasoning_tokens=usage.reasoning_tokens if usage else 0,
            cache_write_tokens=usage.cache_write_tokens if usage else 0,
            operation=record.operation,
            repairs=_bounded_lines(record.repairs) if record.repairs else (),
            losses=_bounded_lines(record.losses) if record.losses else (),
            attempts=tuple([AttemptRecord.of(attempt) for attempt in record.attempts[-_MAX_LINES:]]),
            fallbacks=_bounded_lines(record.fallbacks) if record.fallbacks else (),
            began_early=record.began_early,
            error=_truncate(str(error)) if error is not None else "",
            cache=None if record.cache is None else record.cache_record,
            outcome=record.outcome,
        )


class Minute(Struct):
    """One minute of requests, or several added up. `start` is its first second; the digests count requests by step of time."""

    start: int
    requests: int = 0
    refused: int = 0
    failed: int = 0
    seconds: dict[int, int] = field(default_factory=dict)
    first_token: dict[int, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def add(self, record: Record) -> None:
        """Count one request. Only answers are timed: refusals are fast, and would hide a slow provider."""
        self.requests += 1
        usage = record.usage
        if usage is not None:
            self.prompt_tokens += usage.prompt_tokens
            self.cached_tokens += usage.cached_tokens
        if record.status >= 400 or record.error is not None:
            outcome = record.outcome
            self.refused += outcome in _CLIENT_OUTCOMES
            self.failed += outcome == "failed"
        elif record.is_timed:
            bucket = bisect_left(_BUCKETS, record.seconds)
            self.seconds[bucket] = self.seconds.get(bucket, 0) + 1
        if record.first_token_seconds is not None:
            bucket = bisect_left(_BUCKETS, record.first_token_seconds)
            self.first_token[bucket] = self.first_token.get(bucket, 0) + 1

    def merge(self, other: Minute) -> None:
        """Add the counts of another worker."""
        self.requests += other.requests
        self.refused += other.refused
        self.failed += other.failed
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        for mine, theirs in ((self.seconds, other.seconds), (self.first_token, other.first_token)):
            for bucket, count in list(theirs.items()):
                mine[bucket] = mine.get(bucket, 0) + count


class Activity(Struct):
    """The records, newest first, and the minutes of the last hour, oldest first, without gaps."""

    records: list[RequestRecord]
    minutes: list[Minute]
    workers: int = 1


class _EncodedActivity(Struct):
    """An `Activity` whose records are encoded already."""

    records: list[msgspec.Raw]
    minutes: list[Minute]


class RecentRequests:
    """The last requests and the last hour."""

    def __init__(
        self,
        *,
        most: int = MAX_RECORDS,
        snapshots: WorkerFiles | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._last: deque[RequestRecord | Record] = deque(maxlen=most)
        self._refused: deque[RequestRecord | Record] = deque(maxlen=MAX_REFUSED)
        self._has_new_refusals = False
        self._minutes: dict[int, Minute] = {}
        self._most = most
        self._snapshots = snapshots
        self._clock = clock
        self._unshared: deque[RequestRecord | Record] = deque(maxlen=most)
        self._shared: deque[msgspec.Raw] = deque(maxlen=most)  # what the other workers can read, encoded

    def add(self, records: Sequence[Record]) -> None:
        """Add finished requests. Without texts of unknown length what is shown of one is made when it is asked for.

        Those that were not admitted do not displace others.
        """
        for record in records:
            has_texts = record.error is not None or record.repairs or record.losses or len(record.attempts) > 1
            kept = RequestRecord.of(record) if has_texts else record
            if not record.is_admitted:
                self._refused.append(kept)
                self._has_new_refusals = True
            else:
                self._last.append(kept)
                if self._snapshots is not None:
                    self._unshared.append(kept)
            (self._minutes.get(int(record.ended_at) // 60 * 60) or self._new_minute(record)).add(record)

    def _new_minute(self, record: Record) -> Minute:
        start = int(record.ended_at) // 60 * 60
        self._minutes = {known: old for known, old in self._minutes.items() if known > start - MINUTES * 60}
        minute = self._minutes[start] = Minute(start)
        return minute

    async def read(self) -> Activity:
        """The activity of all workers, merged in a thread: there may be thousands of records."""
        return await RECORDS.run(self.activity)

    def activity(self) -> Activity:
        """The same in this thread, which need not be that of the event loop: what that changes is copied in one step."""
        own = [_record(each) for each in [*self._last, *self._refused]]
        others = self._snapshots.read_others("recent", Activity) if self._snapshots is not None else ()
        activities = [Activity(own, list(self._minutes.values())), *(other for other, _ in others)]
        records = sorted((record for one in activities for record in one.records), key=lambda record: record.time)
        now = self._minute()
        hour = {start: Minute(start) for start in range(now - (MINUTES - 1) * 60, now + 60, 60)}
        for one in activities:
            for minute in one.minutes:
                if minute.start in hour:
                    hour[minute.start].merge(minute)
        return Activity(records[: -self._most - len(self._refused) - 1 : -1], list(hour.values()), len(activities))

    async def share(self) -> None:
        """Publish this worker's activity to the other workers, if it changed. Called every second by `repeat_forever`."""
        if self._snapshots is None or not (self._unshared or self._has_new_refusals):
            return
        self._has_new_refusals = False
        fresh, self._unshared = self._unshared, deque(maxlen=self._most)
        try:
            await RECORDS.run(self._publish, self._snapshots, fresh)
        except StoreBusy:
            self._unshared.extendleft(reversed(fresh))

    def _publish(self, snapshots: WorkerFiles, fresh: Iterable[RequestRecord | Record]) -> None:
        """Write the records, in a thread. Only the new ones are encoded."""
        self._shared.extend([msgspec.Raw(msgspec.json.encode(_record(each))) for each in fresh])
        refused = [msgspec.Raw(msgspec.json.encode(_record(each))) for each in list(self._refused)]
        activity = _EncodedActivity([*self._shared, *refused], list(self._minutes.values()))
        snapshots.write("recent", msgspec.json.encode(activity))

    def _minute(self) -> int:
        return int(self._clock()) // 60 * 60


def _record(kept: RequestRecord | Record) -> RequestRecord:
    return RequestRecord.of(kept) if isinstance(kept, Record) else kept


def percentile(histogram: dict[int, int], fraction: float) -> float | None:
    """The time that `fraction` of the counted requests did not exceed; None if there are none."""
    rank = fraction * sum(histogram.values())
    reached = 0
    for bucket in sorted(histogram):
        reached += histogram[bucket]
        if reached >= rank:
            # the middle of the step, by ratio
            return _SHORTEST * math.pow(_RATIO, bucket - 0.5)
    return None


def exact_percentile(values: Iterable[float], fraction: float) -> float | None:
    """The value that `fraction` of a few values did not exceed; None if there are none."""
    known = sorted(values)
    return known[max(0, math.ceil(fraction * len(known)) - 1)] if known else None


def target_name(provider: str, model: str) -> str:
    """A target as it is shown."""
    return _truncate(f"{provider}/{model}" if model else provider)


def _truncate(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # an unpaired surrogate would break every encoder
    return text if len(text) <= _MAX_LINE_CHARS else text[: _MAX_LINE_CHARS - 1] + "…"


def _bounded_lines(items: Iterable[object]) -> tuple[str, ...]:
    """Items as lines of bounded length and number; the last line has the number of the omitted ones."""
    every = list(items)
    lines = [_truncate(str(one)) for one in every[:_MAX_LINES]]
    if len(every) > _MAX_LINES:
        lines.append(f"and {len(every) - _MAX_LINES} more")
    return tuple(lines)
