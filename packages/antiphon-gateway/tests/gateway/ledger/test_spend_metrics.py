"""Tokens and money in the metrics equal what the ledger says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from antiphon.errors import StoreError
from antiphon.history.sql.database import Database
from antiphon.prices.table import PriceTable
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.journal import Metering, UsageRow
from antiphon_gateway.ledger.ledger import Label, Spent, UsageLedger
from antiphon_gateway.ledger.spend import spend
from antiphon_gateway.observe.metrics import OTHER, Metrics
from gateway.observe.test_metrics import value
from gateway.rig import FAST, rig
from support.waiting import until

NOON = int(datetime(2026, 11, 10, 12, tzinfo=UTC).timestamp()) * 1_000_000
TABLE = PriceTable()
QUESTION = {"messages": [{"role": "user", "content": "Hello"}]}


def row(number: int, model: str, provider: str, metering: Metering = "reported", **tokens: Any) -> UsageRow:
    return UsageRow(
        request_id=f"r{number}",
        attempt=1,
        at=NOON + number,
        key=f"key-{number % 3}",
        provider=provider,
        model_asked=model,
        model_served=model,
        metering=metering,
        **tokens,
    )


ROWS = [
    row(1, "gpt-4o", "openai", prompt_tokens=1_000, completion_tokens=200, cached_tokens=300),
    row(2, "gpt-4o", "openai", "estimated", prompt_tokens=50, completion_tokens=10),
    row(3, "claude-sonnet-4-5", "anthropic", prompt_tokens=250_000, completion_tokens=900, cache_write_tokens=70),
    row(4, "claude-sonnet-4-5", "anthropic", prompt_tokens=9_000, completion_tokens=900, cache_write_1h_tokens=40,
        cache_write_tokens=60),
    row(5, "o3", "openai", prompt_tokens=700, completion_tokens=500, reasoning_tokens=450),
    row(6, "text-embedding-3-small", "openai", prompt_tokens=80),
    row(7, "a-model-of-our-own", "mine", prompt_tokens=10, completion_tokens=10),
    row(8, "gpt-4o", "openai", "free"),
    row(9, "gpt-image-1", "openai", "unknown"),
]  # fmt: skip


def written(folder: Path, rows: list[UsageRow], prices: PriceTable = TABLE) -> dict[Label, Spent]:
    """What a ledger counted for the metrics when it wrote rows."""
    address = str(folder / "l.db")
    ledger = UsageLedger(lambda: open_operator_database(address), prices=lambda: prices)
    ledger.add(rows)
    ledger.close()
    taken = ledger.take_spent()
    assert ledger.take_spent() == {}
    return taken


def test_the_sums_equal_those_of_the_ledger(tmp_path: Path) -> None:
    taken = written(tmp_path, ROWS)
    database = open_operator_database(str(tmp_path / "l.db"), create=False, read_only=True)
    expected = {(each.provider, each.model, each.key): each for each in spend(database, ("key", "model", "provider"))}
    database.close()
    free = [label for label, each in expected.items() if each.model == "gpt-4o" and each.usage.total_tokens == 0]
    assert set(taken) == set(expected) - set(free)
    for label, sums in taken.items():
        known = expected[label]
        assert sums.prompt_tokens + sums.completion_tokens == known.usage.total_tokens
        assert sums.unpriced_calls == known.unpriced_calls
        assert sums.nanodollars == (known.cost or 0) * 10**9
    assert sum(sums.unpriced_calls for sums in taken.values()) == 2


def test_series_of_spend_are_bounded(tmp_path: Path) -> None:
    rows = [row(number, f"gpt-{number}", "openai", prompt_tokens=1) for number in range(50)]
    metrics = Metrics(["gpt-*"])
    metrics.add_spend(written(tmp_path, [*rows, row(1, "claude-of-a-client", "openai", prompt_tokens=1)]))
    text = metrics.render()
    assert value(text, "antiphon_ledger_tokens_total", kind="prompt", model="gpt-*") == 50
    assert value(text, "antiphon_ledger_tokens_total", kind="prompt", model=OTHER) == 1
    assert b"claude-of-a-client" not in text


def test_rows_that_wait_and_errors_are_counted(tmp_path: Path) -> None:
    is_away = [True]

    def open_database() -> Database:
        if is_away[0]:
            raise StoreError("the disk is away")
        return open_operator_database(str(tmp_path / "l.db"))

    ledger, metrics = UsageLedger(open_database, interval=0.01), Metrics()
    ledger.add(ROWS)
    until(lambda: ledger.status.write_errors)
    metrics.set_ledger(ledger.status)
    text = metrics.render()
    assert (value(text, "antiphon_ledger_rows_pending"), value(text, "antiphon_ledger_rows_total")) == (len(ROWS), 0)
    assert value(text, "antiphon_ledger_write_errors_total") >= 1
    is_away[0] = False
    assert ledger.flush(30)
    ledger.close()
    metrics.set_ledger(ledger.status)
    text = metrics.render()
    assert (value(text, "antiphon_ledger_rows_pending"), value(text, "antiphon_ledger_rows_total")) == (0, len(ROWS))


def test_a_scrape_of_a_gateway_has_tokens_and_dollars(tmp_path: Path) -> None:
    keys = [
        ClientKeySettings(name="ben", key=hash_key("sk-ben")),
        ClientKeySettings(name="root", key=hash_key("sk-root"), admin=True),
    ]
    ledger = LedgerSettings(address=str(tmp_path / "ledger.db"))
    with rig(FAST, keys=keys, ledger=ledger) as gateway, gateway.client("sk-ben") as ben:
        for _ in range(3):
            assert ben.ask("openai-chat", "to-openai-chat", QUESTION, streams=False).status == 200
        with gateway.client("sk-root") as root:
            text = until(lambda: b"antiphon_ledger_rows_total 3" in (got := root.get("/metrics").body) and got)
    labels = {"provider": "openai-chat", "model": "to-openai-chat", "key": "ben"}
    assert value(text, "antiphon_ledger_tokens_total", kind="prompt", **labels) == 33
    assert value(text, "antiphon_ledger_tokens_total", kind="completion", **labels) == 21
    assert value(text, "antiphon_ledger_cost_dollars_total", **labels) > 0
