"""`RecentRequests`: the last requests one by one, and the last hour minute by minute.

Two rings. The first holds the last 500 `RequestRecord`s as they were told; what a record says is cut to a bounded length when
it comes in, for much of it was written by strangers. The second holds an hour of `Minute`s: how many requests, how many were
refused (the client's fault) or failed (ours or a provider's), and how long they took. The times of a minute are kept as a
digest, counts over steps that grow by a tenth: any percentile is right to 5 %, in a few hundred bytes, and digests of several
workers add up to what one worker would have seen. Adding a request costs the same whatever was there before.

With `WorkerFiles` every worker tells the others what it saw, and `seen` is what all of them saw.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec import Struct, field

from antiphon.gateway.cluster.worker_snapshots import WorkerFiles
from antiphon.gateway.observe.request_trace import Passage
from antiphon.providers.call import Attempt

logger = logging.getLogger("antiphon.gateway")

MOST_RECORDS = 500
MINUTES = 60

_MOST_LINES = 20
_LONGEST_LINE = 300
_STEP = math.log(1.1)
_SHORTEST = 0.001


class Try(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a provider on behalf of a request. `credential` is its name or masked form."""

    provider: str
    model: str = ""
    credential: str = ""
    status: int | None = None
    seconds: float = 0.0
    error: str = ""

    @classmethod
    def of(cls, attempt: Attempt) -> Try:
        """What of an attempt may be shown: not the provider's own object, which may repeat what was asked."""
        error = attempt.error
        return cls(
            provider=attempt.provider,
            model=attempt.model,
            credential=attempt.credential,
            status=attempt.status,
            seconds=attempt.seconds,
            error=_cut(f"{error.kind}: {error.message}") if error is not None else "",
        )


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One request as it is shown: who asked for what, who answered, what it took, and what was repaired or lost."""

    id: str
    time: datetime = field(default_factory=partial(datetime.now, UTC))
    """When it was over."""
    client_format: str = ""
    upstream_format: str = ""
    model: str = ""
    """The model that was asked for."""
    target: str = ""
    """Who was asked, `provider/model`."""
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
    repairs: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    attempts: tuple[Try, ...] = ()
    error: str = ""

    @classmethod
    def of(cls, passage: Passage) -> RequestRecord:
        """The record of a request that is over."""
        usage = passage.usage
        error = passage.error
        return cls(
            id=passage.request_id,
            client_format=passage.client_format,
            upstream_format=passage.upstream_format,
            model=_cut(passage.asked),
            target=_cut(f"{passage.provider}/{passage.model}" if passage.model else passage.provider),
            key=passage.key,
            status=passage.status,
            streamed=passage.streams,
            seconds=passage.seconds,
            first_token_seconds=None if passage.first_token is None else passage.first_token - passage.began,
            overhead_seconds=passage.overhead,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            cached_tokens=usage.cached_tokens if usage else 0,
            reasoning_tokens=usage.reasoning_tokens if usage else 0,
            repairs=_lines(passage.repairs) if passage.repairs else (),
            losses=_lines(passage.losses) if passage.losses else (),
            attempts=tuple([Try.of(attempt) for attempt in passage.attempts[-_MOST_LINES:]]),
            error=_cut(f"{error.kind}: {error.message}") if error is not None else "",
        )

    @property
    def is_refused(self) -> bool:
        """Whether the client asked for what it cannot have, or left. A provider's rate limit is no fault of the client."""
        return 400 <= self.status < 500 and not (self.status == 429 and self.attempts)

    @property
    def is_failed(self) -> bool:
        """Whether there was no whole answer, and the client is not to blame. A stream may fail behind its status of 200."""
        return not self.is_refused and (self.status >= 400 or bool(self.error))


class Minute(Struct):
    """One minute of requests, or several added up. `start` is its first second; the digests count requests by step of time."""

    start: int
    requests: int = 0
    refused: int = 0
    failed: int = 0
    seconds: dict[int, int] = field(default_factory=dict)
    first_token: dict[int, int] = field(default_factory=dict)

    def add(self, record: RequestRecord) -> None:
        """Count one more request. Only answers are timed: a refusal is quick, and would make a slow provider look well."""
        self.requests += 1
        if record.status >= 400 or record.error:
            self.refused += record.is_refused
            self.failed += record.is_failed
        else:
            step = _step(record.seconds)
            self.seconds[step] = self.seconds.get(step, 0) + 1
        if record.first_token_seconds is not None:
            step = _step(record.first_token_seconds)
            self.first_token[step] = self.first_token.get(step, 0) + 1

    def merge(self, other: Minute) -> None:
        """Add what another worker saw."""
        self.requests += other.requests
        self.refused += other.refused
        self.failed += other.failed
        for mine, theirs in ((self.seconds, other.seconds), (self.first_token, other.first_token)):
            for step, count in theirs.items():
                mine[step] = mine.get(step, 0) + count


class Seen(Struct):
    """What was seen: the records, newest first, and the minutes of the last hour, oldest first, with no gaps."""

    records: list[RequestRecord]
    minutes: list[Minute]
    workers: int = 1


class RecentRequests:
    """The last requests and the last hour."""

    def __init__(
        self,
        *,
        most: int = MOST_RECORDS,
        files: WorkerFiles | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=most)
        self._minutes: dict[int, Minute] = {}
        self._most = most
        self._files = files
        self._clock = clock
        self._is_shared = False

    def add(self, record: RequestRecord) -> None:
        """A request is over."""
        self._records.append(record)
        start = self._minute()
        minute = self._minutes.get(start)
        if minute is None:
            self._minutes = {known: old for known, old in self._minutes.items() if known > start - MINUTES * 60}
            minute = self._minutes[start] = Minute(start)
        minute.add(record)
        self._is_shared = False

    def seen(self) -> Seen:
        """What all workers saw."""
        everybody = [Seen(list(self._records), list(self._minutes.values())), *self._seen_by_others()]
        records = sorted((record for one in everybody for record in one.records), key=lambda record: record.time)
        now = self._minute()
        hour = {start: Minute(start) for start in range(now - (MINUTES - 1) * 60, now + 60, 60)}
        for one in everybody:
            for minute in one.minutes:
                if minute.start in hour:
                    hour[minute.start].merge(minute)
        return Seen(records[: -self._most - 1 : -1], list(hour.values()), len(everybody))

    def share(self) -> None:
        """Tell the other workers what this one saw, if that is new. Called every second by `keep_sharing`."""
        if self._files is not None and not self._is_shared:
            self._files.write("recent", msgspec.json.encode(Seen(list(self._records), list(self._minutes.values()))))
            self._is_shared = True

    def _seen_by_others(self) -> Iterable[Seen]:
        for data in self._files.others("recent") if self._files is not None else ():
            try:
                yield msgspec.json.decode(data, type=Seen)
            except msgspec.DecodeError:
                logger.warning("what another worker saw cannot be read, and is left out")

    def _minute(self) -> int:
        return int(self._clock()) // 60 * 60


def percentile(digest: dict[int, int], fraction: float) -> float | None:
    """The time that `fraction` of what a digest counted did not exceed; None where it counted nothing."""
    rank = fraction * sum(digest.values())
    reached = 0
    for step in sorted(digest):
        reached += digest[step]
        if reached >= rank:
            # the middle of the step, by ratio
            return _SHORTEST * math.exp((step - 0.5) * _STEP)
    return None


def _step(seconds: float) -> int:
    return max(0, math.ceil(math.log(max(seconds, _SHORTEST) / _SHORTEST) / _STEP))


def _cut(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # half a surrogate pair would break whatever is made of it
    return text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 1] + "…"


def _lines(told: Iterable[object]) -> tuple[str, ...]:
    """Things as lines of bounded length and number; the last says how many more there were."""
    every = list(told)
    lines = [_cut(str(one)) for one in every[:_MOST_LINES]]
    if len(every) > _MOST_LINES:
        lines.append(f"and {len(every) - _MOST_LINES} more")
    return tuple(lines)
