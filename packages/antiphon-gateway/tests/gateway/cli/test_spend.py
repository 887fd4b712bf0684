"""`antiphon spend`: the ledger added up, as a table and as JSON, and what it says to bad input."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from antiphon.cli import main
from antiphon.prices import PriceTable
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.row import UsageRow
from antiphon_gateway.ledger.writer import LedgerWriter

NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
DAY = 86_400_000_000


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "antiphon.toml"
    path.write_text('[ledger]\naddress = "usage.db"\n[[prices]]\nmodel = "own-*"\ninput = 1\noutput = 2\n')
    rows = [
        UsageRow(
            request_id=f"r{number}", attempt=1, at=NOON + number * DAY, key=key, provider="acme", model_served=model,
            metering="reported", prompt_tokens=1_000_000, completion_tokens=500_000,
        )
        for number, (key, model) in enumerate([("alice", "own-a"), ("bob\x1b[31m", "own-b"), ("alice", "other")])
    ]  # fmt: skip
    database = open_operator_database(str(tmp_path / "usage.db"))
    LedgerWriter(database, PriceTable).write("test", 1, rows)
    database.close()
    return str(path)


def test_table_by_key(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spend", "--config", config, "--by", "key"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert lines[1] == ["alice", "2", "0", "2,000,000", "1,000,000", "$2.0000+?"]
    assert lines[3] == ["total", "3", "0", "3,000,000", "1,500,000", "$4.0000+?"]
    assert "1 call without a known price is not in the cost" in shown
    assert "\x1b" not in shown


def test_json_by_model_and_day_of_one_key_in_a_time(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "--by",
        "model",
        "--by",
        "day",
        "--key",
        "alice",
        "--since",
        "2026-03-01T11:00",
        "--until",
        "2026-03-03",
        "--json",
    ]
    assert main(["spend", "--config", config, *given]) == 0
    (row,) = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["model"], row["day"], row["calls"], row["cost_usd"]) == ("own-a", "2026-03-01", 1, "2")


def test_unknown_price_is_null(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spend", "--config", config, "--since", "2026-03-03", "--json"]) == 0
    row = msgspec.json.decode(capsys.readouterr().out)
    assert (row["model"], row["cost_usd"], row["unpriced_calls"]) == ("other", None, 1)


def test_a_time_without_usage(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spend", "--config", config, "--since", "9999999999999d", "--until", "2020-01-01"]) == 0
    assert "no usage recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--since", "yesterday"], "--since 'yesterday' is not a time; use 2026-11-01"),
        (["--until", "2026-13-01"], "--until '2026-13-01' is not a time"),
    ],
)
def test_bad_times_are_refused(config: str, given: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spend", "--config", config, *given]) == 1
    assert problem in capsys.readouterr().err


def test_without_a_ledger_it_says_where_it_looked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text('[ledger]\naddress = "usage.db"\n')
    assert main(["spend", "--config", str(path)]) == 1
    assert f"there is no ledger at {tmp_path / 'usage.db'}" in capsys.readouterr().err
    assert main(["spend", "--config", str(tmp_path / "missing.toml")]) == 1
