"""`python -m bench [GROUP ...]`: print the figures and keep them in `bench/results/`. Exit code 1 if a promise does not hold.

Without a group all of them are measured.
"""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import msgspec

from bench import formats, gateway, log, loop, peers
from bench.figures import Figure

GROUPS = {
    "log": log.figures,
    "formats": formats.figures,
    "peers": peers.figures,
    "loop": loop.figures,
    "gateway": gateway.figures,
}


def main(names: list[str]) -> int:
    if unknown := set(names) - set(GROUPS):
        print(f"there is no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    figures: list[Figure | str] = []
    print(f"Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; ours / theirs, in one run")
    for figure in chain.from_iterable(GROUPS[name]() for name in names or GROUPS):
        print(figure, flush=True)
        figures.append(figure)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json").write_bytes(msgspec.json.encode(figures))
    return int(any(isinstance(figure, Figure) and not figure.is_kept for figure in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
