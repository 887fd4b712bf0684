"""The search of the status page reaches the ledger: requests that are not in memory any more, page by page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from html import unescape
from pathlib import Path

import pytest

from antiphon_gateway.config.settings import LedgerSettings
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.row import UsageRow
from gateway.rig import FAST, Client, Rig, rig

BROWSER = {"accept": "text/html"}
TODAY = datetime.now(UTC).date().isoformat()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A gateway that was started after the requests in its ledger."""
    path: Path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    ledger = UsageLedger(partial(open_operator_database, str(path)))
    ledger.add_all(
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
    page = client.request("GET", "/status?q=old-042", headers=BROWSER).body.decode()
    assert "In the ledger" in page
    assert re.findall(r"old-\d{3}(?=<)", page) == ["old-042"]
    assert "1,200 + 30" in page
    assert "estimate" in page
    found = client.get("/status?format=json&q=old-042").json["ledger"]["page"]
    assert [(row["request_id"], row["key"], row["target_model"]) for row in found["rows"]] == [
        ("old-042", "phone", "gpt-4o")
    ]


def test_text_of_the_ledger_is_escaped(client: Client) -> None:
    page = client.request("GET", "/status?key=laptop", headers=BROWSER).body.decode()
    assert "&lt;b&gt;laptop&lt;/b&gt;" in page
    assert "<b>laptop</b>" not in page


def test_the_link_pages_to_older_rows_until_the_end(client: Client) -> None:
    path, shown = f"/status?key=phone&day={TODAY}", []
    for _ in range(10):
        page = client.request("GET", path, headers=BROWSER).body.decode()
        shown += re.findall(r"old-\d{3}", page)
        link = re.search(r'<a rel="next" href="([^"]*)"', page)
        if link is None:
            break
        path = unescape(link[1]).partition("#")[0]
        assert "key=phone" in path
        assert f"day={TODAY}" in path
    assert shown == [f"old-{number:03}" for number in reversed(range(120)) if number != 7]


def test_without_a_search_the_ledger_is_not_read(client: Client) -> None:
    assert "In the ledger" not in client.request("GET", "/status", headers=BROWSER).body.decode()
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
    page = client.request("GET", f"/status?{query}", headers=BROWSER)
    assert page.status == 200
    assert problem.partition(",")[0] in unescape(page.body.decode())


def test_the_page_is_in_chinese_too(client: Client) -> None:
    page = client.request("GET", "/status?lang=zh&q=old-1", headers=BROWSER).body.decode()
    assert "账本中" in page
    assert "时间" in page


def test_refused_requests_have_no_rows(client: Client) -> None:
    assert client.get("/status?format=json&outcome=refused").json["ledger"]["page"]["rows"] == []
