"""Leases in a file while the clock of the machine is set: they end neither early nor late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.errors import LeaseHeld, LeaseLost
from antiphon.history import Lease, ModelInputEntry, SqliteStore
from antiphon.history.sql import lease_clock
from support.store_rows import table

HOURS = 2 * 3600
needs_boot_id = pytest.mark.skipif(
    not lease_clock.boot_id(), reason="this kernel gives no boot id; lease time is wall time"
)


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the wall clock forward or back by some seconds, as this process sees it."""
    seconds = [0.0]
    time_ns, wall = time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: time_ns() + round(seconds[0] * 1e9))
    monkeypatch.setattr(time, "time", lambda: wall() + seconds[0])

    def stepped(by: float) -> None:
        seconds[0] += by

    return stepped


def claimed(store: SqliteStore, conversation: str, holder: str = "one", seconds: float = 30.0) -> Lease:
    lease = store.claim(conversation, holder, seconds)
    assert lease is not None
    return lease


def expire(store: SqliteStore, lease: Lease) -> None:
    """Let a lease run out, as if its holder had died."""
    store.renew(lease, 1e-6)


@needs_boot_id
@pytest.mark.parametrize("by", [HOURS, -HOURS])
def test_a_clock_step_lets_no_second_writer_in(tmp_path: Path, step: Callable[[float], None], by: float) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        chat = store.create()
        lease = claimed(store, chat.id)
        run = store.runs.submit(None, kind="k", conversation=chat.id)
        step(by)
        with SqliteStore(store.path) as other:  # a process that starts after the step
            assert other.claim(chat.id, "two") is None
            assert other.current_lease(chat.id) is not None
            assert other.runs.claim("two", 30.0, kinds={"k": 0}) is None
            assert other.runs.get(run.id).display_state == "running"
            with pytest.raises(LeaseHeld):
                other.open(chat.id).append(ModelInputEntry.of("without a lease"))
        renewed = store.renew(lease)
        store.open(chat.id, lease=renewed).append(ModelInputEntry.of("with it"))


@needs_boot_id
@pytest.mark.parametrize("by", [HOURS, -HOURS])
def test_an_expired_lease_can_be_claimed_after_a_clock_step(
    tmp_path: Path, step: Callable[[float], None], by: float
) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        chat = store.create()
        dead = claimed(store, chat.id, "dead")
        step(by)
        expire(store, dead)
        assert store.current_lease(chat.id) is None
        with SqliteStore(store.path) as other:
            heir = claimed(other, chat.id, "heir")
            assert heir.epoch > dead.epoch
            other.open(chat.id, lease=heir).append(ModelInputEntry.of("after it"))
        with pytest.raises(LeaseLost):
            store.open(chat.id, lease=dead).append(ModelInputEntry.of("too late"))


@needs_boot_id
def test_the_end_of_a_lease_is_shown_as_wall_time(tmp_path: Path, step: Callable[[float], None]) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        chat = store.create()
        before = claimed(store, chat.id)
        step(HOURS)
        after = store.current_lease(chat.id)
        assert after is not None
        assert (after.expires - before.expires).total_seconds() == HOURS


@needs_boot_id
@pytest.mark.parametrize("by", [0, HOURS, -HOURS])
def test_leases_end_with_the_boot(
    tmp_path: Path, step: Callable[[float], None], by: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock shows after a restart of the machine: no holder of before is alive."""
    with SqliteStore(tmp_path / "chats.db") as store:
        chat, other = store.create(), store.create()
        lost = claimed(store, chat.id, seconds=3600.0)
        claimed(store, other.id, seconds=3600.0)
        assert store.claim(chat.id, "two") is None
    step(by)
    since_boot = lease_clock.since_boot
    monkeypatch.setattr(lease_clock, "boot_id", lambda: "another boot")
    monkeypatch.setattr(lease_clock, "since_boot", lambda: since_boot() - 10_000_000)
    with SqliteStore(tmp_path / "chats.db", read_only=True) as reader:
        assert reader.current_lease(chat.id) is None
    with SqliteStore(tmp_path / "chats.db") as store, SqliteStore(tmp_path / "chats.db") as second:
        assert second.current_lease(other.id) is None
        heir = claimed(store, chat.id, "heir")
        assert heir.epoch > lost.epoch
        assert second.claim(chat.id, "two") is None
        with pytest.raises(LeaseLost):
            store.open(chat.id, lease=lost).append(ModelInputEntry.of("from before"))
        second.open(other.id).append(ModelInputEntry.of("not leased"))
        assert table(store, "SELECT boot FROM lease_clock") == [("another boot",)]


@needs_boot_id
def test_processes_agree_on_the_time_though_they_see_another_clock(
    tmp_path: Path, step: Callable[[float], None]
) -> None:
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        chat = store.create()
        claimed(store, chat.id)
    process = os.fork()
    if process == 0:
        try:
            step(HOURS)
            with SqliteStore(path) as store:
                os._exit(0 if store.claim(chat.id, "two") is None else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def test_without_a_boot_id_leases_go_by_the_wall_clock(
    tmp_path: Path, step: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_clock, "boot_id", lambda: "")
    with SqliteStore(tmp_path / "chats.db") as store:
        chat = store.create()
        claimed(store, chat.id)
        assert store.claim(chat.id, "two") is None
        step(60.0)
        claimed(store, chat.id, "two")
        assert table(store, "SELECT count(*) FROM lease_clock") == [(0,)]
