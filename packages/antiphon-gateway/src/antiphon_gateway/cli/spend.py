"""`antiphon spend`: what the clients of a gateway have spent, from its usage ledger."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from antiphon.cli.options import add_since, read_time
from antiphon.cli.terminal import table, write, write_json_lines
from antiphon.errors import AntiphonError
from antiphon.history.location import display_location
from antiphon.prices.table import PriceTable
from antiphon_gateway.config.file import load_config
from antiphon_gateway.config.settings import Config
from antiphon_gateway.ledger.database import ledger_address, open_for_reading
from antiphon_gateway.ledger.spend import DIMENSIONS, Dimension, SpendRow, spend

_RIGHT = ("calls", "failed", "prompt", "completion", "cost")


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


def run(arguments: argparse.Namespace) -> int:
    config = load_config(arguments.config) if arguments.config else Config()
    since, until = read_time("--since", arguments.since), read_time("--until", arguments.until)
    address = ledger_address(config)
    database = open_for_reading(config)
    if database is None:
        raise AntiphonError(
            f"there is no ledger at {address} yet; it is made with the first request that `antiphon serve` passes "
            "on. Name the configuration of the gateway with --config"
        )
    by: list[Dimension] = list(dict.fromkeys(arguments.by or ["model"]))
    try:
        rows = spend(database, by, since=since, until=until, keys=arguments.key, table=PriceTable(config.prices))
    finally:
        database.close()
    if arguments.json:
        write_json_lines(_fields(row, by) for row in rows)
    elif not rows:
        write([f"no usage recorded in {display_location(address)} for that time"])
    else:
        write(spend_table(rows, by))
    return 0


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


def spend_table(rows: Sequence[SpendRow], by: Sequence[Dimension]) -> Iterator[str]:
    """Rows of spend and their sum, with what is unknown or estimated in it."""
    lines = [[*(_name(getattr(row, name)) for name in by), *_numbers(row)] for row in rows]
    if len(rows) > 1:
        lines.append(["total", *[""] * (len(by) - 1), *_numbers(_total(rows))])
    yield from table([*by, *_RIGHT], lines, right_from=len(by))
    unpriced, estimated = (sum(getattr(row, name) for row in rows) for name in ("unpriced_calls", "estimated_calls"))
    if unpriced:
        calls, are = ("call", "is") if unpriced == 1 else ("calls", "are")
        yield f"{unpriced:,} {calls} without a known price {are} not in the cost; set one in [[prices]]"
    if estimated:
        calls = "1 call are an estimate" if estimated == 1 else f"{estimated:,} calls are estimates"
        yield f"the tokens of {calls}: the provider reported none"


def _numbers(row: SpendRow) -> list[str]:
    cost = "unknown" if row.cost is None else f"${row.cost:,.4f}{'+?' if row.unpriced_calls else ''}"
    tokens = (row.usage.prompt_tokens, row.usage.completion_tokens)
    return [f"{row.calls:,}", f"{row.failed_calls:,}", *(f"{number:,}" for number in tokens), cost]


def _total(rows: Sequence[SpendRow]) -> SpendRow:
    usage = rows[0].usage
    for row in rows[1:]:
        usage = usage + row.usage
    known = [row.cost for row in rows if row.cost is not None]
    return SpendRow(
        calls=sum(row.calls for row in rows),
        failed_calls=sum(row.failed_calls for row in rows),
        unpriced_calls=sum(row.unpriced_calls for row in rows),
        usage=usage,
        cost=sum(known, Decimal(0)) if known else None,
    )


def _name(value: object) -> str:
    return "(no key)" if value == "" else str(value)
