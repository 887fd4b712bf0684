"""Storage on disk: bytes per byte of text, CPU time per turn, and reading everything back; 400 turns.

The file is measured when it is closed, with everything its library stores there: versions, indexes, what forks and search need.
Ours makes each entry durable before `append` returns; the others have their default settings. The floor is one table with one row
per text.
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
from bench.library.loop import PEERS_PYTHON, ROOT
from bench.measure.figures import Figure, Growth, Timing, not_measured
from bench.workload.chat_turns import TURNS, payload, turn

RUNS, GROWTH_RUNS = 5, 2
EDGE = 50  # the first and the last turns, whose cost is compared
SIZES = (40, 400, 4_000)
TIMEOUT_SECONDS = 240.0
PROMISED = 1.3
PEERS = ("openai-agents", "llm", "agno", "langgraph")
FLOOR = "one row for each text"


class StoredConversation(Struct, frozen=True):
    """A stored conversation: the CPU time at the end of each turn, the CPU seconds of reading it back, and its size."""

    timestamps: list[float]
    read_seconds: float
    bytes: int
    version: str = ""

    def microseconds_per_turn(self, first: int, last: int) -> float:
        """CPU microseconds per turn."""
        return (self.timestamps[last] - self.timestamps[first]) / (last - first) * 1e6


def figures() -> Iterator[Figure | Growth | str]:
    kept: dict[str, list[StoredConversation]] = {}
    reasons: dict[str, str] = {}
    for _ in range(RUNS):
        for name in ("ours", FLOOR, *PEERS):
            if name in reasons:
                continue
            answer = run_peer(name, TURNS) if name in PEERS else run_here(name, TURNS)
            if isinstance(answer, str):
                reasons[name] = answer
            else:
                kept.setdefault(name, []).append(answer)
    yield from compare_with(kept, reasons)
    yield from growths()


def compare_with(kept: dict[str, list[StoredConversation]], reasons: dict[str, str]) -> Iterator[Figure | str]:
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
            ("storing a turn, the first 50", lambda run: run.microseconds_per_turn(0, EDGE)),
            ("storing a turn, the last 50", lambda run: run.microseconds_per_turn(TURNS - EDGE, TURNS)),
            (f"reading {TURNS} turns back", lambda run: run.read_seconds * 1e6),
        ):
            yield Figure.of(label, timing(ours, cost), timing(runs, cost), "us", at_most=at_most, against=against)
    for name, reason in reasons.items():
        yield not_measured(f"on disk, {name}", reason)


def timing(runs: Sequence[StoredConversation], cost: Callable[[StoredConversation], float]) -> Timing:
    return Timing.of([cost(run) for run in runs])


def growths() -> Iterator[Growth]:
    """Ours with ten and a hundred times the turns."""
    runs = {size: [run_here("ours", size) for _ in range(GROWTH_RUNS)] for size in SIZES}
    for label, cost in (
        ("storing turns", lambda run: (run.timestamps[-1] - run.timestamps[0]) * 1e3),
        ("reading turns back", lambda run: run.read_seconds * 1e3),
    ):
        yield Growth.of(label, "turns", {size: timing(kept, cost) for size, kept in runs.items()}, "ms")
    sizes = {size: timing(kept, lambda run: run.bytes / 1e3) for size, kept in runs.items()}
    yield Growth.of("bytes on disk", "turns", sizes, "KB")


def run_here(name: str, turns: int) -> StoredConversation:
    """Our store or the floor, in this process."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        path = Path(folder) / "kept.db"
        timestamps, read_back = (store_ours if name == "ours" else store_bare)(path, turns)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        started = time.process_time()
        texts = read_back()
        read_seconds = time.process_time() - started
    assert texts == [text for number in range(turns) for text in turn(number)]
    return StoredConversation(timestamps, read_seconds, size)


def store_ours(path: Path, turns: int) -> tuple[list[float], Callable[[], list[str]]]:
    with SqliteStore(path) as store:
        history, timestamps = store.create(), [time.process_time()]
        for number in range(turns):
            question, answer = turn(number)
            history.append(ModelInputEntry.of(question))
            history.append(ModelOutputEntry.of(answer))
            timestamps.append(time.process_time())
        name = history.id

    def read_back() -> list[str]:
        with SqliteStore(path) as store:
            return [text_of(entry.content) for entry in store.open(name).entries]  # type: ignore[attr-defined]

    return timestamps, read_back


def store_bare(path: Path, turns: int) -> tuple[list[float], Callable[[], list[str]]]:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE texts (key INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    timestamps = [time.process_time()]
    for number in range(turns):
        for text in turn(number):
            database.execute("INSERT INTO texts (text) VALUES (?)", (text,))
        timestamps.append(time.process_time())
    database.close()

    def read_back() -> list[str]:
        database = sqlite3.connect(path)
        texts = [text for (text,) in database.execute("SELECT text FROM texts ORDER BY key")]
        database.close()
        return texts

    return timestamps, read_back


def run_peer(name: str, turns: int) -> StoredConversation | str:
    """The result of another library, or why there is none."""
    if not PEERS_PYTHON.exists():
        return "`make bench` sets up its environment"
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        place = Path(folder) / "kept"
        place.mkdir()
        command = [str(PEERS_PYTHON), "-m", "bench.library.disk_peers", name, str(place / "kept.db"), str(turns)]
        environ = {"PATH": os.defpath, "HOME": folder}
        try:
            run = subprocess.run(
                command, cwd=ROOT, env=environ, capture_output=True, check=False, timeout=TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"it took more than {TIMEOUT_SECONDS:g} seconds"
    if run.returncode:
        return run.stderr.decode(errors="replace").strip()[-200:]
    return msgspec.json.decode(run.stdout.splitlines()[-1], type=StoredConversation)
