"""The search of the status page reaches the ledger: requests that are not in memory any more, page by page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from antiphon_gateway.config.settings import LedgerSettings
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.journal import UsageRow
from antiphon_gateway.ledger.ledger import UsageLedger
from gateway.rig import FAST, Client, Rig, rig

TODAY = datetime.now(UTC).date().isoformat()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A gateway that was started after the requests in its ledger."""
    path: Path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    ledger = UsageLedger(partial(open_operator_database, str(path)))
    ledger.add(
        [
            UsageRow(
                request_id=f"old-{number:03}",
                attempt=1,
                at=time.time_ns() // 1000,
                key="<b>laptop</b>" if number == 7 else "phone",
                provider="openai",
                model_asked="gpt-4o",
                model_served="gpt-4o",
                status=200,
                metering="estimated",
                prompt_tokens=1200,
                completion_tokens=30,
            )
            for number in range(120)
        ]
    )
    ledger.close()
    with rig(FAST, ledger=LedgerSettings(address=str(path))) as running:
        yield running


@pytest.fixture
def client(gateway: Rig) -> Iterator[Client]:
    with gateway.client() as client:
        yield client


def test_a_request_of_an_earlier_process_is_found(client: Client) -> None:
    found = client.get("/status?format=json&q=old-042").json["ledger"]["page"]
    [row] = found["rows"]
    assert (row["request_id"], row["key"], row["target_model"]) == ("old-042", "phone", "gpt-4o")
    assert (row["prompt_tokens"], row["completion_tokens"], row["metering"]) == (1200, 30, "estimated")


def test_the_cursor_pages_to_older_rows_until_the_end(client: Client) -> None:
    path, cursor, shown = f"/status?key=phone&day={TODAY}", "", []
    for _ in range(10):
        page = client.get(path + (f"&before={cursor}" if cursor else "")).json["ledger"]["page"]
        shown += [row["request_id"] for row in page["rows"]]
        if not (cursor := page["next"]):
            break
    assert shown == [f"old-{number:03}" for number in reversed(range(120)) if number != 7]


def test_without_a_search_the_ledger_is_not_read(client: Client) -> None:
    assert client.get("/status?format=json").json["ledger"] is None


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("day=yesterday", "day is a date as 2026-11-30, not 'yesterday'"),
        ("q=old&before=x", "before is a cursor from the page before, not 'x'"),
        ("before=99999999999999999999", "before is a cursor from the page before"),
    ],
)
def test_bad_input_is_reported(client: Client, query: str, problem: str) -> None:
    assert problem in client.get(f"/status?format=json&{query}").json["ledger"]["problem"]


def test_refused_requests_have_no_rows(client: Client) -> None:
    assert client.get("/status?format=json&outcome=refused").json["ledger"]["page"]["rows"] == []
