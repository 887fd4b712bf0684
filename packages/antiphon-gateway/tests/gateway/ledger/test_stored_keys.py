"""Client keys in the operator database: in SQLite and PostgreSQL, from several processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from antiphon.errors import StoreError
from antiphon.history.sql.database import Database
from antiphon_gateway.config.references import key_digest
from antiphon_gateway.config.settings import KeyRules
from antiphon_gateway.ledger.audit import Change, read_audit
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.stored_keys import NameTaken, StoredKey, StoredKeys, UnknownKey, deleted, rotated


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return str(tmp_path / "ledger.db") if is_sqlite else request.getfixturevalue("postgres")


@pytest.fixture
def databases(address: str) -> Iterator[list[OperatorDatabase]]:
    """The database as two processes have it open."""
    opened = [OperatorDatabase(address) for _ in range(2)]
    yield opened
    for database in opened:
        database.close()


def change(action: str, target: str = "a") -> Change:
    return Change(operator="operator", peer="127.0.0.1", action=action, target=target)


def created(key: StoredKey) -> Change:
    return change("create key", key.name)


def digest(secret: str) -> bytes:
    return key_digest("env:K", {"K": secret})


def test_a_change_is_seen_by_the_process_that_makes_it_at_once_and_by_others_when_they_refresh(
    databases: list[OperatorDatabase],
) -> None:
    one, two = map(StoredKeys, databases)

    async def run() -> None:
        assert one.is_empty
        key, secret = await one.create("a", KeyRules(tokens_per_day=5, models=("gpt-*",)), created)
        found = one.find(digest(secret))
        assert found is not None
        assert (found.name, found.tokens_per_day, found.models) == ("a", 5, ("gpt-*",))
        assert two.find(digest(secret)) is None
        await two.refresh()
        assert two.find(digest(secret)) == found == two.named("a")
        off = await two.change(key.id, lambda known: structs.replace(known, is_disabled=True), change("disable key"))
        assert off.is_disabled
        assert off.changed_at >= key.changed_at
        await one.refresh()
        seen = one.find(digest(secret))
        assert seen is not None
        assert seen.refusal() == "this API key is disabled"
        await one.change(key.id, deleted, change("delete key"))
        await two.refresh()
        for keys in (one, two):
            assert keys.is_empty
            assert keys.find(digest(secret)) is None
            with pytest.raises(UnknownKey):
                keys.record("a")
        again, _ = await two.create("a", KeyRules(), created)
        assert again.id != key.id

    asyncio.run(run())


def test_a_change_that_is_slower_than_a_refresh_does_not_undo_a_later_one(
    databases: list[OperatorDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = map(StoredKeys, databases)

    async def play() -> None:
        key, secret = await one.create("a", KeyRules(), created)
        await two.refresh()
        run = databases[0].run

        async def run_slowly(call: Callable[[Database], object]) -> object:
            """The change is made; before this process continues, another one disables the key, and a refresh reads it."""
            monkeypatch.setattr(databases[0], "run", run)
            result = await run(call)
            await two.change(key.id, lambda known: structs.replace(known, is_disabled=True), change("disable key"))
            await one.refresh()
            return result

        monkeypatch.setattr(databases[0], "run", run_slowly)
        await one.change(
            key.id, lambda known: structs.replace(known, rules=KeyRules(strict=True)), change("change key")
        )
        seen = one.find(digest(secret))
        assert seen is not None
        assert seen.refusal() == "this API key is disabled"
        await one.refresh()
        assert one.named("a") == two.named("a")

    asyncio.run(play())


def test_a_rotated_key_is_accepted_until_its_grace_ends(databases: list[OperatorDatabase]) -> None:
    one, two = map(StoredKeys, databases)

    async def run() -> None:
        key, first = await one.create("a", KeyRules(), created)
        await one.change(key.id, lambda known: rotated(known, "second", 3600), change("rotate key"))
        await two.refresh()
        for keys in (one, two):
            old, new = keys.find(digest(first)), keys.find(digest("second"))
            assert old is not None
            assert new is not None
            assert new.expires is None
            assert old.expires is not None
            assert timedelta(minutes=59) < old.expires - datetime.now(UTC) <= timedelta(hours=1)
            assert old.refusal(datetime.now(UTC) + timedelta(hours=2)).startswith("this API key expired")
            assert keys.named("a") == new
        await one.change(key.id, lambda known: rotated(known, "third", 0), change("rotate key"))
        await two.refresh()
        for keys in (one, two):
            assert [keys.find(digest(secret)) is not None for secret in (first, "second", "third")] == [
                False,
                False,
                True,
            ]

    asyncio.run(run())


def test_names_are_unique_also_for_two_processes_at_once(databases: list[OperatorDatabase]) -> None:
    one, two = map(StoredKeys, databases)

    async def run() -> None:
        results = await asyncio.gather(
            *(keys.create("a", KeyRules(), created) for keys in (one, two) * 3), return_exceptions=True
        )
        assert sum(isinstance(result, tuple) for result in results) == 1
        assert sum(isinstance(result, NameTaken) for result in results) == 5

    asyncio.run(run())


def test_no_secret_is_stored_and_every_change_is_in_the_audit_log(databases: list[OperatorDatabase]) -> None:
    keys = StoredKeys(databases[0])

    async def run() -> str:
        key, secret = await keys.create("a", KeyRules(), created)
        await keys.change(key.id, lambda known: structs.replace(known, is_disabled=True), change("disable key"))
        await keys.change(key.id, deleted, change("delete key"))
        return secret

    secret = asyncio.run(run())
    log = databases[1].run_now(lambda database: read_audit(database, limit=10))
    assert [(row.action, row.target, row.operator, row.peer) for row in log] == [
        (action, "a", "operator", "127.0.0.1") for action in ("delete key", "disable key", "create key")
    ]
    assert all(abs(row.at - datetime.now(UTC)) < timedelta(minutes=1) for row in log)
    for table in ("client_keys", "audit"):
        rows = databases[1].run_now(lambda database, table=table: database.rows(f"SELECT * FROM {table}"))  # type: ignore[misc]
        assert rows
        assert secret not in repr(rows)


def test_a_failed_change_leaves_no_trace(databases: list[OperatorDatabase]) -> None:
    keys = StoredKeys(databases[0])

    def failing(_: StoredKey) -> StoredKey:
        raise ValueError("refused")

    async def run() -> None:
        key, _ = await keys.create("a", KeyRules(), created)
        with pytest.raises(ValueError, match="refused"):
            await keys.change(key.id, failing, change("change key"))
        with pytest.raises(UnknownKey):
            await keys.change("key_gone", lambda known: known, change("change key"))
        await keys.refresh()
        assert keys.record("a") == key

    asyncio.run(run())
    assert len(databases[0].run_now(lambda database: read_audit(database, limit=10))) == 1


def test_ten_thousand_keys_are_loaded_and_found(tmp_path: Path) -> None:
    database = OperatorDatabase(str(tmp_path / "ledger.db"))

    def insert(opened: object) -> None:
        with opened.transaction() as db:  # type: ignore[attr-defined]
            opened.execute_many(  # type: ignore[attr-defined]
                db,
                "INSERT INTO client_keys VALUES (:id, :id, :hash, '', 0, '{}', 0, 0, 0, 0, 0, :revision)",
                [
                    {"id": f"key_{number}", "hash": f"sha256:{number:064x}", "revision": number + 1}
                    for number in range(10_000)
                ],
            )

    database.run_now(insert)
    keys = StoredKeys(database)

    async def run() -> None:
        await keys.refresh()
        assert len(keys.records) == 10_000
        found = keys.find((9_999).to_bytes(32, "big"))
        assert found is not None
        assert found.name == "key_9999"
        read = len(database.run_now(lambda opened: opened.rows("SELECT 1 FROM client_keys WHERE revision > 10000")))
        assert read == 0

    asyncio.run(run())
    database.close()


def test_keys_stay_known_while_the_database_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database = OperatorDatabase(str(tmp_path / "ledger.db"))
    keys = StoredKeys(database)

    async def run() -> None:
        _, secret = await keys.create("a", KeyRules(), created)

        async def away(_: object) -> None:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(database, "run", away)
        await keys.try_refresh()
        await keys.try_refresh()
        assert keys.find(digest(secret)) is not None

    asyncio.run(run())
    database.close()
    assert [record.message for record in caplog.records].count(
        f"stored keys: cannot read {tmp_path / 'ledger.db'}: the disk is gone; retrying"
    ) == 1


def test_reading_creates_no_file(tmp_path: Path) -> None:
    keys = StoredKeys(OperatorDatabase(str(tmp_path / "ledger.db")))
    asyncio.run(keys.refresh())
    assert keys.is_empty
    assert list(tmp_path.iterdir()) == []
