"""`python -m bench.scale [PLACE]`: what a store with many conversations costs: to append, open, list, claim and submit.

Conversations of twelve entries (two turns with a call each) are made by the thousand, ten minutes apart as if people had had
them for a year, and the same things measured at each size: what must not grow with the number of conversations, and what does.
PLACE is a folder for an SQLite file (a temporary one by default), or `postgresql://…` (conversations are added to it).
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import structs
from msgspec.json import encode

from antiphon.history import (
    HistoryEntry,
    HistoryStore,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.history.location import is_postgres_url, open_store
from antiphon.parts import ToolCallRequest, ToolCallResult

BEGAN = datetime(2025, 10, 1, tzinfo=UTC)
SIZES = (1_000, 10_000, 50_000)
TRIES = 30


def turn(number: int) -> Iterator[HistoryEntry]:
    """A question, a call with its result, an answer; about a kilobyte of words."""
    call = ToolCallRequest("look", f"call_{number}", '{"city": "Oslo"}')
    yield ModelInputEntry.of("How is the weather in Oslo, and what should I wear? " * 4)
    yield ModelOutputEntry.of("Let me look.", call)
    yield ToolCallStartedEntry("look", call.tool_call_id, f"key-{number}")
    yield ToolCallResultsEntry((ToolCallResult.of(call, "Rain, 7 °C, wind from the west. " * 8),))
    yield ModelOutputEntry.of("It rains, and it is cold: take a coat and an umbrella. " * 4)
    yield ModelInputEntry.of("Thank you.")


def template() -> list[bytes]:
    """The lines of a conversation as it is exported, to be imported again and again."""
    with SqliteStore(":memory:") as store:
        history = store.create("Weather")
        for number in range(2):
            for entry in turn(number):
                history.append(structs.replace(entry, timestamp=BEGAN))
        head, *entries = store.export_lines(history.id)
        made = encode(store.info(history.id).created)
    return [head.replace(made, encode(BEGAN)), *entries]


def at_its_time(lines: list[bytes], number: int) -> list[bytes]:
    """The lines of a conversation with the time of the one of that number in them."""
    when = encode(BEGAN + number * timedelta(minutes=10))
    return [line.replace(encode(BEGAN), when) for line in lines]


def typical(work: Callable[[], object]) -> float:
    """The median of some tries, in milliseconds of wall time: waiting for the disk or the server belongs to it."""
    taken = []
    for _ in range(TRIES):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return 1000 * sorted(taken)[TRIES // 2]


def measured(store: HistoryStore, ids: list[str]) -> dict[str, float]:
    some = random.Random(7)
    open_history = store.open(some.choice(ids))

    def claimed() -> None:
        lease = store.claim(some.choice(ids), "bench")
        assert lease is not None
        store.release(lease)

    return {
        "append": typical(lambda: open_history.append(ModelInputEntry.of("And tomorrow?"))),
        "open": typical(lambda: store.open(some.choice(ids))),
        "claim and release": typical(claimed),
        "submit a run": typical(lambda: store.runs.submit(ModelInputEntry.of("Go."), kind="bench")),
        "claim a run": typical(lambda: store.runs.claim("bench", 60, kinds={"bench": 0})),
        "list the latest 50": typical(lambda: store.list(limit=50)),
        "open the last": typical(lambda: store.open("last")),
        "count": typical(store.count),
    }


def main(given: str) -> None:
    with tempfile.TemporaryDirectory(dir=None if is_postgres_url(given) else given or None) as folder:
        place = given if is_postgres_url(given) else str(Path(folder) / "scale.db")
        lines = template()
        ids: list[str] = []
        with open_store(place) as store:
            for size in SIZES:
                began = time.perf_counter()
                while len(ids) < size:
                    ids.append(store.import_lines(at_its_time(lines, len(ids)), as_new=True).id)
                made = time.perf_counter() - began
                figures = "  ".join(f"{name} {cost:.2f}" for name, cost in measured(store, ids).items())
                print(f"{size:>7,} conversations ({made:.0f} s to make); ms: {figures}", flush=True)
        if not is_postgres_url(given):
            size_on_disk = sum(os.path.getsize(Path(folder) / name) for name in os.listdir(folder))
            payload = sum(map(len, lines)) * SIZES[-1]
            print(f"{size_on_disk / 2**20:.0f} MiB on disk for {payload / 2**20:.0f} MiB of entries")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
