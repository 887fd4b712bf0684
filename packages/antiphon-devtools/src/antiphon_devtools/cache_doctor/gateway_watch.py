"""`CacheWatch`: the cache doctor of a gateway, which finds it by name.

It keeps outlines (hashes, no text) of the last requests of each client, in this process only and bounded. A `CacheCheck` holds
the body of one request until its answer starts; the work is done then, after the request was sent and not before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from antiphon.json_text import decode_json
from antiphon.parts import TokenUsage
from antiphon.prices.table import PriceTable
from antiphon_devtools.cache_doctor.doctor import CacheDoctor
from antiphon_devtools.cache_doctor.outline import outline_prompt
from antiphon_devtools.cache_doctor.report import CacheReport
from antiphon_gateway.observe.record import CacheRecord

logger = logging.getLogger("antiphon.gateway")

_MAX_PATH_CHARS = 300


def _record_of(report: CacheReport) -> CacheRecord:
    found = report.difference
    return CacheRecord(
        verdict=report.verdict,
        predicted_tokens=report.predicted_tokens,
        lost_tokens=report.lost_tokens,
        lost_usd=None if report.lost_cost is None else f"{report.lost_cost.normalize():f}",
        field="" if found is None else found.path[:_MAX_PATH_CHARS],
        change="" if found is None else found.change,
        byte=None if found is None else found.byte,
        minimum=report.rules.minimum,
        reason=report.reason[:_MAX_PATH_CHARS],
        advice=report.advice,
    )


class CacheCheck:
    """The examination of one request: a prediction when its answer starts, a record when it has ended."""

    def __init__(self, examine: Callable[[], CacheReport | None], prices: PriceTable) -> None:
        self._examine: Callable[[], CacheReport | None] | None = examine
        self._prices = prices
        self._report: CacheReport | None = None
        self._record: CacheRecord | None = None

    @property
    def prediction(self) -> CacheReport | None:
        """The report as far as it is known without usage; None if the body could not be examined."""
        examine, self._examine = self._examine, None  # once, and the body is let go
        if examine is not None:
            try:
                self._report = examine()
            except Exception:  # it must never fail a request
                logger.warning("the cache doctor failed to examine a request", exc_info=True)
        return self._report

    @property
    def header(self) -> str:
        """The prediction as a header value."""
        report = self.prediction
        if report is None:
            return ""
        found = report.difference
        place = f"; field={found.path}; byte={found.byte}" if found is not None else ""
        return f"{report.verdict}; predicted={report.predicted_tokens}; prompt={report.prompt_tokens}{place}"

    def record(self, usage: TokenUsage | None) -> CacheRecord | None:
        """The record of the ended request."""
        if self._record is None and (report := self.prediction) is not None:
            self._record = _record_of(report.with_usage(usage, self._prices))
        return self._record


class CacheWatch:
    """Follows the requests that a process sends."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._doctor = CacheDoctor()
        self._clock = clock

    def check(
        self, body: Sequence[bytes], format_name: str, model: str, *, provider: str, client: str, prices: PriceTable
    ) -> CacheCheck:
        """Examine a body later. `client` is the key whose conversations it may belong to."""
        data, at = b"".join(body), self._clock()

        def examine() -> CacheReport | None:
            value: Any = decode_json(data)
            outline = outline_prompt(value, format_name, model=model)
            return self._doctor.examine(outline, scope=client, provider=provider, at=at)

        return CacheCheck(examine, prices)
