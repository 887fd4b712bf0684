"""`StoredKeys`: client keys that operators create while the gateway runs, in the operator database and in memory.

The database has the hash of a key, never the key. Each process keeps all of them in a dictionary, so a request costs one lookup;
every `REFRESH_SECONDS` it reads what changed since, by a revision that grows with each change. A rotated key is the same client
with another hash; until its grace time ends the old hash is accepted too, as a key that expires then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.errors import AntiphonError, StoreError
from antiphon.history.sql.database import Database
from antiphon.ids import new_id
from antiphon_gateway.access.client_keys import ClientKey, client_of, hash_key, new_key
from antiphon_gateway.config.references import key_digest
from antiphon_gateway.config.settings import KeyRules
from antiphon_gateway.ledger.audit import Change, write_audit
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.share.workers import repeat_forever
from antiphon_gateway.utc_time import now_microseconds, time_at

logger = logging.getLogger("antiphon.gateway")

REFRESH_SECONDS = 2.0


class UnknownKey(AntiphonError):
    """There is no stored key with that id or name."""


class NameTaken(AntiphonError):
    """Another key has that name."""


class StoredKey(Struct, frozen=True, kw_only=True):
    """A stored key. Times are microseconds since 1970; 0: never."""

    id: str
    name: str
    hash: str
    rules: KeyRules
    old_hash: str = ""
    old_until: int = 0
    is_disabled: bool = False
    created_at: int = 0
    changed_at: int = 0
    rotated_at: int = 0
    deleted_at: int = 0

    def clients(self) -> list[tuple[bytes, ClientKey]]:
        """The digests that are accepted for it, each with what it may do."""
        if self.deleted_at:
            return []
        client = client_of(self.name, self.rules, is_disabled=self.is_disabled, key_hash=self.hash)
        found = [(key_digest(self.hash), client)]
        if self.old_hash:
            ends = time_at(self.old_until)
            if client.expires is not None:
                ends = min(ends, client.expires)
            found.append((key_digest(self.old_hash), structs.replace(client, expires=ends, key_hash=self.old_hash)))
        return found


_FIELDS = StoredKey.__struct_fields__
_COLUMNS = ", ".join(_FIELDS)
_CHANGED = f"SELECT revision, {_COLUMNS} FROM client_keys WHERE revision > :revision ORDER BY revision"
_ONE = f"SELECT {_COLUMNS} FROM client_keys WHERE id = :id AND deleted_at = 0"
_HAS_NAME = "SELECT 1 FROM client_keys WHERE name = :name AND deleted_at = 0"
_NEXT_REVISION = "UPDATE key_revision SET value = value + 1 RETURNING value"
_WRITE = f"""
INSERT INTO client_keys (revision, {_COLUMNS}) VALUES (:revision, {", ".join(f":{name}" for name in _FIELDS)})
ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in ("revision", *_FIELDS))}
"""


class StoredKeys:
    """All stored keys, as one process knows them."""

    def __init__(self, database: OperatorDatabase) -> None:
        self._database = database
        self._revision = 0  # all changes up to it are known
        self._revisions: dict[str, int] = {}  # of the last known change of each key, deleted ones too
        self._by_id: dict[str, StoredKey] = {}
        self._by_name: dict[str, StoredKey] = {}
        self._by_digest: dict[bytes, ClientKey] = {}
        self._is_reported = False
        self._first_read = asyncio.Event()

    @property
    def is_unread(self) -> bool:
        """Whether the database was not asked yet, or has not answered the first time."""
        return not self._first_read.is_set()

    async def wait_for_first_read(self, seconds: float) -> None:
        """Wait until the database was asked once, but not longer."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first_read.wait(), seconds)

    @property
    def is_empty(self) -> bool:
        """Whether there are no stored keys."""
        return not self._by_id

    @property
    def records(self) -> list[StoredKey]:
        """All of them."""
        return list(self._by_id.values())

    def find(self, digest: bytes) -> ClientKey | None:
        """The client of a digest, even if its key is not accepted any more."""
        return self._by_digest.get(digest)

    def named(self, name: str) -> ClientKey | None:
        """The client of a name."""
        key = self._by_name.get(name)
        return None if key is None else key.clients()[0][1]

    def record(self, reference: str) -> StoredKey:
        """The key with that id or name. Raises `UnknownKey`."""
        found = self._by_id.get(reference) or self._by_name.get(reference)
        if found is None:
            raise UnknownKey(f"no stored key {reference[:200]!r}; see GET /admin/keys")
        return found

    async def refresh(self) -> None:
        """Read what changed. Raises `StoreError`."""
        if not self._database.exists:
            return
        rows = await self._database.run(lambda database: database.rows(_CHANGED, revision=self._revision))
        for revision, *row in rows:
            self._put(revision, _record(row))
            self._revision = max(self._revision, revision)

    async def run(self) -> None:
        """Refresh now, and again until cancelled."""
        await repeat_forever([self.try_refresh], REFRESH_SECONDS)

    async def try_refresh(self) -> None:
        """Refresh if the database is available; otherwise the keys that are known stay, and the log says so once."""
        try:
            await self.refresh()
            self._is_reported = False
        except StoreError as error:
            if not self._is_reported:
                logger.warning("stored keys: cannot read %s: %s; retrying", self._database.location, error)
            self._is_reported = True
        finally:
            self._first_read.set()

    async def create(self, name: str, rules: KeyRules, change: Callable[[StoredKey], Change]) -> tuple[StoredKey, str]:
        """A new key, and its secret, which is stored nowhere. Raises `NameTaken` and `StoreError`."""
        secret, now = new_key(), now_microseconds()
        key = StoredKey(
            id=f"key_{new_id()}", name=name, hash=hash_key(secret), rules=rules, created_at=now, changed_at=now
        )

        def new(execute: Callable[..., Any]) -> StoredKey:
            if execute(_HAS_NAME, name=name):
                raise NameTaken(f"a key named {name!r} exists already; choose another name")
            return key

        return await self._write(new, change(key)), secret

    async def change(self, identifier: str, edit: Callable[[StoredKey], StoredKey], change: Change) -> StoredKey:
        """Change a key as it is in the database now. Raises `UnknownKey` and `StoreError`."""

        def changed(execute: Callable[..., Any]) -> StoredKey:
            rows = execute(_ONE, id=identifier)
            if not rows:
                raise UnknownKey(f"no stored key {identifier[:200]!r}; it was deleted")
            return structs.replace(edit(_record(rows[0])), changed_at=now_microseconds())

        return await self._write(changed, change)

    async def _write(self, make: Callable[[Callable[..., Any]], StoredKey], change: Change) -> StoredKey:
        """The key that `make` returns, in the database. `make` can execute statements."""

        def write(database: Database) -> tuple[int, StoredKey]:
            with database.transaction() as db:
                execute = partial(database.execute, db)
                revision: int = execute(_NEXT_REVISION)[0][0]  # also the lock: changes happen one after the other
                key = make(execute)
                execute(_WRITE, revision=revision, **_values(key))
                write_audit(database, db, change)
                return revision, key

        revision, key = await self._database.run(write)
        self._put(revision, key)
        return key

    def _put(self, revision: int, key: StoredKey) -> None:
        """Use a key as it is since a revision, unless a later one is known: a refresh may have been faster than a change."""
        if revision <= self._revisions.get(key.id, 0):
            return
        self._revisions[key.id] = revision
        before = self._by_id.pop(key.id, None)
        if before is not None:
            if self._by_name.get(before.name) is before:  # else the name is that of a newer key
                del self._by_name[before.name]
            for digest, _ in before.clients():
                self._by_digest.pop(digest, None)
        if key.deleted_at:
            return
        self._by_id[key.id] = self._by_name[key.name] = key
        self._by_digest.update(key.clients())


def rotated(key: StoredKey, secret: str, grace: float) -> StoredKey:
    """The key with another secret; the old one is accepted for `grace` more seconds."""
    now = now_microseconds()
    until = now + round(grace * 1_000_000)
    return structs.replace(
        key,
        hash=hash_key(secret),
        old_hash=key.hash if grace > 0 else "",
        old_until=until if grace > 0 else 0,
        rotated_at=now,
    )


def deleted(key: StoredKey) -> StoredKey:
    """The key without its hashes; only that it existed is kept."""
    return structs.replace(key, hash="", old_hash="", old_until=0, deleted_at=now_microseconds())


def _record(row: Sequence[Any]) -> StoredKey:
    values = dict(zip(_FIELDS, row, strict=True))
    values["rules"] = msgspec.json.decode(values["rules"], type=KeyRules)
    values["is_disabled"] = bool(values["is_disabled"])
    return StoredKey(**values)


def _values(key: StoredKey) -> dict[str, Any]:
    values = structs.asdict(key)
    values["rules"] = msgspec.json.encode(key.rules).decode()
    values["is_disabled"] = int(key.is_disabled)
    return values
