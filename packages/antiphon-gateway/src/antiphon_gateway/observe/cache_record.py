"""What a gateway shows of the prompt cache of a request, and the face of the cache doctor, which finds it out.

The doctor is in antiphon-devtools, and off unless `[cache_doctor] enabled` is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from antiphon.parts import TokenUsage
from antiphon.prices.table import PriceTable
from antiphon_gateway.config.optional_parts import load_cache_watch


class CacheRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is shown of a report: tokens, money, and the place of the first difference; no text of the prompt."""

    verdict: str
    predicted_tokens: int = 0
    lost_tokens: int = 0
    lost_usd: str | None = None
    field: str = ""
    """The first field that differs from the request before."""
    change: str = ""
    byte: int | None = None
    """The byte of the prompt, to 256, at which the two differ."""
    minimum: int = 0
    reason: str = ""
    advice: str = ""


class CacheCheck(Protocol):
    """The examination of one request: a prediction when its answer starts, a record when it has ended."""

    @property
    def header(self) -> str:
        """The prediction as a header value."""

    def record(self, usage: TokenUsage | None) -> CacheRecord | None:
        """The record of the ended request."""


class CacheWatch(Protocol):
    """Follows the requests that a process sends."""

    def check(
        self, body: Sequence[bytes], format_name: str, model: str, *, provider: str, client: str, prices: PriceTable
    ) -> CacheCheck:
        """Examine a body later. `client` is the key whose conversations it may belong to."""


def open_cache_watch() -> CacheWatch:
    """The cache doctor. Raises `ExtraMissing` if it is not installed."""
    watch: CacheWatch = load_cache_watch().CacheWatch()
    return watch
