"""`antiphon prices`: what models cost per million tokens."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from antiphon.cli.options import read_config
from antiphon.cli.program import runnable
from antiphon.cli.terminal import write, write_error, write_json_lines
from antiphon.model_name import ModelName
from antiphon.prices.rate_card import KINDS, ModelPrices, Price, Tiers
from antiphon.prices.table import PriceTable, price_data


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a model, or provider/model; default: list the providers of the table"
    )
    parser.add_argument("--config", metavar="FILE", help="an antiphon.toml whose [[prices]] apply")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        write(f"{provider.name:26} {len(provider.models):5,} models" for provider in price_data().providers)
        write([runnable(f"source: {price_data().version}; `antiphon prices MODEL` shows one")])
        return 0
    table = _table(arguments.config)
    provider, model = ModelName.parse(arguments.name)
    found = table.find(arguments.name) or (table.find(model, provider) if provider else None)
    if found is None:
        write_error(
            f"antiphon: the price of {arguments.name} is unknown; set it in [[prices]] of an antiphon.toml, "
            "or name the provider too (provider/model)"
        )
        return 1
    if arguments.json:
        write_json_lines([{"model": found.name, "version": table.version, "prices": found.prices}])
        return 0
    write(_lines(arguments.name, found, table))
    return 0


def _table(config_path: str | None) -> PriceTable:
    if config_path is None:
        return PriceTable()
    return PriceTable(read_config(config_path, "prices").prices)


def _lines(name: str, found: ModelPrices, table: PriceTable) -> Iterator[str]:
    yield f"{name}: dollars per million tokens ({table.version})"
    current = found.price_at(datetime.now(UTC), {})
    for kind in KINDS:
        if (amount := getattr(current, kind)) is not None:
            yield f"  {kind:16} {_amount(amount)}"
    others = [price for price in found.prices if price.when or price.hours or price.since]
    for price in others:
        yield f"  {_condition(price)}: " + ", ".join(f"{kind} {_amount(amount)}" for kind, amount in _amounts(price))


def _amounts(price: Price) -> list[tuple[str, Any]]:
    return [(kind, amount) for kind in KINDS if (amount := getattr(price, kind)) is not None]


def _amount(amount: Tiers | str) -> str:
    if not isinstance(amount, Tiers):
        return amount
    return f"{amount.base}" + "".join(f", {price} in prompts of more than {start:,}" for start, price in amount.above)


def _condition(price: Price) -> str:
    words = [f"{name} {value}" for name, value in price.when.items()]
    if price.since:
        words.append(f"since {price.since}")
    if price.hours:
        words.append(f"from {price.hours[0]:%H:%M} to {price.hours[1]:%H:%M} UTC")
    return ", ".join(words)
