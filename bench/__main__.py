"""`python -m bench [GROUP ...]`: measure, keep the results, and make the report of all that was ever kept.

    python -m bench                 every group; one that fails is reported, and stops nothing
    python -m bench loop disk       these groups
    python -m bench --resume        those groups that were not yet measured from this state of the code
    python -m bench report          only the tables and plots of `docs/performance.md`, from `bench/results/`
    python -m bench budget          the counts of the hot paths against their budget (see `budget`)
    python -m bench failover        what clients get while a provider fails (see `failover`)
    python -m bench conform         the conformance suite against whole gateways (see `conform`)

Each group runs in a process of its own, so that none inherits what another left in memory, and has twenty minutes at most. The
exit code is 1 if a promise does not hold, or if a group could not be measured.
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

from bench import results
from bench.figures import not_measured

GROUPS = ("imports", "log", "disk", "formats", "peers", "growth", "tokens", "loop", "rounds", "gateway")
PATIENCE = 1_200.0
"""The most seconds a group may take."""
_HERE = "--here"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["budget", *rest]:
            from bench import budget

            return budget.main(rest)
        case ["failover", *rest]:
            from bench import failover_run

            return failover_run.main(rest)
        case ["conform", *rest]:
            from bench import conform

            return conform.main(rest)
        case ["report"]:
            return _reported()
        case [first, group] if first == _HERE:
            return measure(group)
    names = [name for name in arguments if name != "--resume"]
    if unknown := sorted(set(names) - set(GROUPS)):
        print(f"there is no group {', '.join(unknown)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    wanted = names or list(GROUPS)
    if "--resume" in arguments:
        wanted = [name for name in wanted if not _is_measured(name)]
    try:
        failed = [name for name in wanted if not _measured_apart(name)]
    finally:  # also of what was measured before a run is broken off
        _reported()
    broken = [line for kept in results.read_all(wanted) for line in kept.broken]
    for name in failed:
        print(f"{name} could not be measured; `make bench ONLY={name}` tries again")
    print(f"{len(wanted)} groups, {len(broken)} promises that do not hold" + (":" if broken else ""))
    for line in broken:
        print(f"  {line}")
    return int(bool(failed or broken))


def _is_measured(group: str) -> bool:
    kept = results.read(group)
    return kept is not None and kept.source == results.source_digest()


def _measured_apart(group: str) -> bool:
    """Whether a process of its own measured the group."""
    with subprocess.Popen([sys.executable, "-m", "bench", _HERE, group], cwd=results.ROOT) as process:
        try:
            return process.wait(PATIENCE) == 0
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
            process.send_signal(signal.SIGINT)  # so that it ends what it started
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            if isinstance(why, KeyboardInterrupt):
                raise
            print(f"{group} took more than {PATIENCE:g} seconds and was ended")
            return False


def measure(group: str) -> int:
    """Measure one group here and keep what it gives, also if it fails on the way; the exit code."""
    began, load, source = datetime.now(UTC), os.getloadavg()[0], results.source_digest()
    print(f"\n{group}, {began:%Y-%m-%d %H:%M} UTC, load {load:.1f}; ours / theirs, in one run", flush=True)
    lines_done: list[results.Line] = []
    try:
        figures: Iterable[results.Line] = import_module(f"bench.{group}").figures()
        for line in figures:
            print(line, flush=True)
            lines_done.append(line)
    except Exception as error:
        traceback.print_exc()
        lines_done.append(not_measured(f"the rest of {group}", f"{type(error).__name__}: {error}"[:200]))
        source = ""  # of no state of the code: `--resume` measures it again
    results.write(results.collected(group, lines_done, began=began, load=load, source=source))
    return int(not source)


def _reported() -> int:
    from bench import report

    for file in report.write(results.read_all(GROUPS)):
        print(file.relative_to(results.ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
