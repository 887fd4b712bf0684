"""`python -m bench failover [--short] [NAME ...]`: the failover scenarios through real gateways, as a table.

Each row is a program of its own on this machine: `defaults` is ours as it comes, `budget` has the limits that the public bench
gives everybody (two retries, 30 s of silence, one fallback), `off` has that budget and neither a short wait for the first token
nor another target that finishes a stream; `litellm` and `portkey` have the same budget, if `.venv-gateway-peers` has them.
`--short` uses short times: to try the command, nothing is stored. A row takes three to five minutes otherwise; it replaces the
row in `bench/results/failover.json`, from which the table of `docs/gateway/failover.md` is made.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.failover.faulty_provider import HEALTHY, NO_PREFILL, FaultyProvider, Times
from bench.failover.scenarios import SCENARIOS, Result, Verdict, run_scenario
from bench.gateway.programs import (
    CLIENT_KEY,
    LITELLM,
    PEERS,
    PORTKEY,
    PORTKEY_NAME,
    ROOT,
    Contestant,
    DidNotStart,
    RunningGateway,
    free_port,
    version_of,
)
from bench.measure.tables import PageTable, write_tables

SHORT = Times(
    retry_after=1.0,
    first_gap=0.9,
    slow_start=8.0,
    first_token_budget=6.0,
    stall=6.0,
    stall_budget=9.0,
    silence=20.0,
    silence_budget=15.0,
    outage=6.0,
    recovery_budget=6.0,
    requests=10,
    interval=1.0,
    word=0.002,
    longest=30.0,
)
PAGE = ROOT / "docs" / "gateway" / "failover.md"
RESULTS = ROOT / "bench" / "results" / "failover.json"
VERDICTS: tuple[Verdict, ...] = ("pass", "partial", "safe", "fail")


def ours(folder: Path, provider: FaultyProvider, limits: str, options: str) -> Contestant:
    """Antiphon with these lines in its provider and in `[gateway]`."""
    port = free_port()
    routes = "".join(
        f'[[models]]\nname = "{each.model}"\ntargets = ["wall/{each.model}", "wall/{each.fallback}"]\n'
        for each in SCENARIOS
    )
    config = folder / f"antiphon-{port}.toml"
    config.write_text(f"""
[gateway]
port = {port}
format_port = 0
client_keys = ["env:CLIENT_KEY"]
{options}
[[providers]]
name = "wall"
format = "openai-chat"
base_url = "{provider.url}"
{limits}
{routes}
[[models]]
name = "{HEALTHY}"
targets = ["wall/{HEALTHY}"]
""")
    command = (sys.executable, "-m", "antiphon", "serve", "--config", str(config))
    return Contestant("antiphon", command, port, (), {"CLIENT_KEY": CLIENT_KEY})


def litellm(folder: Path, provider: FaultyProvider, seconds: float) -> Contestant:
    """LiteLLM's proxy with the budget of the bench."""
    port = free_port()
    names = [HEALTHY, NO_PREFILL, *(each.model for each in SCENARIOS)]
    models = "".join(
        f"\n  - model_name: {name}\n    litellm_params:\n      model: openai/{name}\n      api_base: {provider.url}\n"
        "      api_key: none"
        for name in names
    )
    pairs = "".join(f"\n    - {each.model}: [{each.fallback}]" for each in SCENARIOS)
    config = folder / "litellm.yaml"
    config.write_text(
        f"model_list:{models}\nrouter_settings:\n  num_retries: 2\n  timeout: {seconds:g}\n  fallbacks:{pairs}\n"
        f"  context_window_fallbacks:{pairs}\nlitellm_settings:\n  drop_params: true\n"
        "general_settings:\n  master_key: os.environ/CLIENT_KEY\n"
    )
    command = (str(PEERS / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port))
    environ = {"LITELLM_LOCAL_MODEL_COST_MAP": "true", "CLIENT_KEY": CLIENT_KEY}
    return Contestant(LITELLM, command, port, (), environ)


def portkey() -> Contestant:
    """Portkey's gateway, which has no file of settings: each request brings its own (`portkey_headers`)."""
    port = free_port()
    server = str(PORTKEY / "build" / "start-server.js")
    command = (shutil.which("node") or "node", server, "--headless", f"--port={port}")
    return Contestant(PORTKEY_NAME, command, port, (), {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"})


def portkey_headers(url: str, seconds: float, model: str, fallback: str) -> Mapping[str, str]:
    """The configuration of a request: the strategy `fallback`, with the budget of the bench."""
    targets = [
        {
            "provider": "openai",
            "api_key": "none",
            "custom_host": url,
            "override_params": {"model": name},
            "request_timeout": int(seconds * 1000),
            "retry": {"attempts": 2, "use_retry_after_header": True},
        }
        for name in dict.fromkeys((model, fallback))
    ]
    config = {"strategy": {"mode": "fallback"}, "targets": targets}
    return {"x-portkey-config": msgspec.json.encode(config).decode()}


def rows(times: Times) -> dict[str, Callable[[Path, FaultyProvider], Contestant]]:
    """Each contestant, by its name in the table."""
    is_short = times is SHORT
    silence = silence_of(times)
    # Short times need short circuits; with the times of the bench they keep their defaults.
    circuits = "circuit_seconds = 0.5\ncircuit_max_seconds = 2\n"
    quick = f"{circuits}first_token_seconds = 3\nstall_seconds = 2\n" if is_short else ""
    off = f"{circuits if is_short else ''}first_token_seconds = 60\ncontinue_streams = false\n"
    budget = f"read_seconds = {silence:g}\nretries = 2"
    return {
        "defaults": lambda folder, provider: ours(folder, provider, "", quick),
        "budget": lambda folder, provider: ours(folder, provider, budget, quick),
        "off": lambda folder, provider: ours(folder, provider, budget, off),
        "litellm": lambda folder, provider: litellm(folder, provider, silence),
        "portkey": lambda _folder, _provider: portkey(),
    }


def silence_of(times: Times) -> float:
    """How long a provider may be silent in the budget of the bench."""
    return 4.0 if times is SHORT else 30.0


def measure(contestant: Contestant, provider: FaultyProvider, times: Times, folder: Path) -> list[Result]:
    """All scenarios through one gateway."""
    running = RunningGateway(contestant, folder)
    try:
        url = f"http://127.0.0.1:{running.port}/v1"
        is_portkey = contestant.name == PORTKEY_NAME
        headers_for = partial(portkey_headers, provider.url, silence_of(times)) if is_portkey else None
        results = []
        for scenario in SCENARIOS:
            result = run_scenario(scenario, provider, url, times, CLIENT_KEY, headers_for)
            results.append(result)
            primary, fallback = result.attempts
            remarks = "; ".join(result.remarks)
            print(
                f"  {result.id} {result.verdict:7} {result.seconds:6.1f} s  {primary}p/{fallback}f  {remarks}",
                flush=True,
            )
        return results
    finally:
        running.stop()


class Cell(Struct, frozen=True):
    """What the table says of a scenario. Rows taken over from an earlier page have no seconds where it had none."""

    id: str
    verdict: Verdict
    seconds: float | None = None


def table(measured: Mapping[str, list[Cell]]) -> str:
    """The verdicts as Markdown."""
    lines = [f"| scenario | {' | '.join(measured)} |", f"| --- |{' --- |' * len(measured)}"]
    for place, scenario in enumerate(SCENARIOS):
        results = [found[place] for found in measured.values()]
        cells = [one.verdict if one.seconds is None else f"{one.verdict}, {one.seconds:g} s" for one in results]
        lines.append(f"| {scenario.id} {scenario.title} | {' | '.join(cells)} |")
    counts = [Counter(result.verdict for result in found) for found in measured.values()]
    totals = [" / ".join(str(count[verdict]) for verdict in VERDICTS) for count in counts]
    lines.append(f"| **pass / partial / safe / fail** | {' | '.join(totals)} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run the rows that are named, or all."""
    times = SHORT if "--short" in arguments else Times()
    known = rows(times)
    wanted = [name for name in arguments if name != "--short"] or list(known)
    if unknown := sorted(set(wanted) - set(known)):
        print(f"unknown row {', '.join(unknown)}; known rows: {', '.join(known)}", file=sys.stderr)
        return 2
    measured: dict[str, list[Cell]] = {}
    with FaultyProvider(times) as provider, tempfile.TemporaryDirectory() as name:
        for row in wanted:
            print(row, flush=True)
            try:
                contestant = known[row](Path(name), provider)
                title = f"{contestant.name} {version_of(contestant)}".strip() if row in ("litellm", "portkey") else row
                found = measure(contestant, provider, times, Path(name))
                measured[title] = [Cell(result.id, result.verdict, result.seconds) for result in found]
            except (DidNotStart, OSError) as error:  # also one that is not installed
                print(f"  not measured: {error}", file=sys.stderr)
    if times is not SHORT:
        measured = stored() | measured
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
        write_tables(page_tables())
    print()
    print(table(measured))
    return 0 if measured else 1


def page_tables() -> list[PageTable]:
    """The table of what is stored."""
    return [PageTable(PAGE, "failover", table(stored()))]


def stored() -> dict[str, list[Cell]]:
    """What was measured before, by row."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, list[Cell]]) if RESULTS.exists() else {}
