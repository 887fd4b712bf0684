"""The log: appending, opening, memory."""

from __future__ import annotations

import sqlite3
import tempfile
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from antiphon.history import (
    AgentHistory,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallResultsEntry,
    encode_entry,
)
from antiphon.history.codec import chain
from antiphon.history.entries import KnownEntry
from antiphon.parts import ToolCallRequest, ToolCallResult
from bench.measure.figures import Figure, compare

SIZE = 10_000


def conversation(length: int) -> Iterator[HistoryEntry]:
    """A tool conversation: question, call, result, answer, and so on."""
    for number in range(length):
        call = ToolCallRequest("search_web", f"call_{number // 4}", '{"query": "rain in Oslo", "limit": 5}')
        match number % 4:
            case 0:
                yield ModelInputEntry.of(f"Question {number}: is it raining in Oslo, and should I take an umbrella?")
            case 1:
                yield ModelOutputEntry.of("Let me look.", call)
            case 2:
                yield ToolCallResultsEntry((ToolCallResult.of(call, "Rain, 7 °C, wind from the west. " * 6),))
            case _:
                yield ModelOutputEntry.of("Yes. It rains, it is 7 °C, and an umbrella would be a good idea. " * 2)


def history_of(length: int) -> AgentHistory:
    history = AgentHistory()
    for entry in conversation(length):
        history.append(entry)
    return history


def figures() -> Iterator[Figure]:
    yield flat_append()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        yield from durable_append(Path(folder))
        yield opening(Path(folder))
    yield memory()


def flat_append() -> Figure:
    """An append to a long history costs what an append to a short one does."""
    rounds = 500
    entry = next(conversation(1))
    short_histories = [history_of(10) for _ in range(30)]

    def append_to(history: AgentHistory) -> None:
        for _ in range(rounds):
            history.append(entry)

    return compare(
        "append at 10,000 entries",
        lambda: append_to(LONG),
        lambda: append_to(short_histories.pop()),
        runs=30,
        scale=1e6 / rounds,
        unit="us",
        at_most=1.3,
        against="append at 10 entries",
    )


LONG = history_of(SIZE)


def durable_append(folder: Path) -> Iterator[Figure]:
    """Against a bare insert of the same rows, which are made beforehand, into a table of the same shape, equally durable."""
    rounds = 400
    entries = list(conversation(rounds))
    bodies = [encode_entry(entry) for entry in LONG.entries[:rounds]]
    rows = [(1, body, zlib.crc32(body), digest) for body, digest in zip(bodies, chain(bodies), strict=True)]
    store = SqliteStore(folder / "ours.db")
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute(
        "CREATE TABLE entries (key INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL, checksum INTEGER, digest BLOB)"
    )

    def ours() -> None:
        history = store.create()
        for entry in entries:
            history.append(entry)
        assert history.version == rounds

    def theirs() -> None:
        for row in rows:
            bare.execute("INSERT INTO entries (at, body, checksum, digest) VALUES (?, ?, ?, ?)", row)

    for label, clock in (("durable append", time.perf_counter), ("durable append, CPU", time.process_time)):
        yield compare(
            label,
            ours,
            theirs,
            runs=25,
            scale=1e6 / rounds,
            unit="us",
            at_most=1.5,
            against="a bare SQLite insert",
            clock=clock,
        )
    yield flat_durable_append(store)
    bare.close()
    store.close()


def flat_durable_append(store: SqliteStore) -> Figure:
    """An append to a long stored conversation costs what one to a short one does."""
    rounds = 200
    entries = list(conversation(rounds))
    long = store.create()
    for entry in conversation(SIZE):
        long.append(entry)

    def append_to(history: AgentHistory) -> None:
        for entry in entries:
            history.append(entry)

    return compare(
        "durable append at 10,000 entries, CPU",
        lambda: append_to(long),
        lambda: append_to(store.create()),
        runs=9,
        scale=1e6 / rounds,
        unit="us",
        at_most=1.3,
        against="durable append at the beginning",
    )


def opening(folder: Path) -> Figure:
    """Against reading the same rows and decoding them by hand into the same types."""
    with SqliteStore(folder / "open.db") as store:
        lines = [
            b'{"antiphon":"conversation","schema":1,"id":"01m7fe1j33cp14edec7ghntwac","title":"","created":"2026-01-01T00:00:00Z",'
            + f'"entries":{SIZE}}}'.encode()
        ]
        lines += [encode_entry(entry) for entry in LONG.entries[:SIZE]]
        store.import_lines(lines)
    decoder = msgspec.json.Decoder(KnownEntry)

    def ours() -> None:
        with SqliteStore(folder / "open.db") as store:
            assert store.open("01m7fe1j33cp14edec7ghntwac").version == SIZE

    def theirs() -> None:
        db = sqlite3.connect(folder / "open.db")
        entries = [decoder.decode(body) for (body,) in db.execute("SELECT body FROM entries ORDER BY key")]
        db.close()
        assert len(entries) == SIZE

    return compare(
        "opening 10,000 entries",
        ours,
        theirs,
        runs=7,
        scale=1e3,
        unit="ms",
        at_most=2.0,
        against="reading and decoding the rows by hand",
    )


def memory() -> Figure:
    """What an entry takes in memory, against the JSON it is stored as."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    history = history_of(SIZE)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    stored = sum(len(encode_entry(entry)) for entry in history.entries)
    return Figure("memory per entry", taken / SIZE, stored / SIZE, "bytes", None, "its stored form")
