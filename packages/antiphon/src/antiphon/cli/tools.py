"""`antiphon tools`: which tools were called how often, how long they took, how often they failed or the cache answered."""

from __future__ import annotations

import argparse

from msgspec import structs

from antiphon.cli.options import add_json, add_since, add_store, read_time
from antiphon.cli.terminal import format_time, table, write, write_json
from antiphon.history.location import open_location, store_location
from antiphon.tools.statistics import ToolStatistics, tool_statistics

_HEADS = ("TOOL", "LAST", "CALLS", "FAILED", "NOT RUN", "UNFINISHED", "CACHED", "MEAN", "SLOWEST", "CONVERSATIONS")


def configure(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    stats = actions.add_parser("stats", help="calls, failures, time and cache hits of each tool")
    stats.add_argument(
        "conversation",
        nargs="?",
        default="",
        metavar="ID",
        help="an id, the beginning or end of one, or `last` (default: all conversations)",
    )
    add_since(stats)
    add_json(stats)
    add_store(stats, is_action=True)


def run(arguments: argparse.Namespace) -> int:
    since = read_time("--since", arguments.since)
    with open_location(store_location(arguments.store)) as store:
        tools = tool_statistics(store, arguments.conversation, since=since)
        where = store.path
    if arguments.json:
        write_json([_fields(tool) for tool in tools])
    elif not tools:
        write([f"no tool calls in {where}{' for that time' if since else ''}"])
    else:
        write(table(_HEADS, [_row(tool) for tool in tools], right_from=2))
    return 0


def _fields(tool: ToolStatistics) -> dict[str, object]:
    return {**structs.asdict(tool), "mean_seconds": tool.mean_seconds, "failure_rate": tool.failure_rate}


def _row(tool: ToolStatistics) -> tuple[str, ...]:
    counts = (tool.calls, tool.failed, tool.skipped, tool.unfinished, tool.cached)
    return (
        tool.tool,
        format_time(tool.last) if tool.last is not None else "",
        *map(str, counts),
        _seconds(tool.mean_seconds),
        _seconds(tool.slowest),
        str(tool.conversations),
    )


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
