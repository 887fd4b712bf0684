"""`antiphon spend`: what the clients of a gateway have spent, from its usage ledger; `reprice` corrects what past calls cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import structs

from antiphon.cli.options import add_since, read_time
from antiphon.cli.terminal import table, write, write_json_lines
from antiphon.errors import AntiphonError
from antiphon.history.sql.database import Database
from antiphon.prices.table import PriceTable
from antiphon_gateway.config.file import load_config
from antiphon_gateway.config.settings import Config
from antiphon_gateway.ledger.audit import LOCAL, Change, record_change
from antiphon_gateway.ledger.database import ledger_address, open_ledger
from antiphon_gateway.ledger.repricing import reprice
from antiphon_gateway.ledger.spend import DIMENSIONS, Dimension, SpendRow, spend

_RIGHT = ("calls", "failed", "prompt", "completion", "cost")
_SUMMED = ("calls", "failed_calls", "prompt_tokens", "completion_tokens", "unpriced_calls", "estimated_calls")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        action="append",
        choices=DIMENSIONS,
        help="group by this; may be repeated (default: model)",
    )
    add_since(parser)
    parser.add_argument("--until", metavar="TIME", help="before this UTC day or time")
    parser.add_argument("--key", action="append", metavar="NAME", help="only this client key; may be repeated")
    parser.add_argument(
        "--config", metavar="FILE", help="the antiphon.toml of the gateway: its [ledger] and [[prices]]"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")
    actions = parser.add_subparsers(dest="action", metavar="[reprice]")
    reprice = actions.add_parser("reprice", help="price past calls again, with the table and [[prices]] of now")
    reprice.add_argument("--since", metavar="DAY", required=True, help="from this UTC day on: 2026-11-01, or 7d")
    reprice.add_argument(
        "--model", metavar="PATTERN", default="*", help="only these models, as gpt-5* or openai/* (default: all)"
    )
    reprice.add_argument("--dry-run", action="store_true", help="only show what would change")
    # They may stand before or after the action.
    reprice.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="the antiphon.toml of the gateway")
    reprice.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print a JSON object")


def run(arguments: argparse.Namespace) -> int:
    # The keys of providers and clients are not needed to read a ledger, and often not there.
    config = load_config(arguments.config, only=("ledger", "prices")) if arguments.config else Config()
    address = ledger_address(config)
    database = open_ledger(address, PriceTable(config.prices))
    if database is None:
        raise AntiphonError(
            f"there is no ledger at {address} yet; it is made with the first request that `antiphon serve` passes "
            f"on{'' if arguments.config else '. Name the configuration of the gateway with --config'}"
        )
    try:
        if arguments.action == "reprice":
            return _reprice(database, arguments, PriceTable(config.prices))
        return _show(database, arguments)
    finally:
        database.close()


def _show(database: Database, arguments: argparse.Namespace) -> int:
    since, until = read_time("--since", arguments.since), read_time("--until", arguments.until)
    by: list[Dimension] = list(dict.fromkeys(arguments.by or ["model"]))
    rows = spend(database, by, since=since, until=until, keys=arguments.key)
    if arguments.json:
        write_json_lines(_fields(row, by) for row in rows)
    elif not rows:
        write([f"no usage recorded in {database.location} for that time"])
    else:
        write(spend_table([{**{name: getattr(row, name) for name in by}, **row.numbers} for row in rows], by))
    return 0


def _reprice(database: Database, arguments: argparse.Namespace, table: PriceTable) -> int:
    since = read_time("--since", arguments.since)
    assert since is not None, "it is required"
    details = {"since": str(since.date()), "prices": table.version}
    change = Change(operator=LOCAL, peer="command line", action="reprice", target=arguments.model, details=details)
    if not arguments.dry_run:
        record_change(database, change)  # first: what is interrupted has changed something too
    found = reprice(database, table, since=since.date(), model=arguments.model, is_dry_run=arguments.dry_run)
    outcome = {
        "rows": found.rows,
        "changed": found.changed,
        "before": _dollars(found.before),
        "after": _dollars(found.after),
    }
    if not arguments.dry_run:
        record_change(database, structs.replace(change, action="repriced", details={**details, **outcome}))
    if arguments.json:
        write_json_lines([{**details, **outcome, "without_row": found.without_row, "dry_run": arguments.dry_run}])
        return 0
    verb = "would cost" if arguments.dry_run else "now cost"
    write([f"{found.changed:,} of {found.rows:,} calls {verb} ${outcome['after']} instead of ${outcome['before']}"])
    if found.without_row:
        write([f"{found.without_row:,} calls keep their cost: their rows were deleted ([ledger] retention_days)"])
    return 0


def _dollars(nanodollars: int) -> str:
    return f"{Decimal(nanodollars).scaleb(-9).normalize():f}"


def _fields(row: SpendRow, by: Sequence[Dimension]) -> dict[str, Any]:
    named: dict[str, Any] = {name: getattr(row, name) for name in by}
    return {
        **named,
        "calls": row.calls,
        "failed_calls": row.failed_calls,
        "estimated_calls": row.estimated_calls,
        "unpriced_calls": row.unpriced_calls,
        "prompt_tokens": row.usage.prompt_tokens,
        "completion_tokens": row.usage.completion_tokens,
        "cached_tokens": row.usage.cached_tokens,
        "cache_write_tokens": row.usage.cache_write_tokens,
        "cache_write_1h_tokens": row.cache_write_1h_tokens,
        "reasoning_tokens": row.usage.reasoning_tokens,
        "cost_usd": None if row.cost is None else f"{row.cost.normalize():f}",
    }


def spend_table(rows: Sequence[Mapping[str, Any]], by: Sequence[Dimension]) -> Iterator[str]:
    """Rows of spend (`SpendRow.numbers`, with their names) and their sum, with what is unknown or estimated in it."""
    lines = [[*(_name(row[name]) for name in by), *_numbers(row)] for row in rows]
    total: dict[str, Any] = {name: sum(row[name] for row in rows) for name in _SUMMED}
    if len(rows) > 1:
        costs = [row["cost"] for row in rows if row["cost"] is not None]
        lines.append(["total", *[""] * (len(by) - 1), *_numbers({**total, "cost": sum(costs) if costs else None})])
    yield from table([*by, *_RIGHT], lines, right_from=len(by))
    unpriced, estimated = total["unpriced_calls"], total["estimated_calls"]
    if unpriced:
        calls, are = ("call", "is") if unpriced == 1 else ("calls", "are")
        yield f"{unpriced:,} {calls} without a known price {are} not in the cost; set one in [[prices]]"
    if estimated:
        calls = "1 call are an estimate" if estimated == 1 else f"{estimated:,} calls are estimates"
        yield f"the tokens of {calls}: the provider reported none"


def _numbers(row: Mapping[str, Any]) -> list[str]:
    cost = "unknown" if row["cost"] is None else f"${row['cost']:,.4f}{'+?' if row['unpriced_calls'] else ''}"
    return [*(f"{row[name]:,}" for name in _SUMMED[:4]), cost]


def _name(value: object) -> str:
    return "(no key)" if value == "" else str(value)
