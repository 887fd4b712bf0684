"""`python -m bench`: print the figures and keep them in `bench/results/`. Exit code 1 if a promise does not hold."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import msgspec

from bench import formats, log, peers
from bench.figures import Figure


def main() -> int:
    figures: list[Figure | str] = []
    print(f"Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; ours / theirs, in one run")
    for figure in chain(log.figures(), formats.figures(), peers.figures()):
        print(figure, flush=True)
        figures.append(figure)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json").write_bytes(msgspec.json.encode(figures))
    return int(any(isinstance(figure, Figure) and not figure.is_kept for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
