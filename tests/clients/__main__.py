"""`python -m clients [names]`: install real programs, run each through the gateway to upstreams of every format, print the table.

Exit code 1 if a pair did not pass. `--troubles` plays what may go wrong on the way instead of the plain round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from antiphon.wire import FORMATS
from clients.coding_agents import AGENTS
from clients.command_lines import COMMAND_LINES
from clients.faults import TROUBLES, Trouble
from clients.installed import install
from clients.libraries import LIBRARIES
from clients.program import Program
from clients.run import NO_TROUBLE, Outcome, run

PROGRAMS = (*AGENTS, *COMMAND_LINES, *LIBRARIES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m clients", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs to run, by any part of their name; without: all")
    parser.add_argument("--upstream", action="append", choices=FORMATS, help="run to this format only")
    parser.add_argument("--folder", type=Path, default=Path(".clients"), help="where they are installed")
    parser.add_argument("--troubles", action="store_true", help="play what may go wrong on the way")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [program for program in PROGRAMS if not asked.names or _is_named(program, asked.names)]
    versions = {program.title: install(program, folder) for program in chosen}
    upstreams = tuple(asked.upstream or FORMATS)
    with ThreadPoolExecutor(asked.jobs) as pool:
        if asked.troubles:
            rows = list(pool.map(_played(folder, upstreams), _troubled(chosen)))
        else:
            rows = list(pool.map(_played(folder, upstreams), ((program, NO_TROUBLE) for program in chosen)))
    print(f"| program | version | speaks | {' | '.join(upstreams)} |\n| --- | --- | --- |{' --- |' * len(upstreams)}")
    for row in rows:
        print(_print_outcome(row, versions))
    failed = [outcome for row in rows for outcome in row if outcome.problems]
    for title, outcomes in groupby(failed, key=lambda outcome: outcome.title):
        for outcome in outcomes:
            print(f"\n{title} -> {outcome.upstream}: {'; '.join(outcome.problems)}\n{outcome.output[-2000:]}")
    return int(bool(failed))


def _is_named(program: Program, names: list[str]) -> bool:
    return any(name.lower() in program.title.lower() for name in names)


def _troubled(programs: list[Program]) -> Iterator[tuple[Program, Trouble]]:
    return ((program, trouble) for program in programs for trouble in TROUBLES)


def _played(folder: Path, upstreams: tuple[str, ...]) -> Callable[[tuple[Program, Trouble]], list[Outcome]]:
    def played(pair: tuple[Program, Trouble]) -> list[Outcome]:
        program, trouble = pair
        outcomes = [run(program, upstream, folder, trouble) for upstream in upstreams]
        passed = sum(not outcome.problems for outcome in outcomes)
        print(f"{program.title} {trouble.name}: {passed} of {len(outcomes)}", file=sys.stderr, flush=True)
        return outcomes

    return played


def _print_outcome(row: list[Outcome], versions: dict[str, str]) -> str:
    first = row[0]
    name = first.program.name + (f", {first.trouble}" if first.trouble else "")
    model = "" if first.program.asks_for_any else f" ({first.program.model})"
    wire = f"{first.program.wire} over WebSocket" if first.program.is_websocket else first.program.wire
    results = " | ".join("FAILED" if outcome.problems else "ok" for outcome in row)
    return f"| {name}{model} | {versions[first.program.title]} | {wire} | {results} |"


if __name__ == "__main__":
    sys.exit(main())
