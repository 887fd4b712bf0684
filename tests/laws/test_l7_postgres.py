"""L7 over PostgreSQL: every acknowledged entry is there after killing the writer or the server itself.

As with the file, writers are real processes that tell each entry whose append returned. The server is dropped as a crash would
drop it, and killed with all its processes, and started again on what it left.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time

import pytest

from antiphon.errors import StoreError, WriterConflict
from antiphon.history import ModelInputEntry
from antiphon.history.location import open_store
from antiphon.history.search_text import searchable_text
from antiphon.history.sql.postgres import PostgresStore
from laws.test_l7_crash import check_whole, do_everything, says_the_same, write_on
from support.child_process import in_a_process, reported_numbers
from support.examples import scaled
from support.postgres_server import PostgresServer
from support.store_rows import rows, table

KILLS = scaled(12)
CRASHES = scaled(2)
WRITERS = 3


def test_kill_nine_of_the_writer_loses_no_acknowledged_entry(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(7)
    with open_store(postgres) as store:
        conversation = store.create().id

    version = torn = 0
    with open_store(postgres) as store:
        for round_ in range(KILLS):
            process, pipe = in_a_process(lambda pipe: write_on(open_store(postgres).open(conversation), pipe))
            first = os.read(pipe, 4) if round_ % 2 else b""  # every other one is killed when it surely writes
            time.sleep(chance.uniform(0, 0.03))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            last = max(reported_numbers(pipe), default=int.from_bytes(first, "little") or version)
            _wait_for_last_writer(store)
            found = store.open(conversation)
            # At most one more: the entry that was written, and whose acknowledgement was cut off.
            assert last <= found.version <= last + 1
            for entry in found.entries[version:]:
                assert says_the_same(entry, entry.sequence_number)
            torn += found.version - last
            version = found.version
    assert version >= KILLS // 2, "the writers hardly wrote"
    with capsys.disabled():
        print(f"\n  L7: {KILLS} kills over PostgreSQL, {version} entries, none lost, {torn} not acknowledged ", end="")


def _wait_for_last_writer(store: object) -> None:
    """The server finishes the statement of a client that was killed; what it wrote may come a moment after the kill."""
    assert isinstance(store, PostgresStore)
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'antiphon' AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    deadline = time.monotonic() + 10
    while table(store, busy) != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("is_killed", [False, True], ids=["immediate shutdown", "kill -9"])
def test_a_server_that_crashes_has_every_acknowledged_entry(
    postgres_server: PostgresServer, postgres: str, is_killed: bool
) -> None:
    """Writers continue through crash after crash: they get an error, look what is there, and write the next."""
    chance = random.Random(11)
    with open_store(postgres) as store:
        conversations = [store.create().id for _ in range(WRITERS)]

    def write_through(conversation: str, pipe: int) -> None:
        history = open_store(postgres, timeout=5).open(conversation)
        while True:
            try:
                stored = history.append(ModelInputEntry.of(f"entry {history.version + 1}"))
                os.write(pipe, struct.pack("<I", stored.sequence_number))
            except (StoreError, WriterConflict):
                _look_again(history.refresh)

    writers = [in_a_process(lambda pipe, which=which: write_through(which, pipe)) for which in conversations]  # type: ignore[misc]
    for _, pipe in writers:
        os.read(pipe, 4)
    for _ in range(CRASHES):
        time.sleep(chance.uniform(0.02, 0.15))
        if is_killed:
            postgres_server.kill()
        else:
            postgres_server.stop(signal.SIGQUIT)
        postgres_server.start()
    with open_store(postgres) as store:
        before = rows(store, "entries")
        deadline = time.monotonic() + 20
        while rows(store, "entries") < before + 30 and time.monotonic() < deadline:
            time.sleep(0.02)
    for process, _ in writers:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    written = 0
    with open_store(postgres) as store:
        for conversation, (_, pipe) in zip(conversations, writers, strict=True):
            acknowledged = reported_numbers(pipe)
            found = store.open(conversation)
            assert [searchable_text(entry) for entry in found.entries] == [
                f"entry {n}" for n in range(1, found.version + 1)
            ]
            assert len(acknowledged) == len(set(acknowledged)), "a number was given twice"
            assert max(acknowledged) <= found.version, "acknowledged entries are gone"
            written += len(acknowledged)
    assert written > 10 * WRITERS, "the writers hardly wrote"


def _look_again(look: object) -> None:
    assert callable(look)
    while True:
        try:
            look()
        except StoreError:
            time.sleep(0.01)
        else:
            return


def test_kill_nine_during_any_operation_is_all_or_nothing(postgres: str) -> None:
    chance = random.Random(13)
    with open_store(postgres):
        pass

    with open_store(postgres) as store:
        for _ in range(KILLS):
            process, pipe = in_a_process(lambda pipe: do_everything(open_store(postgres), pipe))
            os.read(pipe, 4)
            time.sleep(chance.uniform(0, 0.08))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(pipe)
            _wait_for_last_writer(store)
            check_whole(store)
        unkept = "SELECT count(*) FROM attachment_uses LEFT JOIN attachments USING (name) WHERE data IS NULL"
        assert table(store, unkept) == [(0,)]
        assert store.count() >= KILLS
