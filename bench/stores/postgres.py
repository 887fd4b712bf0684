"""`python -m bench postgres [ADDRESS]`: what a PostgreSQL store costs: appends per second, the cost of a listener, opening.

Without an address a server is started as in the tests, but with fsync on. Each figure is shown with a bare INSERT of the same
bytes through the same driver, run alternately, as the least of several runs. CPU is that of this process and of a server that was
started here.
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
from antiphon.history.sql.postgres import PostgresStore
from bench.library.log import conversation

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

        def with_listener() -> None:
            history = store.create()
            with store._connections.connection() as db:
                db.execute(
                    "UPDATE conversations SET watched_until = clock_timestamp() + interval '1 minute' WHERE id = %s",
                    (history.id,),
                )
            for entry in entries:
                history.append(entry)

        yield f"entries of {size} bytes, {ROUNDS} a conversation; least of {RUNS} runs"
        one, bare_one, watched_one = meter.least(ours, lambda: theirs(links[0]), with_listener)
        yield label("append, one connection", one, ROUNDS)
        yield label("  the same with a listener", watched_one, ROUNDS)
        yield label("  a bare INSERT", bare_one, ROUNDS)
        many, bare_many, watched_many = meter.least(
            lambda: run_together([ours] * THREADS),
            lambda: run_together([lambda link=link: theirs(link) for link in links]),  # type: ignore[misc]
            lambda: run_together([with_listener] * THREADS),
        )
        yield label(f"append, {THREADS} threads", many, ROUNDS * THREADS)
        yield label("  the same with a listener for each", watched_many, ROUNDS * THREADS)
        yield label("  bare INSERTs", bare_many, ROUNDS * THREADS)
        history = store.create()
        for entry in conversation(SIZE):
            history.append(entry)
        opened, again = meter.least(lambda: _open(store, history.id), lambda: _read_info(store, history.id))
        yield f"open of {SIZE:,} entries: {opened.wall * 1e3:.0f} ms, CPU ours {opened.cpu * 1e3:.0f} ms"
        yield f"info of it: {again.wall * 1e3:.2f} ms"


def _open(store: PostgresStore, conversation_id: str) -> None:
    assert store.open(conversation_id).version == SIZE


def _read_info(store: PostgresStore, conversation_id: str) -> None:
    assert store.info(conversation_id).version == SIZE


def run_together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(arguments: list[str]) -> int:
    if arguments:
        with open_store(arguments[0]):
            pass
        for line in figures(arguments[0], lambda: 0.0):
            print(line, flush=True)
        return 0
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from support.postgres_server import running

    with running(fsync="on", full_page_writes="on", shared_buffers="128MB", max_wal_size="1GB") as server:
        for line in figures(server.address(), server.cpu_seconds):
            print(line, flush=True)
    return 0
