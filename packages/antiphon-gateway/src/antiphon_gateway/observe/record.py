"""`Record`: what happened to one request: who asked, whom was asked, how long, what it used, how it ended.

Every request has one, whatever its route; `MeteredRequest` makes it and ends it, once. A model call writes its attempts into it
directly: it is a `CallReport`. The `Recorder` charges it and passes it on. `usage_rows` are its rows in the ledger, one for each
attempt. The last attempt has the tokens of the answer. One that failed costs nothing, unless it brought the beginning of an
answer that broke off: providers charge for those, so its prompt is estimated.

The tokens are those that the provider reported, else an estimate that is marked so. Usage comes at the end of a stream. If the
client disconnected or the stream broke, the prompt and the relayed text are counted instead, four bytes of UTF-8 per token: about
right for English and for Chinese, and fast. Limits and the ledger both count so.

`CacheRecord` is what is shown of its prompt cache. The cache doctor, which finds it out, is in antiphon-devtools, and off unless
`[cache_doctor] enabled` is set.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field, structs

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon.errors import AntiphonError
from antiphon.parts import TokenUsage
from antiphon.prices.rate_card import encode_variant, token_counts
from antiphon.prices.table import PriceTable
from antiphon.providers.call import CallReport
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, PartDelta, Started, UsageReported, is_visible
from antiphon.wire.output import ProviderError
from antiphon_gateway.ledger.journal import Metering, UsageRow


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


Outcome: TypeAlias = Literal["answered", "refused", "failed", "cancelled"]
Charge: TypeAlias = Literal["tokens", "free", "unknown"]
"""What a provider charges for a request that reports no usage: tokens that can be estimated, nothing, or what is not known."""

CHAT_PAGE = "chat-page"
"""The client format of model calls of the chat page."""
CLIENT_ERRORS = frozenset({"invalid_request", "context_length", "too_large"})
"""Kinds of errors that are the client's fault."""
CLIENT_LEFT = 499

_BYTES_PER_TOKEN = 4
_WINDOW = 4096
"""Media are looked for in steps of this size: a step with a blank or a quote holds none."""
_SAMPLES, _SAMPLE = 64, 252
"""Where escaped characters of a long body are counted: in so many pieces of 42 such characters, of six bytes each."""
_MEDIA_FIELD = re.compile(rb'(?:"(?:data|url|image_url|file_data)"\s*:|"images"\s*:\s*\[)\s*\Z')
"""What stands before the string of an image, a sound or a file, in all formats of clients."""
_MOST_BLANKS = 64
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_:;,.%\\"
"""Characters of base64, and of the start of a `data:` URL."""
_NO_USAGE = TokenUsage()
_PRICED_TIERS = frozenset({"flex", "priority", "fast"})


class Record(CallReport, kw_only=True):
    """One request. `waiting_seconds` of it were spent waiting for others; the rest of `seconds` is the gateway's own."""

    request_id: str
    client_format: str = ""
    operation: str = "chat"
    """Its operation name in OpenTelemetry's GenAI conventions."""
    key: str = ""
    requested_model: str = ""
    streams: bool = False
    service_tier: str = ""
    """The tier that the request asks for, which changes its price."""
    provider: str = ""
    model: str = ""
    upstream_format: str = ""
    status: int = 0
    error: ProviderError | None = None
    defect: Exception | None = None
    """The exception that ended it, if that was a defect of ours; the log line has its traceback."""
    is_admitted: bool = True
    """False if its client is not known, or over a limit: there may be any number of these."""
    client_left: bool = False
    """Whether the client disconnected before the end."""
    began_early: bool = False
    """Whether the head of the stream was sent before a provider answered."""
    started_at: float = field(default_factory=time.monotonic)
    """On the monotonic clock."""
    first_token_seconds: float | None = None
    seconds: float = 0.0
    """How long it took; set at its end."""
    ended_at: float = 0.0
    """When it ended, in seconds since 1970; 0 before that."""
    is_timed: bool = True
    """Whether its times are those of calls of models: the gateway answers other requests itself, in no time."""
    charges: Charge = "tokens"
    usage: TokenUsage | None = None
    prompt_estimate: int = 0
    """The approximate number of tokens of the prompt."""
    output_bytes: int = 0
    """The text of the answer so far, in bytes of UTF-8; counted if the provider reports no usage."""
    broken_tokens: int = 0
    """An estimate for streams that broke without reporting usage and were finished by another target."""
    sent: list[int] | None = None
    """What the ledger knows of its attempts before they end (`UsageLedger.begin`)."""
    span: Any = None
    """Its span of OpenTelemetry, if it is traced."""
    span_began: int = 0
    trace_headers: Mapping[str, str] | None = None
    """The headers that continue its trace upstream."""
    cache: CacheCheck | None = None
    """What the cache doctor finds, if it is on."""
    stop_reason: str = ""
    """This and the following are what its span has besides."""
    response_id: str = ""
    response_model: str = ""

    def observe(self, deltas: list[ModelOutputDelta]) -> None:
        """Record the facts in a response."""
        for delta in deltas:
            if self.first_token_seconds is None and is_visible(delta):
                self.first_token_seconds = time.monotonic() - self.started_at
            if type(delta) is PartDelta:
                self.output_bytes += len(delta.text.encode("utf-8", "replace"))
            elif type(delta) is UsageReported:
                self.usage = delta.usage
            elif type(delta) is Failed:
                self.error = delta.error
        if self.span is not None:
            self._observe_answer(deltas)

    def _observe_answer(self, deltas: list[ModelOutputDelta]) -> None:
        """What a span has besides: who answered, and why the answer ended."""
        for delta in deltas:
            if isinstance(delta, Finished):
                self.stop_reason = delta.stop_reason
                self.response_model = delta.model or self.response_model
            elif isinstance(delta, Started):
                self.response_id, self.response_model = delta.id, delta.model

    def end(self, status: int) -> None:
        """It ended with that status, now."""
        self.status = status
        self.seconds = time.monotonic() - self.started_at
        self.ended_at = time.time()

    def status_after(self, error: BaseException, deadline: float) -> int:
        """The status of a request ended by `error`: a defect of ours, a timeout, or a disconnect."""
        if isinstance(error, Exception):
            self.error = ProviderError(f"internal error: {type(error).__name__}", "server")
            self.defect = None if isinstance(error, AntiphonError) else error
            return 500
        if time.monotonic() >= deadline:
            self.error = ProviderError("request timed out", "timeout")
            return 504
        self.client_left = True
        return CLIENT_LEFT

    @property
    def outcome(self) -> Outcome:
        """How it ended, whatever status its head had: the head of a stream is sent before its end is known.

        `refused` is the client's fault; a provider's rate limit is not.
        """
        if self.status == CLIENT_LEFT:
            return "cancelled"
        if self.status < 400:
            if self.error is None:
                return "answered"
            return "refused" if self.error.kind in CLIENT_ERRORS else "failed"
        return "refused" if self.status < 500 and not (self.status == 429 and self.attempts) else "failed"

    @property
    def cache_record(self) -> CacheRecord | None:
        """What the cache doctor found, once the request has ended; None for a request without an answer."""
        return None if self.cache is None or self.status >= 400 else self.cache.record(self.usage)

    @property
    def overhead_seconds(self) -> float:
        """The gateway's own part of its time."""
        return max(0.0, self.seconds - self.waiting_seconds)


def prompt_estimate(body: bytes) -> int:
    """The approximate number of tokens of a request body: of its text by its size, and so many for each of its media.

    Ordinary text is not read, so this is fast for long bodies too. A character that is escaped (`\\u4e2d`) counts as in UTF-8.
    """
    size, media, start, last_media = len(body) - 3 * _escaped_characters(body), 0, 0, -1
    while (end := start + _WINDOW) <= len(body):
        if body.find(b'"', start, end) >= 0 or body.find(b" ", start, end) >= 0:
            start = end
            continue
        begin, close = body.rfind(b'"', 0, start) + 1, body.find(b'"', end)
        start = close if close >= 0 else len(body)
        if _is_media(body, begin, last_media):
            media, last_media = media + 1, start
            size -= start - begin
    return ceil(size / _BYTES_PER_TOKEN) + media * MEDIA_TOKENS


def _escaped_characters(body: bytes) -> int:
    """How many characters of a body are escaped; of a long one estimated from samples, because counting reads every byte."""
    step = len(body) // _SAMPLES
    if step < 2 * _SAMPLE:
        return body.count(b"\\u")
    found = sum(body.count(b"\\u", at, at + _SAMPLE + 1) for at in range(0, len(body) - _SAMPLE + 1, step))
    return found * step // _SAMPLE


def _is_media(body: bytes, begin: int, last_media: int) -> bool:
    """Whether the string from `begin` on is an image, a sound or a file, by its field and its characters.

    `last_media` is the end of such a string before it, which may be in the same list.
    """
    before = body[max(0, begin - 1 - _MOST_BLANKS) : max(0, begin - 1)]
    follows = last_media >= 0 and body[last_media + 1 : max(0, begin - 1)].strip() == b","
    if not follows and _MEDIA_FIELD.search(before) is None:
        return False
    return not body[begin : begin + _WINDOW].translate(None, _BASE64)


def estimated_tokens(text: str) -> int:
    """The approximate number of tokens of a text."""
    return ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def metered_usage(record: Record) -> tuple[TokenUsage, Metering]:
    """The tokens of a finished request, and where the numbers come from. One without a response costs nothing."""
    usage = record.usage
    is_whole = record.status < 400 and record.error is None
    if is_whole and usage is not None:
        return usage, "reported"
    was_sent = is_whole or record.first_token_seconds is not None or (record.client_left and bool(record.provider))
    if not was_sent:
        return (_NO_USAGE, "free") if usage is None else (usage, "reported")
    if record.charges != "tokens":
        return _NO_USAGE, record.charges
    reported = usage or _NO_USAGE
    prompt = reported.prompt_tokens or record.prompt_estimate
    completion = max(ceil(record.output_bytes / _BYTES_PER_TOKEN), reported.completion_tokens)
    total = max(reported.total_tokens, prompt + completion)
    return structs.replace(
        reported, prompt_tokens=prompt, completion_tokens=completion, total_tokens=total
    ), "estimated"


def price_variant(usage: TokenUsage, requested_tier: str) -> str:
    """What changes the price, as the ledger writes it: the tier that the provider reports, else the requested one."""
    reported = (usage.raw or {}).get("service_tier")
    tier = reported if isinstance(reported, str) else requested_tier
    if tier == "batch":
        return encode_variant({"processing": "batch"})
    return encode_variant({"service_tier": tier}) if tier in _PRICED_TIERS else ""


def usage_rows(record: Record, prices: PriceTable) -> list[UsageRow]:
    """The rows of a finished request, one for each attempt, with their cost."""
    attempts = record.attempts
    if not attempts:
        return []
    usage, metering = metered_usage(record)
    rows = []
    for number, attempt in enumerate(attempts, start=1):
        row = attempt_row(record, number, attempt.provider, attempt.model, attempt.credential)
        row.status, row.seconds = attempt.status or 0, attempt.seconds
        row.outcome = "ok" if attempt.error is None else attempt.error.kind
        rows.append(row)
    is_charged = metering != "free" or attempts[-1].error is None
    if failed := rows[:-1] if is_charged else rows:
        _estimate_broken(failed, record)
    if is_charged:  # the last attempt brought the answer
        row = rows[-1]
        if record.client_left:
            row.outcome = "disconnected"
        elif record.error is not None:
            row.outcome = record.error.kind
        row.first_token_seconds, row.metering = record.first_token_seconds, metering
        (
            row.prompt_tokens,
            row.completion_tokens,
            row.cached_tokens,
            row.cache_write_tokens,
            row.cache_write_1h_tokens,
            row.reasoning_tokens,
        ) = token_counts(usage)
        if record.service_tier or (usage.raw is not None and "service_tier" in usage.raw):
            row.variant = price_variant(usage, record.service_tier)
    for row in rows:
        row.set_cost(prices)
    return rows


def attempt_row(record: Record, number: int, provider: str, model: str, credential: str) -> UsageRow:
    """The row of an attempt of a request, which is `number` among them, as far as it is known when it is sent."""
    return UsageRow(
        request_id=record.request_id,
        attempt=number,
        at=time.time_ns() // 1000,
        key=record.key,
        client_format=record.client_format,
        operation=record.operation,
        provider=provider,
        credential=credential,
        model_asked=record.requested_model,
        model_served=model,
    )


def tokens_of(rows: Sequence[UsageRow]) -> int:
    """All tokens of a request, as limits and budgets count them."""
    return sum([row.prompt_tokens + row.completion_tokens for row in rows])


def _estimate_broken(rows: Sequence[UsageRow], record: Record) -> None:
    """Add an estimate to the rows of attempts that brought only the beginning of an answer."""
    for row in rows:
        if 200 <= row.status < 300 and row.outcome == "stream_cut":  # it had begun, and nothing of it was shown
            row.metering, row.prompt_tokens = "estimated", record.prompt_estimate
    if record.broken_tokens:  # streams that another attempt finished; the last of them has the estimate
        broken = [row for row in rows if row.status == 200 and row.attempt < len(record.attempts)]
        if broken:
            row = broken[-1]
            row.metering, row.prompt_tokens = "estimated", min(record.prompt_estimate, record.broken_tokens)
            row.completion_tokens = record.broken_tokens - row.prompt_tokens
