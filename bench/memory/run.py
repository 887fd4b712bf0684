"""`python -m bench memory [--limit MIB] [TREE ...]`: what attacks do to the memory of a gateway, as a table.

Each TREE is a folder with the source of an Antiphon, or an `antiphon` program; without one it is this one. So
two states of the code are measured with the same attacks. `max_buffered_bytes` is 64 MiB, or MIB; each attack sends several times
that to a gateway of its own, twice. Columns: how many MiB the process grew at the worst moment, how many after the client left,
and whether another client was answered meanwhile.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from bench.gateway.programs import ROOT, Contestant, RunningGateway, free_port
from bench.memory.attacks import ATTACKS, KEYS, Attack, Growth, Provider, Victim, configuration, measure

MEBIBYTE = 1024 * 1024
ROUNDS = 2


def main(arguments: list[str]) -> int:
    limit = 64
    if arguments[:1] == ["--limit"]:
        limit, arguments = int(arguments[1]), arguments[2:]
    for place in map(Path, arguments or [str(ROOT)]):
        print(f"{place}, max_buffered_bytes = {limit} MiB")
        print(f"{'attack':44} {'peak':>7} {'after':>7}  another client")
        for name, attack in ATTACKS.items():
            print(f"{name:44} {_row(_attacked(place, attack, limit * MEBIBYTE))}", flush=True)
    return 0


def _row(growth: Growth) -> str:
    peak, after = (size / MEBIBYTE for size in (growth.peak, growth.after))
    return f"{peak:7.0f} {after:7.0f}  {'answered' if growth.serves_another else 'NOT answered'}"


def _sources(tree: Path) -> str:
    """The source folders of a tree: four packages, or one before version 0.2."""
    return os.pathsep.join(str(folder.resolve()) for folder in [*sorted(tree.glob("packages/*/src")), tree / "src"])


def _attacked(place: Path, attack: Attack, limit: int) -> Growth:
    with tempfile.TemporaryDirectory() as folder, Provider() as provider:
        port = free_port()
        config = Path(folder) / "antiphon.toml"
        config.write_text(configuration(provider, limit, port=port))
        program = (str(place),) if place.is_file() else (sys.executable, "-m", "antiphon")
        environ = {**KEYS, **({} if place.is_file() else {"PYTHONPATH": _sources(place)})}
        command = (*program, "serve", "--config", str(config))
        gateway = RunningGateway(Contestant("antiphon", command, port, (), environ), Path(folder))
        try:
            return measure(Victim(port, gateway.pid, limit), attack, rounds=ROUNDS)
        finally:
            gateway.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
