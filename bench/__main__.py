"""`python -m bench [GROUP ...]`: measure, store the results, and write the report.

    python -m bench                 every group; one that fails is reported and stops nothing
    python -m bench loop disk       these groups
    python -m bench --resume        the groups that were not measured with this state of the code
    python -m bench report          only the tables and plots of the documentation, from `bench/results/`
    python -m bench budget          the counts of the hot paths against their budget
    python -m bench failover        what clients get while a provider fails
    python -m bench conform         the conformance suite against other gateways
    python -m bench effects         what is paid twice if a process dies in the middle of it, ours beside other frameworks
    python -m bench context         how large the requests of a long turn are, and what it costs
    python -m bench context quality [MODEL …]   what a model still answers after a compaction
    python -m bench long-chat       300 turns in a browser: how fast they open, and how smoothly an answer streams
    python -m bench walks           the calls of one request through the gateway, and of one turn
    python -m bench memory [TREE]   what attacks do to the memory of a gateway
    python -m bench ledger|postgres|runs|scale [PLACE]   larger stores; these only print

Each group runs in a process of its own, so that none inherits what another left in memory, for at most twenty minutes. The exit
code is 1 if a promise does not hold, or if a group could not be measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module

from bench.measure import results
from bench.measure.figures import not_measured
from bench.measure.tables import PageTable, write_tables

GROUPS = {
    "imports": "bench.library.imports",
    "log": "bench.library.log",
    "disk": "bench.library.disk",
    "formats": "bench.library.formats",
    "peers": "bench.library.peers",
    "growth": "bench.library.growth",
    "tokens": "bench.library.tokens",
    "loop": "bench.library.loop",
    "rounds": "bench.library.rounds",
    "gateway": "bench.gateway.cpu",
}
"""The groups of the report, with the modules that measure them."""
COMMANDS = {
    "budget": "bench.budget.budget",
    "failover": "bench.failover.run",
    "conform": "bench.gateway.conform",
    "context": "bench.context.run",
    "effects": "bench.effects.run",
    "ledger": "bench.gateway.ledger",
    "long-chat": "bench.page.long_chat",
    "memory": "bench.memory.run",
    "postgres": "bench.stores.postgres",
    "runs": "bench.stores.runs",
    "scale": "bench.stores.scale",
    "walks": "bench.gateway.walks",
}
"""Commands of their own: `main(arguments)` returns the exit code."""
SHOWN = ("conform", "context", "effects", "failover")
"""Those whose results are in guides: `page_tables()` makes the tables."""
GROUP_SECONDS = 1_200.0
"""The most seconds a group may take."""
_IN_THIS_PROCESS = "--in-this-process"


def main(arguments: list[str]) -> int:
    match arguments:
        case [command, *rest] if command in COMMANDS:
            code: int = import_module(COMMANDS[command]).main(rest)
            return code
        case ["report"]:
            return _write_report()
        case [first, group] if first == _IN_THIS_PROCESS:
            return measure(group)
    names = [name for name in arguments if name != "--resume"]
    if unknown := sorted(set(names) - set(GROUPS)):
        known = ", ".join([*GROUPS, *COMMANDS, "report"])
        print(f"unknown group {', '.join(unknown)}; use one of {known}", file=sys.stderr)
        return 2
    wanted = names or list(GROUPS)
    if "--resume" in arguments:
        wanted = [name for name in wanted if not _is_measured(name)]
    try:
        failed = [name for name in wanted if not _measure_in_subprocess(name)]
    finally:  # also after an interrupted run
        _write_report()
    not_held = [line for stored in results.read_all(wanted) for line in stored.not_held]
    for name in failed:
        print(f"{name} could not be measured; `make bench ONLY={name}` tries again")
    print(f"{len(wanted)} groups, {len(not_held)} promises do not hold" + (":" if not_held else ""))
    for line in not_held:
        print(f"  {line}")
    return int(bool(failed or not_held))


def _is_measured(group: str) -> bool:
    stored = results.read(group)
    return stored is not None and stored.source == results.source_digest()


def _measure_in_subprocess(group: str) -> bool:
    """Whether a process of its own measured the group."""
    with subprocess.Popen([sys.executable, "-m", "bench", _IN_THIS_PROCESS, group], cwd=results.ROOT) as process:
        try:
            return process.wait(GROUP_SECONDS) == 0
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
            process.send_signal(signal.SIGINT)  # so that it ends what it started
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            if isinstance(reason, KeyboardInterrupt):
                raise
            print(f"{group} took more than {GROUP_SECONDS:g} seconds and was ended")
            return False


def measure(group: str) -> int:
    """Measure one group in this process and store its results, also if it fails on the way; the exit code."""
    began, load, source = datetime.now(UTC), os.getloadavg()[0], results.source_digest()
    print(f"\n{group}, {began:%Y-%m-%d %H:%M} UTC, load {load:.1f}; ours / theirs, in one run", flush=True)
    lines: list[results.Line] = []
    try:
        figures: Iterable[results.Line] = import_module(GROUPS[group]).figures()
        for line in figures:
            print(line, flush=True)
            lines.append(line)
    except Exception as error:
        traceback.print_exc()
        lines.append(not_measured(f"the rest of {group}", f"{type(error).__name__}: {error}"[:200]))
        source = ""  # so that `--resume` measures it again
    results.write(results.build_results(group, lines, began=began, load=load, source=source))
    return int(not source)


def _write_report() -> int:
    from bench.measure import report

    for file in report.write(results.read_all(list(GROUPS))):
        print(file.relative_to(results.ROOT))
    write_tables(page_tables())
    return 0


def page_tables() -> list[PageTable]:
    """The tables of the commands that store results, wherever they are shown."""
    return [table for name in SHOWN for table in import_module(COMMANDS[name]).page_tables()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
