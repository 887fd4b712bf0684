"""Leases: one writer at a time, and a previous holder writes nothing more, however late it wakes up."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.errors import LeaseHeld, LeaseLost, StoreError, UnknownConversation, WriterConflict
from antiphon.history import AgentHistory, HistoryStore, Lease, ModelInputEntry, SqliteStore
from antiphon.history.search_text import searchable_text

LONG, OVER_AT_ONCE = 60.0, 1e-6


def claimed(store: HistoryStore, conversation: str, holder: str = "one", seconds: float = LONG) -> Lease:
    lease = store.claim(conversation, holder, seconds)
    assert lease is not None
    return lease


def append_text(history: AgentHistory, text: str = "hello") -> None:
    history.append(ModelInputEntry.of(text))


def test_a_lease_is_held_by_one_until_it_is_given_back(any_store: HistoryStore) -> None:
    chat = any_store.create()
    lease = claimed(any_store, chat.id)
    assert (lease.conversation, lease.holder) == (chat.id, "one")
    assert timedelta(seconds=50) < lease.expires - datetime.now(UTC) < timedelta(seconds=70)
    assert any_store.current_lease(chat.id) == lease
    assert any_store.claim(chat.id, "two") is None
    assert any_store.claim(chat.id, "one") is None  # the same name does not prove the same holder
    any_store.release(lease)
    assert any_store.current_lease(chat.id) is None
    assert claimed(any_store, chat.id, "two").epoch > lease.epoch


def test_a_conversation_is_claimed_by_an_end_of_its_id(any_store: HistoryStore) -> None:
    chat = any_store.create()
    assert claimed(any_store, chat.id[-8:]).conversation == chat.id
    with pytest.raises(UnknownConversation):
        any_store.claim("unknown-id", "one")


def test_only_the_holder_writes(any_store: HistoryStore) -> None:
    chat = any_store.create()
    append_text(chat, "before")
    lease = claimed(any_store, chat.id, "worker 7")
    with pytest.raises(LeaseHeld, match="worker 7"):
        append_text(chat, "without a lease")
    mine = any_store.open(chat.id, lease=lease)
    append_text(mine, "with it")
    any_store.release(lease)
    with pytest.raises(LeaseLost):
        append_text(mine, "given back")
    with pytest.raises(WriterConflict):  # it has not seen what was written meanwhile
        append_text(chat, "again")
    chat.refresh()
    append_text(chat, "after")
    assert [searchable_text(entry) for entry in chat.entries] == [
        "before",
        "with it",
        "after",
    ]


def test_a_zombie_writes_nothing(any_store: HistoryStore) -> None:
    chat = any_store.create()
    lease = claimed(any_store, chat.id, "zombie", OVER_AT_ONCE)
    zombie = any_store.open(chat.id, lease=lease)
    append_text(zombie, "late, but not claimed yet")
    other = claimed(any_store, chat.id, "other")
    heir = any_store.open(chat.id, lease=other)
    for trial in (lambda: append_text(zombie), lambda: any_store.renew(lease), lambda: zombie.rollback(0)):
        with pytest.raises(LeaseLost, match=chat.id):
            trial()
    any_store.release(lease)  # not its lease any more: nothing happens
    assert any_store.current_lease(chat.id) == other
    append_text(heir, "mine")
    assert any_store.open(chat.id).version == 2
    assert zombie.version == 1  # what was refused is not in the memory either


def test_a_lease_is_renewed_from_now_on(any_store: HistoryStore) -> None:
    chat = any_store.create()
    lease = claimed(any_store, chat.id, seconds=OVER_AT_ONCE)
    assert any_store.current_lease(chat.id) is None
    renewed = any_store.renew(lease, LONG)
    assert renewed.epoch == lease.epoch
    assert renewed.expires > lease.expires
    assert any_store.claim(chat.id, "two") is None
    any_store.delete(chat.id)
    with pytest.raises(LeaseLost):
        any_store.renew(renewed)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_lease_duration_must_be_positive(any_store: HistoryStore, seconds: float) -> None:
    chat = any_store.create()
    with pytest.raises(StoreError, match="invalid lease duration"):
        any_store.claim(chat.id, "one", seconds)


def test_one_of_many_concurrent_claims_wins(any_store: HistoryStore) -> None:
    chat = any_store.create()
    start = threading.Barrier(8)
    got: list[Lease | None] = []

    def claim() -> None:
        start.wait()
        got.append(any_store.claim(chat.id, "other"))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([lease for lease in got if lease]) == 1


operations = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim briefly", "renew", "let it run out", "release", "append", "append without"]),
        st.integers(0, 2),
    ),
    max_size=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(operations)
def test_the_epoch_decides_after_any_events(any_store: HistoryStore, happening: list[tuple[str, int]]) -> None:
    """A model of one conversation: who may write, and so how long the log is, at every moment."""
    chat = any_store.create()
    epoch, held = 0, False
    leases: dict[int, Lease] = {}
    for what, who in happening:
        mine = leases.get(who)
        is_current = mine is not None and mine.epoch == epoch
        if what.startswith("claim"):
            lease = any_store.claim(chat.id, str(who), OVER_AT_ONCE if what == "claim briefly" else LONG)
            assert (lease is None) == held
            if lease is not None:
                assert lease.epoch > epoch
                leases[who], epoch, held = lease, lease.epoch, what == "claim"
        elif what == "append without":
            writer = any_store.open(chat.id)
            assert _goes_well(lambda writer=writer: append_text(writer), LeaseHeld) == (not held)
        elif mine is None:
            continue
        elif what == "append":
            writer = any_store.open(chat.id, lease=mine)
            assert _goes_well(lambda writer=writer: append_text(writer), LeaseLost) == is_current
        elif what == "release":
            any_store.release(mine)
            if is_current:
                epoch, held = epoch + 1, False
        else:
            seconds = LONG if what == "renew" else OVER_AT_ONCE
            assert (
                _goes_well(lambda mine=mine, seconds=seconds: any_store.renew(mine, seconds), LeaseLost) == is_current
            )
            held = held if not is_current else what == "renew"


def _goes_well(trial: object, refusal: type[Exception]) -> bool:
    assert callable(trial)
    try:
        trial()
    except refusal:
        return False
    return True


def test_a_tail_yields_each_entry_once(any_store: HistoryStore) -> None:
    chat = any_store.create()
    append_text(chat, "1")
    append_text(chat, "2")

    async def listen() -> list[str]:
        texts_read: list[str] = []
        async for entry in any_store.tail(chat.id, after=1):
            texts_read.append(searchable_text(entry))
            if len(texts_read) == 4:
                return texts_read
            # Another writer, as in another process.
            await asyncio.to_thread(lambda: append_text(any_store.open(chat.id), str(len(texts_read) + 2)))
        raise AssertionError("a tail does not end by itself")

    assert asyncio.run(asyncio.wait_for(listen(), 20)) == ["2", "3", "4", "5"]


def test_a_tail_ends_when_the_conversation_is_deleted(any_store: HistoryStore) -> None:
    chat = any_store.create()
    append_text(chat, "1")

    async def listen() -> None:
        entries = any_store.tail(chat.id)
        await anext(entries)
        await asyncio.to_thread(any_store.delete, chat.id)
        with pytest.raises(UnknownConversation, match=f"{chat.id} was deleted"):
            await anext(entries)

    asyncio.run(asyncio.wait_for(listen(), 20))


def test_older_program_with_the_file_open_reads_on_and_its_appends_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with SqliteStore(path) as store:
        chat = store.create("old")
        append_text(chat)
    _make_old(path)
    with SqliteStore(path, read_only=True) as reader:
        assert reader.current_lease(chat.id) is None
        assert reader.runs.list() == []
        assert reader.runs.counts() == {}
        assert reader.open(chat.id).version == 1
    old = sqlite3.connect(path, isolation_level=None)  # an older program, with the file open
    old.execute("INSERT INTO entries VALUES (?, 0, ?)", ((1 << 32) | 2, b'{"kind":"debug_log","sequence_number":2}'))
    with SqliteStore(path) as store:
        assert store.open(chat.id).version == 2
        claimed(store, chat.id)
        assert store.runs.counts() == {}
        assert len(old.execute("SELECT key, body FROM entries").fetchall()) == 2
        with pytest.raises(sqlite3.OperationalError, match="5 columns but 3 values"):
            old.execute(
                "INSERT INTO entries VALUES (?, 0, ?)", ((1 << 32) | 3, b'{"kind":"debug_log","sequence_number":3}')
            )
        assert store.open(chat.id).version == 2
    old.close()


def _make_old(path: Path) -> None:
    db = sqlite3.connect(path)
    for statement in (
        "DROP TABLE runs",
        "DROP TABLE lease_clock",
        "ALTER TABLE entries DROP COLUMN checksum",
        "ALTER TABLE entries DROP COLUMN digest",
        "DROP TABLE tombstones",
        "ALTER TABLE conversations DROP COLUMN imported",
        "DROP INDEX latest_touched",
        *(f"ALTER TABLE conversations DROP COLUMN {column}" for column in ("epoch", "holder", "held_until", "touched")),
        "PRAGMA user_version = 1",
    ):
        db.execute(statement)
    db.commit()
    db.close()
