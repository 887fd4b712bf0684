"""`antiphon spend`: the ledger added up, as a table and as JSON, and what it says to bad input."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from antiphon.cli import main
from antiphon.prices import PriceOverride, PriceTable
from antiphon_gateway.ledger.audit import read_audit
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.journal import UsageRow
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
    prices = PriceTable([PriceOverride(model="own-*", input=1, output=2)])
    LedgerWriter(database, lambda: prices).write("test", 1, rows)
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


def spent(config: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str | None]:
    assert main(["spend", "--config", config, "--json"]) == 0
    rows = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    return {row["model"]: row["cost_usd"] for row in rows}


def test_a_corrected_price_is_applied_to_the_past_and_audited(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(config).write_text('[ledger]\naddress = "usage.db"\n[[prices]]\nmodel = "*"\ninput = 3\noutput = 4\n')
    assert spent(config, capsys) == {"own-a": "2", "own-b": "2", "other": None}
    reprice = ["spend", "reprice", "--config", config, "--since", "2026-03-02", "--model", "acme/*"]
    assert main([*reprice, "--dry-run"]) == 0
    assert capsys.readouterr().out == "2 of 2 calls would cost $10 instead of $2\n"
    assert spent(config, capsys) == {"own-a": "2", "own-b": "2", "other": None}
    assert main(reprice) == 0
    assert capsys.readouterr().out == "2 of 2 calls now cost $10 instead of $2\n"
    assert spent(config, capsys) == {"own-a": "2", "own-b": "5", "other": "5"}
    database = open_operator_database(str(Path(config).parent / "usage.db"))
    done, asked = read_audit(database, limit=10)
    database.close()
    assert (asked.action, asked.target, asked.operator) == ("reprice", "acme/*", "local")
    assert (done.action, done.details["changed"], done.details["after"]) == ("repriced", 2, "10")
    assert done.details["since"] == "2026-03-02"
    assert main(["spend", "--json", "--config", config, "reprice", "--since", "2026-03-01", "--dry-run"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["rows"], found["changed"], found["before"], found["after"]) == (3, 1, "2", "5")


def test_a_ledger_is_read_without_the_secrets_of_its_gateway(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open(config, "a") as file:
        file.write('[[keys]]\nname = "a"\nkey = "env:NOT_SET_HERE"\n')
        file.write('[[providers]]\nname = "p"\npreset = "openai"\nkeys = ["env:NOT_SET_HERE", "file:/no/such/file"]\n')
    assert spent(config, capsys)["own-a"] == "2"
    with open(config, "a") as file:
        file.write('[[prices]]\nmodel = "own-*"\ninput = "much"\n')
    assert main(["spend", "--config", config]) == 1
    assert "prices[1].input" in capsys.readouterr().err
