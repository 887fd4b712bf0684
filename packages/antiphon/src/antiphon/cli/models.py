"""`antiphon models`: what the known model families accept, and the source of each fact."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from antiphon.cli.options import read_config
from antiphon.cli.terminal import write, write_error, write_json_lines
from antiphon.wire import FORMATS
from antiphon.wire.capabilities import (
    Capabilities,
    CapabilityTable,
    Family,
    capabilities_for,
    capability_data,
    find_family,
)

_LIST_COLUMNS = ("efforts", "thinking", "max_output_tokens", "context_window")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a model, with or without its vendor; default: list all families"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"the format it is asked in: {', '.join(FORMATS)} (default: its vendor's)",
    )
    parser.add_argument("--config", metavar="FILE", help="an antiphon.toml whose [[capabilities]] apply")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    table = _table(arguments.config)
    if arguments.name is None:
        return _list_families(as_json=arguments.json)
    return _show_model(arguments.name, arguments.format, table, as_json=arguments.json)


def _table(config_path: str | None) -> CapabilityTable | None:
    if config_path is None:
        return None
    return CapabilityTable(read_config(config_path, "capabilities").capabilities)


def _list_families(*, as_json: bool) -> int:
    families = capability_data().families
    if as_json:
        write_json_lines([families])
        return 0
    for family in families:
        known = msgspec.to_builtins(capabilities_for(family.examples[0], family.home[0]))
        facts = [f"{name}={_text(known[name])}" for name in _LIST_COLUMNS if name in known]
        write([f"{family.name:26} {', '.join(family.examples)}", f"{'':26} {'  '.join(facts) or 'nothing known'}"])
    return 0


def _show_model(model: str, format_name: str | None, table: CapabilityTable | None, *, as_json: bool) -> int:
    family = find_family(model)
    format_name = format_name or (family.home[0] if family else FORMATS[0])
    known = capabilities_for(model, format_name, table)
    rows = _facts(model, known, family, format_name, table)
    if as_json:
        facts = {name: {"value": value, "source": source} for name, value, source in rows}
        write_json_lines([{"model": model, "format": format_name, "family": known.family, "facts": facts}])
        return 0
    write([f"{model} in {format_name}: {f'family {known.family}' if known.is_known else 'unknown'}"])
    write(f"  {name:28} {_text(value):40} {source}" for name, value, source in rows)
    if not known.is_known:
        write_error("antiphon: nothing is assumed against an unknown model; describe it in [[capabilities]]")
    return 0


def _facts(
    model: str, known: Capabilities, family: Family | None, format_name: str, table: CapabilityTable | None
) -> list[tuple[str, Any, str]]:
    """Name, value and source of each fact."""
    of_format = capability_data().formats[format_name]
    builtin = capabilities_for(model, format_name)
    rows = []
    for name, value in msgspec.to_builtins(known).items():
        if name == "family":
            continue
        if table is not None and getattr(builtin, name) != getattr(known, name):
            source = "[[capabilities]]"
        elif family is not None and name in family.sources:
            source = family.sources[name]
        else:
            source = of_format.sources.get(name, of_format.source) if name in of_format.facts else ""
        rows.append((name, value, source))
    return rows


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
