"""`python -m bench conform [NAME ...]`: the conformance suite against whole gateways; writes `docs/devtools/conformance.md`.

Each gateway is a program of its own, configured as `antiphon conform --setup NAME` prints. What is installed in
`.venv-gateway-peers` is measured; the rest keeps its last result.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from antiphon import __version__
from antiphon_devtools.conform.case import GROUPS, load_cases
from antiphon_devtools.conform.client import Client
from antiphon_devtools.conform.gateways import GATEWAYS, KEY, PEER_FORMATS, PORTS, setup
from antiphon_devtools.conform.report import VERDICTS, as_badge, pair_rows, reasons
from antiphon_devtools.conform.run import OutOfTime, Plan, Result, Runner
from antiphon_devtools.conform.upstream import MockProviders
from bench.gateway.programs import PEERS, PORTKEY, ROOT, Contestant, DidNotStart, RunningGateway, free_port
from bench.measure.tables import PageTable, write_tables

FILE = ROOT / "bench" / "results" / "conform.json"
PAGE = ROOT / "docs" / "devtools" / "conformance.md"
BADGE = ROOT / "docs" / "pictures" / "conformance-badge.svg"
TITLES = {
    "antiphon": "Antiphon",
    "litellm": "LiteLLM",
    "llm-rosetta": "llm-rosetta",
    "portkey": "Portkey",
    "tensorzero": "TensorZero",
}
NOT_MEASURED = {"bifrost": "its npm package downloads the program from another host when it starts"}
_MOST_FAILURES = 400
_LONGEST = 1_800.0
_STARTING = Lock()


class Failure(Struct, frozen=True):
    """A case that failed, with its first finding."""

    case: str
    client: str
    upstream: str
    check: str
    expected: str
    got: str
    rule: str = ""


class Measured(Struct, frozen=True):
    """One gateway's results."""

    name: str
    version: str
    at: str
    groups: dict[str, list[int]]
    """By group, the count of each verdict."""
    pairs: list[list[str]]
    reasons: list[str]
    failures: list[Failure]

    @property
    def totals(self) -> list[int]:
        return [sum(counts) for counts in zip(*self.groups.values(), strict=True)]


def start(name: str, folder: Path, ports: dict[str, int]) -> Contestant:
    """The program of a gateway, configured for these mock providers."""
    port, text = free_port(), setup(name, ports)
    config = folder / {"litellm": "conform.yaml", "llm-rosetta": "conform.jsonc"}.get(name, f"{name}.toml")
    config.write_text(text)
    python, program = str(PEERS / "bin" / "python"), str(PEERS / "bin" / "litellm")
    environ = {"CONFORM_KEY": KEY}
    command: tuple[str, ...]
    address = ("--host", "127.0.0.1", "--port", str(port))
    match name:
        case "antiphon":
            command = (sys.executable, "-m", "antiphon", "serve", "--config", str(config), *address)
        case "litellm":
            command = (program, "--config", str(config), *address)
            environ |= {
                "LITELLM_LOCAL_MODEL_COST_MAP": "true",
                "LITELLM_USE_CHAT_COMPLETIONS_URL_FOR_ANTHROPIC_MESSAGES": "true",
            }
        case "llm-rosetta":
            command = (python, "-m", "llm_rosetta.gateway", "--config", str(config), "--no-banner", *address)
        case "portkey":
            server = str(PORTKEY / "build" / "start-server.js")
            command = (shutil.which("node") or "node", server, "--headless", f"--port={port}")
            environ |= {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}
        case _:
            command = (python, str(ROOT / "bench" / "gateway_tensorzero.py"), str(config))
            port = 0
    return Contestant(name, command, port, (), environ)


def version_of(name: str) -> str:
    if name == "antiphon":
        return __version__
    if name == "portkey":
        return (PORTKEY / "package.json").read_text().partition('"version": "')[2].partition('"')[0]
    found = next(PEERS.glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info"), None)
    if found is None:
        raise DidNotStart("it is not installed in .venv-gateway-peers")
    return found.name.removesuffix(".dist-info").partition("-")[2]


def measure(name: str, folder: Path) -> tuple[Measured, list[Result]]:
    """Run the whole suite against one gateway: a process of its own for each client format, at once, as most time is waiting."""
    version = version_of(name)
    with ThreadPoolExecutor() as threads:
        parts = threads.map(lambda client: _measure_client(name, client, folder / client), PEER_FORMATS)
        results = [result for part in parts for result in part]
    return summarize(name, version, results), results


def _measure_client(name: str, client_format: str, folder: Path) -> list[Result]:
    plan = Plan(cases=load_cases(), clients=(client_format,), upstreams=PEER_FORMATS, total_seconds=_LONGEST)
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        with _STARTING:  # a port that is free now must not be given to another one's mock provider
            providers = stack.enter_context(MockProviders(dict.fromkeys(PORTS, 0)))
            running = RunningGateway(start(name, folder, providers.ports), folder)
        try:
            client = Client(f"http://127.0.0.1:{running.port}", KEY, 15)
            return list(Runner(client, providers, GATEWAYS[name], plan).results())
        finally:
            running.stop()


def summarize(name: str, version: str, results: list[Result]) -> Measured:
    groups = {
        group: [sum(each.verdict == verdict for each in results if each.group == group) for verdict in VERDICTS]
        for group in GROUPS
    }
    failures = [
        Failure(
            f"{each.group}/{each.case}",
            each.client,
            each.upstream,
            first.check,
            first.expected,
            first.got[:200],
            first.rule,
        )
        for each in results
        for first in each.findings[:1]
    ]
    at = f"{datetime.now(UTC):%Y-%m-%d}"
    return Measured(name, version, at, groups, pair_rows(results), reasons(results), failures[:_MOST_FAILURES])


def table(measured: list[Measured]) -> str:
    """The tables and remarks of the page, as Markdown."""
    titles = [f"{TITLES[each.name]} {each.version}" for each in measured]
    lines = ["", f"| group | {' | '.join(titles)} |", f"| --- |{' --- |' * len(titles)}"]
    lines += [f"| `{group}` | {' | '.join(_cell(each.groups[group]) for each in measured)} |" for group in GROUPS]
    lines.append(f"| **all** | {' | '.join(f'**{_cell(each.totals)}**' for each in measured)} |")
    lines += [
        "",
        "Each cell is passed / judged; in brackets how many of the others were refused in the right way. A case counts once for",
        "each pair of a client format and a provider format. What does not apply is not judged.",
        "",
        "By client format and provider format (not failed / judged; – where the gateway has no such route):",
        "",
        f"| client → provider | {' | '.join(titles)} |",
        f"| --- |{' --- |' * len(titles)}",
    ]
    for row, client in enumerate(PEER_FORMATS):
        for column, upstream in enumerate(PEER_FORMATS):
            cells = [each.pairs[row][column + 1] for each in measured]
            lines.append(f"| {client} → {upstream} | {' | '.join(cells)} |")
    lines += ["", "What fails most often:", ""]
    for each in measured:
        counts = Counter((failure.case, failure.rule or failure.check) for failure in each.failures)
        shown = ", ".join(f"`{case}` ({why}, {count})" for (case, why), count in counts.most_common(8)) or "nothing"
        lines.append(f"- **{TITLES[each.name]}**: {shown}")
    lines += ["", *(f"Not measured: {name} ({why})." for name, why in NOT_MEASURED.items())]
    days = {each.at: [TITLES[one.name] for one in measured if one.at == each.at] for each in measured}
    dates = "; ".join(f"{', '.join(names)} on {day}" for day, names in days.items())
    lines += [
        "",
        f"Measured: {dates}, with `python -m bench conform` (`make bench` installs the others), each with the configuration",
        "that `antiphon conform --setup NAME` prints. Every failure, with what was expected, is in `bench/results/conform.json`.",
        "",
    ]
    return "\n".join(lines)


def _cell(counts: list[int]) -> str:
    passed, refused, failed, _ = counts
    judged = passed + refused + failed
    if not judged:
        return "–"
    return f"{passed}/{judged}" + (f" ({refused})" if refused else "")


def stored() -> dict[str, Measured]:
    """What was measured before, by name."""
    if not FILE.exists():
        return {}
    return {each.name: each for each in msgspec.json.decode(FILE.read_bytes(), type=list[Measured])}


def page_tables() -> list[PageTable]:
    """The tables of what is stored."""
    kept = stored()
    return [PageTable(PAGE, "conform", table([kept[name] for name in TITLES if name in kept]))]


def main(arguments: list[str]) -> int:
    """Measure the gateways that are named, or all; write the results and the page."""
    kept = stored()
    wanted = arguments or list(TITLES)
    if unknown := sorted(set(wanted) - set(TITLES)):
        print(f"unknown gateway {', '.join(unknown)}; known: {', '.join(TITLES)}", file=sys.stderr)
        return 2
    for name in wanted:
        print(f"{TITLES[name]} …", flush=True)
        try:
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made) / "gateway" / name  # LiteLLM imports from the folder two levels up
                folder.mkdir(parents=True)
                kept[name], results = measure(name, folder)
        except (DidNotStart, OutOfTime, OSError) as error:
            print(f"  not measured: {error}", file=sys.stderr)
            continue
        print(
            "  " + ", ".join(f"{count} {verdict}" for count, verdict in zip(kept[name].totals, VERDICTS, strict=True))
        )
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(list(kept.values())), indent=1) + b"\n")
        if name == "antiphon":
            BADGE.write_text(as_badge(results))
    if not kept:
        return 1
    write_tables(page_tables())
    print(os.path.relpath(PAGE))
    return 0
