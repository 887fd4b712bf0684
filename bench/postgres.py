"""`python -m bench.postgres [ADDRESS]`: what a PostgreSQL store costs: appends a second, what telling a listener adds, opening.

Without an address a server is started as the tests start theirs, but one that waits for the disk at every commit as a real one
does. Each figure is shown with a bare insert of the same bytes through the same driver, measured in turns with it, as the least
of several runs; CPU is of this process and, where the server is ours, of the server.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
from msgspec import Struct

from antiphon.history import encode_entry
from antiphon.history.location import open_store
from antiphon.history.postgres import PostgresStore
from bench.log import conversation

ROUNDS, RUNS, THREADS, SIZE = 300, 5, 8, 10_000


class Cost(Struct, frozen=True):
    """What a piece of work took, in seconds: by the clock, of our CPU, of the server's."""

    wall: float
    cpu: float
    server: float


class Meter:
    """Measures work in turns and keeps the least of each clock."""

    def __init__(self, server_seconds: Callable[[], float]) -> None:
        self._server_seconds = server_seconds

    def least(self, *works: Callable[[], None]) -> list[Cost]:
        runs = [[self._once(work) for work in works] for _ in range(RUNS)]
        return [
            Cost(min(c.wall for c in costs), min(c.cpu for c in costs), min(c.server for c in costs))
            for costs in zip(*runs, strict=True)
        ]

    def _once(self, work: Callable[[], None]) -> Cost:
        server, cpu, wall = self._server_seconds(), time.process_time(), time.perf_counter()
        work()
        return Cost(time.perf_counter() - wall, time.process_time() - cpu, self._server_seconds() - server)


def label(name: str, cost: Cost, number: int) -> str:
    return (
        f"{name:<44} {number / cost.wall:>8,.0f}/s  {cost.wall / number * 1e6:>7.0f} us"
        f"  CPU ours {cost.cpu / number * 1e6:>5.0f} us, server {cost.server / number * 1e6:>5.0f} us"
    )


def figures(address: str, server_seconds: Callable[[], float]) -> Iterator[str]:
    meter = Meter(server_seconds)
    entries = list(conversation(ROUNDS))
    bodies = [encode_entry(entry) for entry in entries]
    size = sum(map(len, bodies)) // len(bodies)
    with PostgresStore(address, max_connections=THREADS + 1) as store, contextlib.ExitStack() as bare:
        links = [
            bare.enter_context(psycopg.connect(address.partition("?")[0], autocommit=True)) for _ in range(THREADS)
        ]
        links[0].execute("DROP TABLE IF EXISTS bare_entries")
        links[0].execute(
            "CREATE TABLE bare_entries (number bigint, sequence int, body bytea, PRIMARY KEY (number, sequence))"
        )
        numbers = itertools.count()

        def ours() -> None:
            history = store.create()
            for entry in entries:
                history.append(entry)

        def theirs(link: psycopg.Connection[tuple[object, ...]]) -> None:
            number = next(numbers)
            for sequence, body in enumerate(bodies, 1):
                link.execute("INSERT INTO bare_entries VALUES (%s, %s, %s)", (number, sequence, body))

        def watched() -> None:
            history = store.create()
            with store._connections.connection() as db:
                db.execute(
                    "UPDATE conversations SET watched_until = clock_timestamp() + interval '1 minute' WHERE id = %s",
                    (history.id,),
                )
            for entry in entries:
                history.append(entry)

        yield f"entries of {size} bytes, {ROUNDS} a conversation; least of {RUNS} runs"
        one, bare_one, watched_one = meter.least(ours, lambda: theirs(links[0]), watched)
        yield label("append, one connection", one, ROUNDS)
        yield label("  the same with a listener", watched_one, ROUNDS)
        yield label("  a bare INSERT", bare_one, ROUNDS)
        many, bare_many, watched_many = meter.least(
            lambda: at_once([ours] * THREADS),
            lambda: at_once([lambda link=link: theirs(link) for link in links]),  # type: ignore[misc]
            lambda: at_once([watched] * THREADS),
        )
        yield label(f"append, {THREADS} threads", many, ROUNDS * THREADS)
        yield label("  the same with a listener for each", watched_many, ROUNDS * THREADS)
        yield label("  bare INSERTs", bare_many, ROUNDS * THREADS)
        history = store.create()
        for entry in conversation(SIZE):
            history.append(entry)
        opened, again = meter.least(lambda: _opened(store, history.id), lambda: _looked(store, history.id))
        yield f"open of {SIZE:,} entries: {opened.wall * 1e3:.0f} ms, CPU ours {opened.cpu * 1e3:.0f} ms"
        yield f"info of it: {again.wall * 1e3:.2f} ms"


def _opened(store: PostgresStore, conversation_id: str) -> None:
    assert store.open(conversation_id).version == SIZE


def _looked(store: PostgresStore, conversation_id: str) -> None:
    assert store.info(conversation_id).version == SIZE


def at_once(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(arguments: list[str]) -> None:
    if arguments:
        with open_store(arguments[0]):
            pass
        for line in figures(arguments[0], lambda: 0.0):
            print(line, flush=True)
        return
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from support.postgres_server import running

    with running(fsync="on", full_page_writes="on", shared_buffers="128MB", max_wal_size="1GB") as server:
        for line in figures(server.address(), server.cpu_seconds):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
