"""A status of a gateway with something in every section, and the record of a request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from antiphon.parts import TokenUsage
from antiphon.providers.keys.health import CredentialStatus, ModelStatus
from antiphon.providers.keys.target_health import CircuitStatus
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError
from antiphon_gateway.config.reload import ReloadResult
from antiphon_gateway.ledger.search import RequestFilter
from antiphon_gateway.ledger.spend import SpendRow
from antiphon_gateway.observe.recent import (
    Activity,
    RecentRequests,
)
from antiphon_gateway.observe.record import Record
from antiphon_gateway.observe.status import ServerStatus, SpendSummary, Status, build_status

NOW = datetime(2025, 11, 15, 14, 42, 10, tzinfo=UTC)


def sample_record(**changes: object) -> Record:
    made = Record(request_id="01r", client_format="openai-chat", requested_model="claude-x", key="laptop", streams=True)
    made.provider, made.model, made.upstream_format, made.status = "anthropic", "claude-4", "anthropic", 200
    made.first_token_seconds, made.seconds, made.waiting_seconds, made.ended_at = 0.5, 2.0, 1.999, NOW.timestamp()
    made.usage = TokenUsage(100, 20, 60, 0, 7, 120)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def status(seen: Activity | None = None, word: str = "claude-x", search: RequestFilter | None = None) -> Status:
    error = ProviderError(f"slow down {word}", "rate_limit", 429)
    return build_status(
        ServerStatus(
            version="0.1.0",
            started=NOW - timedelta(days=3),
            now=NOW,
            config_file=word,
            reload=ReloadResult(time=NOW, is_applied=False, problems=(f"line 3: {word}",)),
        ),
        search=search,
        seen=seen or RecentRequests(clock=NOW.timestamp).activity(),
        credentials={
            "anthropic": [
                CredentialStatus(
                    name=word,
                    masked="sk-…wxyz",
                    state="exhausted",
                    weight=1,
                    seconds=90,
                    models={word: ModelStatus("cooling", 30)},
                    calls=1234,
                    failures=3,
                    last_error=error,
                )
            ]
        },
        models={word: ["anthropic/*", word]},
        circuits=[CircuitStatus(target=Target(word, word), state="open", seconds=20, last_error=error)],
        spend=SpendSummary(
            by_key=(
                SpendRow(key=word, calls=3, usage=TokenUsage(100, 20, 0, 0, 0, 120), cost=Decimal("1.5")),
                SpendRow(key="", calls=1, unpriced_calls=1, cost=None),
                SpendRow(key="failing", calls=3, failed_calls=1, unpriced_calls=2, cost=Decimal(0)),
            ),
            by_model=(SpendRow(model=word, provider=word, calls=4, unpriced_calls=1, cost=Decimal("0.00123")),),
            by_day=(SpendRow(day=NOW.date(), calls=4, estimated_calls=2, cost=Decimal(0)),),
            today=SpendRow(day=NOW.date(), calls=4, cost=Decimal("1.5")),
        ),
    )
