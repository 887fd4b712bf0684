"""`python -m bench scale [PLACE]`: what a store with many conversations costs: append, open, list, claim, submit.

Conversations of twelve entries (two turns with one call each) are imported, ten minutes apart, and the same operations are
timed at each size: some must not grow with the number of conversations. PLACE is a folder for an SQLite file (default: a
temporary one), or `postgresql://…`, to which conversations are added.
"""

from __future__ import annotations

import os
import random
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
    """The lines of an exported conversation, which are imported many times."""
    with SqliteStore(":memory:") as store:
        history = store.create("Weather")
        for number in range(2):
            for entry in turn(number):
                history.append(structs.replace(entry, timestamp=BEGAN))
        head, *entries = store.export_lines(history.id)
        made = encode(store.info(history.id).created)
    return [head.replace(made, encode(BEGAN)), *entries]


def shift_times(lines: list[bytes], number: int) -> list[bytes]:
    """The lines with the time of the conversation of that number."""
    when = encode(BEGAN + number * timedelta(minutes=10))
    return [line.replace(encode(BEGAN), when) for line in lines]


def median_milliseconds(work: Callable[[], object]) -> float:
    """The median of several tries, in wall time: waiting for the disk or the server counts."""
    seconds = []
    for _ in range(TRIES):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return 1000 * sorted(seconds)[TRIES // 2]


def measure(store: HistoryStore, ids: list[str]) -> dict[str, float]:
    some = random.Random(7)
    open_history = store.open(some.choice(ids))

    def claim() -> None:
        lease = store.claim(some.choice(ids), "bench")
        assert lease is not None
        store.release(lease)

    return {
        "append": median_milliseconds(lambda: open_history.append(ModelInputEntry.of("And tomorrow?"))),
        "open": median_milliseconds(lambda: store.open(some.choice(ids))),
        "claim and release": median_milliseconds(claim),
        "submit a run": median_milliseconds(lambda: store.runs.submit(ModelInputEntry.of("Go."), kind="bench")),
        "claim a run": median_milliseconds(lambda: store.runs.claim("bench", 60, kinds={"bench": 0})),
        "list the latest 50": median_milliseconds(lambda: store.list(limit=50)),
        "open the last": median_milliseconds(lambda: store.open("last")),
        "count": median_milliseconds(store.count),
    }


def main(arguments: list[str]) -> int:
    given = arguments[0] if arguments else ""
    with tempfile.TemporaryDirectory(dir=None if is_postgres_url(given) else given or None) as folder:
        place = given if is_postgres_url(given) else str(Path(folder) / "scale.db")
        lines = template()
        ids: list[str] = []
        with open_store(place) as store:
            for size in SIZES:
                began = time.perf_counter()
                while len(ids) < size:
                    ids.append(store.import_lines(shift_times(lines, len(ids)), as_new=True).id)
                made = time.perf_counter() - began
                figures = "  ".join(f"{name} {cost:.2f}" for name, cost in measure(store, ids).items())
                print(f"{size:>7,} conversations ({made:.0f} s to make); ms: {figures}", flush=True)
        if not is_postgres_url(given):
            size_on_disk = sum(os.path.getsize(Path(folder) / name) for name in os.listdir(folder))
            payload = sum(map(len, lines)) * SIZES[-1]
            print(f"{size_on_disk / 2**20:.0f} MiB on disk for {payload / 2**20:.0f} MiB of entries")

    return 0
