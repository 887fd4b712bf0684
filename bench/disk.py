"""On the disk: bytes for each byte of text, CPU time for each turn, and reading everything back; 400 turns.

The file is measured when it is closed, with all that its library put there: versions, indexes, what makes forks and search
possible. Ours makes each entry durable before `append` returns; the others are taken as they are out of the box. The floor is one
row for each text, in one table.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.history import ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.parts import text_of
from bench.figures import Figure, Growth, Taken, not_measured
from bench.loop import PEERS_PYTHON, ROOT
from bench.turns import TURNS, payload, turn

RUNS, GROWTH_RUNS = 5, 2
EDGE = 50  # turns at the beginning and at the end whose cost is compared
SIZES = (40, 400, 4_000)
PATIENCE = 240.0
PROMISED = 1.3
PEERS = ("openai-agents", "llm", "agno", "langgraph")
FLOOR = "one row for each text"


class Kept(Struct, frozen=True):
    """A conversation that was kept: the CPU time at the end of each turn and of reading it back, and the bytes it took."""

    stamps: list[float]
    reopened: float
    bytes: int
    version: str = ""

    def between(self, first: int, last: int) -> float:
        """CPU microseconds a turn."""
        return (self.stamps[last] - self.stamps[first]) / (last - first) * 1e6


def figures() -> Iterator[Figure | Growth | str]:
    kept: dict[str, list[Kept]] = {}
    whys: dict[str, str] = {}
    for _ in range(RUNS):
        for name in ("ours", FLOOR, *PEERS):
            if name in whys:
                continue
            answer = peer(name, TURNS) if name in PEERS else own(name, TURNS)
            if isinstance(answer, str):
                whys[name] = answer
            else:
                kept.setdefault(name, []).append(answer)
    yield from compared_with(kept, whys)
    yield from growing()


def compared_with(kept: dict[str, list[Kept]], whys: dict[str, str]) -> Iterator[Figure | str]:
    ours = kept["ours"]
    text_bytes = payload(TURNS)
    yield Figure(
        "bytes on disk per byte of text", ours[0].bytes / text_bytes, 1.0, "bytes", PROMISED, "the bytes of the text"
    )
    for name, runs in kept.items():
        if name == "ours":
            continue
        against = f"{name} {runs[0].version}".strip()
        at_most = 1.0 if name in PEERS else None
        yield Figure(
            "bytes on disk per byte of text",
            ours[0].bytes / text_bytes,
            runs[0].bytes / text_bytes,
            "bytes",
            None,
            against,
        )
        for label, cost in (
            ("a turn kept, the first 50", lambda run: run.between(0, EDGE)),
            ("a turn kept, the last 50", lambda run: run.between(TURNS - EDGE, TURNS)),
            (f"{TURNS} turns read back", lambda run: run.reopened * 1e6),
        ):
            yield Figure.of(label, taken(ours, cost), taken(runs, cost), "us", at_most=at_most, against=against)
    for name, why in whys.items():
        yield not_measured(f"on the disk, {name}", why)


def taken(runs: Sequence[Kept], cost: Callable[[Kept], float]) -> Taken:
    return Taken.of([cost(run) for run in runs])


def growing() -> Iterator[Growth]:
    """Ours at ten times and a hundred times the turns."""
    runs = {size: [own("ours", size) for _ in range(GROWTH_RUNS)] for size in SIZES}
    for label, cost in (
        ("turns kept", lambda run: (run.stamps[-1] - run.stamps[0]) * 1e3),
        ("turns read back", lambda run: run.reopened * 1e3),
    ):
        yield Growth.of(label, "turns", {size: taken(kept, cost) for size, kept in runs.items()}, "ms")
    sizes = {size: taken(kept, lambda run: run.bytes / 1e3) for size, kept in runs.items()}
    yield Growth.of("bytes on disk", "turns", sizes, "KB")


def own(name: str, turns: int) -> Kept:
    """What runs in this process: ours, and the floor."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        path = Path(folder) / "kept.db"
        stamps, reopen = (ours if name == "ours" else bare)(path, turns)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        started = time.process_time()
        texts = reopen()
        reopened = time.process_time() - started
    assert texts == [text for number in range(turns) for text in turn(number)]
    return Kept(stamps, reopened, size)


def ours(path: Path, turns: int) -> tuple[list[float], Callable[[], list[str]]]:
    with SqliteStore(path) as store:
        history, stamps = store.create(), [time.process_time()]
        for number in range(turns):
            asked, answered = turn(number)
            history.append(ModelInputEntry.of(asked))
            history.append(ModelOutputEntry.of(answered))
            stamps.append(time.process_time())
        name = history.id

    def reopen() -> list[str]:
        with SqliteStore(path) as store:
            return [text_of(entry.content) for entry in store.open(name).entries]  # type: ignore[attr-defined]

    return stamps, reopen


def bare(path: Path, turns: int) -> tuple[list[float], Callable[[], list[str]]]:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE texts (key INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    stamps = [time.process_time()]
    for number in range(turns):
        for text in turn(number):
            database.execute("INSERT INTO texts (text) VALUES (?)", (text,))
        stamps.append(time.process_time())
    database.close()

    def reopen() -> list[str]:
        database = sqlite3.connect(path)
        texts = [text for (text,) in database.execute("SELECT text FROM texts ORDER BY key")]
        database.close()
        return texts

    return stamps, reopen


def peer(name: str, turns: int) -> Kept | str:
    """What a peer tells, or why it does not."""
    if not PEERS_PYTHON.exists():
        return "`make bench` sets its environment up"
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        place = Path(folder) / "kept"
        place.mkdir()
        command = [str(PEERS_PYTHON), "-m", "bench.disk_peers", name, str(place / "kept.db"), str(turns)]
        environ = {"PATH": os.defpath, "HOME": folder}
        try:
            run = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=False, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return f"it took more than {PATIENCE:g} seconds"
    if run.returncode:
        return run.stderr.decode(errors="replace").strip()[-200:]
    return msgspec.json.decode(run.stdout.splitlines()[-1], type=Kept)
