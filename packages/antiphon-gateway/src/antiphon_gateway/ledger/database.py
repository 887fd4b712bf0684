"""The operator database: one SQLite file or PostgreSQL schema with what an operator keeps: usage, keys, the audit log.

Several workers and hosts use it at once. A migration only adds, so a process of the version before can still read what it knows;
a feature that needs tables of its own adds a migration at the end of `MIGRATIONS`. Statements are shared by both databases: times
are microseconds since 1970 and days are days since 1970, both UTC and integers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

from msgspec import structs

from antiphon.errors import StoreError, StoreReadOnly
from antiphon.history.location import data_folder, display_location, ensure_private_folder, is_postgres_url
from antiphon.history.sql.database import Database
from antiphon.history.sql.schema import Migration, migrate
from antiphon.history.sql.sqlite_file import SqliteDatabase, SqliteFile
from antiphon.prices.table import PriceTable
from antiphon.providers.keys.secret import Credential, is_reference
from antiphon_gateway.config.settings import Config
from antiphon_gateway.ledger.repricing import has_unpriced_sums, price_all_old_rows, price_old_sums
from antiphon_gateway.threads import DATABASE

T = TypeVar("T")

APPLICATION_ID = 0x414E544C  # "ANTL": neither a history nor the state of a gateway
FILE_NAME = "ledger.db"
_CLOSE_SECONDS = 10.0
_PLACE_OPTIONS = frozenset({"host", "hostaddr", "port", "dbname", "service", "schema"})
"""Options of the address of a server that decide which database it is."""

_ATTEMPTS = """CREATE VIEW attempts AS SELECT u.id, u.at, u.request_id, u.attempt, k.name AS key_name,
    f.name AS client_format, o.name AS operation, b.provider,
    c.name AS credential, m.name AS model_asked, b.model AS model_served, b.variant, b.metering, u.status, e.name AS outcome,
    u.seconds, u.first_token_seconds, u.prompt_tokens, u.completion_tokens, u.cached_tokens, u.cache_write_tokens,
    u.cache_write_1h_tokens, u.reasoning_tokens, p.name AS price_version{more}
FROM usage u JOIN buckets b ON b.id = u.bucket_id JOIN names k ON k.id = u.key_id JOIN names o ON o.id = u.operation_id
    JOIN names c ON c.id = u.credential_id JOIN names m ON m.id = u.model_asked_id JOIN names e ON e.id = u.outcome_id
    JOIN names f ON f.id = u.client_format_id JOIN names p ON p.id = u.price_version_id
"""

_USAGE = """
CREATE TABLE names (id {identity}, name text NOT NULL UNIQUE);
CREATE TABLE buckets (
    id           {identity},
    provider     text NOT NULL,
    model        text NOT NULL,      -- as it was asked of the provider
    variant      text NOT NULL,      -- what else changes the price, as a JSON object: {{"service_tier":"flex"}}
    prompt_above bigint NOT NULL,    -- its prompts have more tokens than this
    prompt_to    bigint NOT NULL,    -- and at most this many
    half_hour    integer NOT NULL,   -- of the day, if its price depends on that; else -1
    metering     text NOT NULL,      -- reported, estimated, unknown or free
    UNIQUE (provider, model, variant, prompt_above, prompt_to, half_hour, metering)
);
CREATE TABLE usage (
    id                    {identity},
    at                    bigint NOT NULL,   -- when the attempt ended
    request_id            text NOT NULL,
    attempt               integer NOT NULL,  -- of the request, from 1
    key_id                bigint NOT NULL,   -- this and the following are in names
    client_format_id      bigint NOT NULL,
    operation_id          bigint NOT NULL,
    credential_id         bigint NOT NULL,
    model_asked_id        bigint NOT NULL,
    price_version_id      bigint NOT NULL,
    outcome_id            bigint NOT NULL,
    bucket_id             bigint NOT NULL,
    status                integer NOT NULL,  -- of the provider's response; 0: none came
    seconds               double precision NOT NULL,
    first_token_seconds   double precision,
    prompt_tokens         bigint NOT NULL,
    completion_tokens     bigint NOT NULL,
    cached_tokens         bigint NOT NULL,
    cache_write_tokens    bigint NOT NULL,
    cache_write_1h_tokens bigint NOT NULL,
    reasoning_tokens      bigint NOT NULL
);
CREATE INDEX usage_times ON usage (at);
CREATE TABLE daily (
    day                   integer NOT NULL,
    key_id                bigint NOT NULL,   -- 0: all keys together
    bucket_id             bigint NOT NULL,
    calls                 bigint NOT NULL,
    failed_calls          bigint NOT NULL,
    prompt_tokens         bigint NOT NULL,
    completion_tokens     bigint NOT NULL,
    cached_tokens         bigint NOT NULL,
    cache_write_tokens    bigint NOT NULL,
    cache_write_1h_tokens bigint NOT NULL,
    reasoning_tokens      bigint NOT NULL,
    PRIMARY KEY (day, key_id, bucket_id)
) {clustered};
CREATE TABLE writers (name text PRIMARY KEY, last_row bigint NOT NULL, seen bigint NOT NULL);
""" + _ATTEMPTS.format(more="")

_ADMIN = """
CREATE TABLE client_keys (
    id          text PRIMARY KEY,
    name        text NOT NULL,
    hash        text NOT NULL,      -- "sha256:…"; empty once it is deleted
    old_hash    text NOT NULL,      -- of the key before a rotation, accepted until old_until
    old_until   bigint NOT NULL,
    rules       text NOT NULL,      -- models and limits, as a JSON object
    is_disabled integer NOT NULL,
    created_at  bigint NOT NULL,
    changed_at  bigint NOT NULL,
    rotated_at  bigint NOT NULL,    -- 0: never, as deleted_at
    deleted_at  bigint NOT NULL,
    revision    bigint NOT NULL     -- of its last change
);
CREATE UNIQUE INDEX client_key_names ON client_keys (name) WHERE deleted_at = 0;
CREATE INDEX client_key_revisions ON client_keys (revision);
CREATE TABLE key_revision (only_row integer PRIMARY KEY, value bigint NOT NULL);
INSERT INTO key_revision (only_row, value) VALUES (1, 0);
CREATE TABLE audit (
    id       {identity},
    at       bigint NOT NULL,
    operator text NOT NULL,         -- the name of the admin key
    peer     text NOT NULL,
    action   text NOT NULL,
    target   text NOT NULL,
    details  text NOT NULL          -- a JSON object
)
"""

# What a row cost when it was written. Rows of older versions have none yet: `repricing` finds it, and needs the prices for that.
_COST = """
-- NULL: no known price
ALTER TABLE usage ADD COLUMN cost_nanodollars bigint;
ALTER TABLE daily ADD COLUMN priced_calls bigint NOT NULL DEFAULT 0;
ALTER TABLE daily ADD COLUMN cost_nanodollars bigint NOT NULL DEFAULT 0;
CREATE TABLE unpriced (name text PRIMARY KEY, last bigint NOT NULL);
INSERT INTO unpriced SELECT 'daily', max(day) FROM daily HAVING count(*) > 0;
INSERT INTO unpriced SELECT 'usage', max(id) FROM usage HAVING count(*) > 0;
DROP VIEW attempts;
""" + _ATTEMPTS.format(more=", u.cost_nanodollars")

MIGRATIONS = (_USAGE, _ADMIN, _COST)
"""The tables in the order in which they were added, for both databases; statements end with a semicolon and a line break."""

_SQLITE = {"identity": "INTEGER PRIMARY KEY", "clustered": "WITHOUT ROWID"}
_POSTGRES = {"identity": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "clustered": ""}


def journal_folder(address: str) -> Path:
    """Where rows wait that are not in the database yet: beside its file; for a server, in the user's data folder.

    Each database has a folder of its own: a gateway writes the rows it finds there to its own database.
    """
    if not is_postgres_url(address):
        return Path(f"{address}-rows").absolute()
    return data_folder() / "ledger-rows" / sha256(_database_of(address).encode()).hexdigest()[:16]


def _database_of(address: str) -> str:
    """Which database the address of a server names, without user, password and the way to connect."""
    base, _, query = address.partition("?")
    place = base.partition("://")[2].rpartition("@")[2]
    return "&".join([place, *sorted(f"{name}={value}" for name, value in parse_qsl(query) if name in _PLACE_OPTIONS)])


def ledger_address(config: Config, environ: Mapping[str, str] | None = None) -> str:
    """Where the operator database of a configuration is. Default: beside the file of `[gateway] state`, else the user's folder.

    Raises `CredentialError` for an `env:` or `file:` reference that leads nowhere.
    """
    if address := config.ledger.address:
        return Credential(secret=address).read(environ) if is_reference(address) else address
    folder = Path(config.gateway.state).absolute().parent if config.gateway.state else data_folder()
    return os.fspath(folder / FILE_NAME)


def open_operator_database(
    address: str, prices: PriceTable | None = None, *, create: bool = True, read_only: bool = False
) -> Database:
    """Open the database, and make or add its tables. Unless `create` is set it must exist. Raises `StoreError`.

    `prices` are for calls that an older version wrote, whose cost it did not store.
    """
    database = _open(address, create=create, read_only=read_only)
    try:
        if not read_only:
            price_old_sums(database, prices or PriceTable())
    except BaseException:
        database.close()
        raise
    return database


def open_ledger(address: str, prices: PriceTable) -> Database | None:
    """The database for a reader, who may not be permitted to write; None if there is none yet. Raises `StoreError`."""
    if not is_postgres_url(address) and not Path(address).exists():
        return None
    try:
        database = open_operator_database(address, prices, create=False)
    except StoreReadOnly as refused:
        database = _open(address, create=False, read_only=True)
        is_older = isinstance(database, SqliteDatabase) and database.file.schema < len(MIGRATIONS)
        if is_older or has_unpriced_sums(database):
            database.close()
            raise StoreReadOnly(
                f"an older Antiphon wrote this ledger, and it cannot be brought up to date: {refused}"
            ) from None
    else:
        price_all_old_rows(database, prices)  # with the prices that its sums got
    return database


def _open(address: str, *, create: bool, read_only: bool) -> Database:
    if is_postgres_url(address):
        return _open_postgres(address, create=create, read_only=read_only)
    if create and address != ":memory:":
        ensure_private_folder(Path(address).absolute().parent)
    first, *later = [script.format(**_SQLITE) for script in MIGRATIONS]
    return SqliteDatabase(
        SqliteFile(
            address,
            tables=first,
            application_id=APPLICATION_ID,
            schema=len(MIGRATIONS),
            timeout=10.0,
            read_only=read_only,
            create=create,
            migrations=dict(enumerate(later, start=1)),
        )
    )


def _open_postgres(address: str, *, create: bool, read_only: bool) -> Database:
    from antiphon.history.sql.postgres_connections import Address, Connections, PostgresDatabase

    parsed = Address.of(address)
    # Beside the schema of a history, whose migrations are numbered on their own.
    own = structs.replace(parsed, schema=f"{parsed.schema}_gateway")
    connections = Connections(own, max_connections=4, timeout=10.0, statement_timeout=60.0, read_only=read_only)
    migrations = [Migration(number, 1, script.format(**_POSTGRES)) for number, script in enumerate(MIGRATIONS, start=1)]
    try:
        migrate(connections, migrations, create=create)
    except BaseException:
        connections.close()
        raise
    return PostgresDatabase(connections)


class OperatorDatabase:
    """The database at an address, for code on the event loop of a process. It is opened at first use; calls run in threads.

    An SQLite file that does not exist is only created by a change: a gateway that stores nothing leaves no file.
    """

    def __init__(self, address: str, prices: Callable[[], PriceTable] = PriceTable) -> None:
        self._address = address
        self._prices = prices
        self._lock = threading.Condition()
        self._database: Database | None = None
        self._calls = 0  # in progress
        # When it was last not opened, and why.
        self._failure: tuple[float, type[StoreError], str] = (-inf, StoreError, "")

    @property
    def location(self) -> str:
        """Where it is, as people may see it."""
        return display_location(self._address)

    @property
    def exists(self) -> bool:
        """Whether there is something to read; a server always is."""
        return self._database is not None or is_postgres_url(self._address) or Path(self._address).exists()

    async def read_rows(self, call: Callable[[Database], list[T]]) -> list[T]:
        """What a call reads; nothing if the database does not exist yet. Raises `StoreError`."""
        return await self.run(call) if self.exists else []

    async def run(self, call: Callable[[Database], T]) -> T:
        """The result of a call with the open database, in a thread. Raises `StoreError`."""
        return await DATABASE.run(self.run_now, call)

    def run_now(self, call: Callable[[Database], T]) -> T:
        """The same in this thread."""
        began = time.monotonic()
        with self._lock:
            if self._database is None:
                self._database = self._open(began)
            database = self._database
            self._calls += 1
        try:
            return call(database)
        finally:
            with self._lock:
                self._calls -= 1
                self._lock.notify_all()

    def _open(self, began: float) -> Database:
        """Open it for a call that began then. If an attempt failed while it waited, that is its result, too."""
        failed_at, kind, reason = self._failure
        if failed_at >= began:
            raise kind(reason)
        try:
            return open_operator_database(self._address, self._prices())
        except StoreError as error:
            self._failure = time.monotonic(), type(error), str(error)
            raise

    def close(self) -> None:
        """Close it when the calls in progress have ended; a later call opens it again.

        SQLite crashes the process if a connection is closed while a thread uses it, so one that is stuck is left open.
        """
        with self._lock:
            is_unused = self._lock.wait_for(lambda: not self._calls, _CLOSE_SECONDS)
            database, self._database = self._database, None
        if database is not None and is_unused:
            database.close()
