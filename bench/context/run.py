"""`python -m bench context [ROUNDS ...]`: one turn of many rounds, kept small in several ways; size, breaks of the cache, cost.

Loop, renderer, wire writer and HTTP client are the real ones, ours and those of the other libraries (`peers.py`, in
`.venv-context-peers`, if `make context` could install them); the provider is simulated, the same for all (`provider.py`). Results
have 5 to 7 kB, every tenth 30 kB; a summary has 400 tokens. What a model loses by a compaction is measured by `quality.py`.
The results go to `bench/results/context.json`, the table of `SHOWN` rounds to `docs/library/context.md` and `docs/zh/context.md`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.context import CharacterEstimate, Compaction, LiveContextOptions
from antiphon.conversation import Conversation, RunLimits, ToolLoop
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.tools import tool
from bench.context import quality
from bench.context.depots import MODEL, QUESTION, SYSTEM, describe
from bench.context.provider import Bill, Provider
from bench.measure.tables import PageTable, write_tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "context.json"
PAGES = {
    ROOT
    / "docs/library/context.md": "| rounds | limit | way | largest request | over the limit | breaks of the cache | cost |",
    ROOT / "docs/zh/context.md": "| 轮数 | 上限 | 方式 | 最大请求 | 超出上限 | 缓存中断 | 费用 |",
}
PEERS = ROOT / ".venv-context-peers" / "bin" / "python"
ROUNDS = (10, 50, 200, 1_000)
SHOWN = (10, 200, 1_000)
LIMITS = (60_000, 160_000)
SECONDS = 3_600.0

OURS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "window": {"window": True},
    "compaction, at the limit": {"compaction": Compaction(thrift="off")},
    "compaction": {"compaction": Compaction()},
}
OTHERS = {
    "pydantic-ai-harness": ("pydantic-ai-harness", "pydantic-ai-harness {}, cleared and summarised"),
    "langchain": ("langchain", "LangChain {}, summarised"),
    "langchain-edits": ("langchain", "LangChain {}, cleared"),
}
"""The package of each peer, and what it does."""


class Measured(Struct, frozen=True):
    """One turn."""

    rounds: int
    limit: int
    way: str
    largest: int
    over: int
    requests: int
    breaks: int
    cost: float
    is_ours: bool = True


@tool(effect="read")
async def look(number: int) -> str:
    "Look at a depot."
    return describe(number)


def play(rounds: int, limit: int, way: str) -> Bill:
    """Run one turn of ours and return its bill."""
    options = dict(OURS[way])
    if options.pop("window", False):
        options["context_options"] = LiveContextOptions(max_tokens=int(limit * 0.95))
    with Provider(rounds, limit) as provider:
        asyncio.run(_play(provider, rounds, limit, options))
        return provider.bill


async def _play(provider: Provider, rounds: int, limit: int, options: dict[str, Any]) -> None:
    client = HttpProviderClient("anthropic", base_url=provider.url, keys=["sk-test"])
    chat = Conversation(
        MODEL,
        provider=client,
        tools=[look],
        system=SYSTEM,
        counter=CharacterEstimate(),
        token_limit=limit if "compaction" in options else None,
        **options,
    )
    limits = RunLimits(max_rounds=rounds + 10, max_repeats=rounds + 10)
    result = await ToolLoop(chat, limits=limits).run(QUESTION)
    assert result.reason == "answered", result.text
    await client.aclose()


def play_peer(rounds: int, limit: int, name: str) -> Bill | str:
    """Run one turn of another library in a process of its own; why not, if it failed."""
    script = Path(__file__).with_name("peers.py")
    with Provider(rounds, limit) as provider, tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(PEERS), str(script), name, provider.url, str(rounds), str(limit)]
        try:
            done = subprocess.run(command, env=environment, cwd=home, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"took more than {SECONDS:g} seconds"
        if done.returncode:
            return done.stderr.decode().strip().rpartition("\n")[2][:200]
        return provider.bill


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a compaction let a request exceed the limit."""
    if arguments[:1] == ["quality"]:
        return quality.main(arguments[1:])
    logging.disable(logging.ERROR)
    peers = {name: label.format(_version(package)) for name, (package, label) in OTHERS.items() if _version(package)}
    if not peers:
        print("no other library is measured; make context installs them")
    measured: list[Measured] = []
    for rounds in [int(argument) for argument in arguments] or ROUNDS:
        for limit in LIMITS:
            ways = [
                way for way in OURS if way != "nothing" or rounds <= 200
            ]  # beyond, a quadratic bill and nothing new
            measured += [_line(rounds, limit, way, play(rounds, limit, way)) for way in ways]
            for name, label in peers.items():
                bill = play_peer(rounds, limit, name)
                if isinstance(bill, str):
                    print(f"{label}: {rounds} rounds at {limit:,} not measured: {bill}", file=sys.stderr)
                else:
                    measured.append(_line(rounds, limit, label, bill, is_ours=False))
    if not arguments:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
        write_tables(page_tables())
    return int(any(one.over for one in measured if one.way.startswith("compaction")))


def _line(rounds: int, limit: int, way: str, bill: Bill, *, is_ours: bool = True) -> Measured:
    cost = float(round(bill.cost, 2))
    one = Measured(rounds, limit, way, bill.largest, bill.over, bill.requests, bill.breaks, cost, is_ours)
    print(f"{rounds:5} {limit:7,} {way:45} {row(one)}", flush=True)
    return one


def row(one: Measured) -> str:
    """The figures of one turn as cells of a table."""
    way = f"**{one.way}**" if one.way == "compaction" else one.way
    return (
        f"| {one.rounds:,} | {one.limit:,} | {way} | {one.largest:,} | {one.over} of {one.requests} | {one.breaks} "
        f"| ${one.cost:,.2f} |"
    )


def page_tables() -> list[PageTable]:
    """The tables of what is stored, with the answers of models after a compaction."""
    measured = msgspec.json.decode(RESULTS.read_bytes(), type=list[Measured])
    rows = "\n".join(row(one) for one in measured if one.rounds in SHOWN)
    rule = "| --- | --- | --- | --- | --- | --- | --- |"
    turns = [PageTable(page, "bench context", f"{head}\n{rule}\n{rows}") for page, head in PAGES.items()]
    return turns + quality.page_tables()


def _version(package: str) -> str:
    """The version of a package among the peers; empty if it is not installed."""
    if not PEERS.exists():
        return ""
    command = [str(PEERS), "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
    return subprocess.run(command, capture_output=True, check=False).stdout.decode().strip()
