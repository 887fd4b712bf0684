"""A PostgreSQL schema as a `Database`, its connections, and `Address`, the only place that knows the password.

People, logs and errors see `Address.place`: user, host, port and database. A text that cannot be parsed as an address is not
repeated either, for the wrong part may be the password (law L10).

There are at most `max_connections`, made when needed and kept; a caller waits up to `timeout` seconds for a free one. A
connection that the server closed while idle is seen before it is used, by a look at its socket without a round trip. One that
breaks during a statement raises `ConnectionBroken`: whether a write arrived is not known. Reads are simply repeated. There is no
background thread, and a store in a forked process starts with connections of its own.
"""

from __future__ import annotations

import os
import re
import select
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from msgspec import Struct

from antiphon.errors import StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreUnreachable
from antiphon.history.sql.database import ConnectionBroken, Database, Rows
from antiphon.history.sql.schema import LOCKS, lock_number
from antiphon.text import replace_lone_surrogates

if TYPE_CHECKING:
    from psycopg import Connection, Error

    PostgresConnection: TypeAlias = Connection[tuple[Any, ...]]

DEFAULT_SCHEMA = "antiphon"
_LONGEST_NAME = 63  # bytes; PostgreSQL cuts what is longer
_VALUE = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")
_TIMES = {
    "now": "statement_timestamp()",
    "lease_now": "clock_timestamp()",
    "lease_end": "(clock_timestamp() + %(seconds)s * interval '1 second')",
    "never": "'epoch'",
}


class Address(Struct, frozen=True):
    """Where a store is. `parameters` are passed to the driver; they never leave this package."""

    parameters: dict[str, str]
    schema: str
    place: str

    @classmethod
    def of(cls, given: str, schema: str | None = None) -> Address:
        """Read `postgresql://user:password@host:port/database?schema=…`; the rest comes from the environment (PGHOST…)."""
        if not given.startswith(("postgresql://", "postgres://")):
            raise StoreError("an address of a PostgreSQL store begins with postgresql://")
        base, _, query = given.partition("?")
        options = parse_qsl(query, keep_blank_values=True)
        name = schema or next((value for option, value in options if option == "schema"), DEFAULT_SCHEMA)
        rest = urlencode([pair for pair in options if pair[0] != "schema"], quote_via=quote)
        parameters = _parse(f"{base}?{rest}" if rest else base)
        return cls(parameters, _check_schema(name), _place(parameters, name))

    @property
    def user(self) -> str:
        return _parameter(self.parameters, "user", "PGUSER", "the user of this process")

    def without_password(self, text: str) -> str:
        """A text of the driver or the server without the password."""
        for name in ("password", "sslpassword"):
            if secret := self.parameters.get(name):
                text = text.replace(secret, "***")
        return text

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("place", self.place)]

    def __repr__(self) -> str:
        return f"Address({self.place!r})"


def psycopg() -> ModuleType:
    """The driver, or an error that names the package to install."""
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise StoreError(
            f"a store in PostgreSQL needs the driver psycopg ({error}); install it with: pip install 'antiphon[postgres]'"
        ) from error
    return psycopg


def _parse(given: str) -> dict[str, str]:
    """The parts of an address. One whose password was not %-coded may still seem to have some: its pieces are in other fields."""
    driver = psycopg()
    authority, _, database = given.partition("?")[0].partition("://")[2].partition("/")
    try:
        read = {name: str(value) for name, value in driver.conninfo.conninfo_to_dict(given).items()}
    except driver.Error:
        read = {"port": "unreadable"}
    if authority.count("@") > 1 or "@" in database or not re.fullmatch(r"[\d,]*", read.get("port", "")):
        raise StoreError(
            "this is not an address of a PostgreSQL store; it is written postgresql://user:password@host:port/database, with "
            "%-codes for characters such as @ : / ? # in a name or password. It is not repeated here, for it may hold one"
        )
    return read


def _place(parameters: Mapping[str, str], schema: str) -> str:
    hosts = _parameter(parameters, "host", "PGHOST", parameters.get("hostaddr", "localhost")).split(",")
    ports = _parameter(parameters, "port", "PGPORT", "5432").split(",")
    where = ",".join(f"{host}:{ports[min(index, len(ports) - 1)]}" for index, host in enumerate(hosts))
    database = _parameter(parameters, "dbname", "PGDATABASE", "")
    user = f"{parameters['user']}@" if "user" in parameters else ""
    return f"postgresql://{user}{where}/{database}{'' if schema == DEFAULT_SCHEMA else f'?schema={schema}'}"


def _parameter(parameters: Mapping[str, str], name: str, variable: str, otherwise: str) -> str:
    return parameters.get(name) or os.environ.get(variable) or otherwise


def _check_schema(schema: str) -> str:
    if not schema or "\0" in schema or len(schema.encode()) > _LONGEST_NAME or schema.startswith("pg_"):
        raise StoreError(
            f"{schema[:80]!r} cannot be the name of a schema: it has 1 to {_LONGEST_NAME} bytes and does not begin with pg_"
        )
    return schema


_SETTINGS = """
SELECT set_config('search_path', quote_ident(%(schema)s), false), set_config('TimeZone', 'UTC', false),
    set_config('statement_timeout', %(statement)s, false), set_config('lock_timeout', %(wait)s, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('idle_in_transaction_session_timeout', %(statement)s, false),
    set_config('default_transaction_read_only', CASE WHEN %(read_only)s THEN 'on'
        ELSE current_setting('default_transaction_read_only') END, false),
    -- An append is acknowledged when it is on the disk, whatever is set for other programs.
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    current_setting('server_encoding')
"""
_INHERITED: list[list[PostgresConnection]] = []
"""Connections of the process this one was forked from. They are never closed here: that would end the other's."""

_NOT_YET = ("starting up", "not yet accepting connections", "in recovery mode")


class Connections:
    """The connections of one store."""

    # Not `psycopg_pool`: measured equal (an insert 67 us of CPU with either, 8 threads; borrowing 5.9 us here, 7.6 us there with
    # the same look at the socket, 35 us with its own check). But it connects in a background thread, so that a wrong password or
    # a missing database is a timeout without a reason, and its threads do not survive a fork.

    def __init__(
        self, address: Address, *, max_connections: int, timeout: float, statement_timeout: float, read_only: bool
    ) -> None:
        if max_connections < 1:
            raise StoreError(f"a store needs at least one connection, and max_connections is {max_connections}")
        self.address = address
        self.place = address.place
        self._driver = psycopg()
        self._most = max_connections
        self._timeout = timeout
        self._settings = {
            "schema": address.schema,
            "statement": f"{max(1, round(statement_timeout * 1000))}ms",
            "wait": f"{max(1, round(timeout * 1000))}ms",
            "read_only": read_only,
        }
        self._is_closed = False
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._free = threading.BoundedSemaphore(self._most)
        self._idle: list[PostgresConnection] = []
        # A store that was never closed is closed when it is collected.
        weakref.finalize(self, _close_all, self._idle, self._process)

    @contextmanager
    def connection(self) -> Iterator[PostgresConnection]:
        """A connection on which each statement is durable by itself."""
        if self._process != os.getpid():
            _INHERITED.append(self._idle)
            self._start()
        if not self._free.acquire(timeout=self._timeout):
            raise StoreLocked(
                f"{self.place}: all {self._most} connections of this store were in use for {self._timeout:g} s; try again, "
                "or open the store with more (max_connections)"
            )
        try:
            db = self._take()
            try:
                with self.translate_errors(db):
                    yield db
            finally:
                self._put_back(db)
        finally:
            self._free.release()

    @contextmanager
    def transaction(self) -> Iterator[PostgresConnection]:
        """A connection to write with: all is stored when the block ends well, and nothing otherwise."""
        with self.connection() as db, db.transaction():
            yield db

    def rows(
        self, query: str, given: Sequence[object] | dict[str, object] = (), *, replan: bool = False
    ) -> list[tuple[Any, ...]]:
        """The result of a query. It changes nothing, so it is repeated if the connection breaks.

        `replan`: the way to the answer depends on the values, so the server is not to keep the one it found before.
        """
        for is_last in (False, True):
            try:
                with self.connection() as db:
                    prepare = False if replan else None
                    return db.execute(query, given, prepare=prepare, binary=True).fetchall()
            except ConnectionBroken:
                if is_last:
                    raise
        raise AssertionError("the second attempt returns or raises")

    @contextmanager
    def translate_errors(self, db: PostgresConnection) -> Iterator[None]:
        """Raise errors of the driver in the block as `StoreError`."""
        try:
            yield
        except self._driver.Error as error:
            raise self.translate_error(error, db) from error

    def translate_error(self, error: Error, db: PostgresConnection) -> StoreError:
        """An error of the driver as one of ours."""
        message = self._message(error)
        if db.closed:
            return ConnectionBroken(f"{self.place} broke the connection off ({message}); try again when it is back")
        match error.sqlstate or "":
            case "25006":
                return StoreReadOnly(
                    f"{self.place} is read-only, a replica perhaps: nothing was written. Use the primary server for that"
                )
            case "42501":
                return StoreReadOnly(f"{self.place}: the user {self.address.user} may not do this ({message})")
            case "57014" | "55P03" | "40P01" | "40001":
                return StoreLocked(
                    f"{self.place} took too long, or another session held the lock ({message}); try again"
                )
            case "53100" | "53200":
                return StoreFull(f"{self.place} has no room left ({message}); nothing was written")
            case "XX001" | "XX002":
                return StoreDamaged(
                    f"{self.place} is corrupt ({message}); restore a backup, or export the readable conversations"
                )
            case "3F000" | "42P01" | "42703":
                return StoreDamaged(
                    f"{self.place} lacks tables of ours ({message}); was the schema dropped or changed?"
                )
            case state if state.startswith(("08", "57P")):
                return ConnectionBroken(f"{self.place} broke the connection off ({message}); try again when it is back")
            case _:
                return StoreError(f"{self.place}: {message}")

    def close(self) -> None:
        self._is_closed = True
        _close_all(self._idle, self._process)

    def _take(self) -> PostgresConnection:
        while self._idle and not self._is_closed:
            try:
                db = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if not _is_readable(db):
                return db
            db.close()
        return self._connect()

    def _put_back(self, db: PostgresConnection) -> None:
        if not db.closed:
            if self._is_closed or db.pgconn.transaction_status != self._driver.pq.TransactionStatus.IDLE:
                db.close()
            else:
                self._idle.append(db)

    def _connect(self) -> PostgresConnection:
        if self._is_closed:
            raise StoreError(f"{self.place} was closed")
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                db: PostgresConnection = self._driver.connect(**self._parameters())
                break
            except self._driver.Error as error:
                if not any(word in str(error) for word in _NOT_YET) or time.monotonic() > deadline:
                    raise self._refusal(error) from None
                time.sleep(0.05)
        try:
            with self.translate_errors(db):
                (*_, encoding) = db.execute(_SETTINGS, self._settings).fetchone() or ("",)
            self._check(encoding)
        except BaseException:
            db.close()
            raise
        return db

    def _check(self, encoding: str) -> None:
        if encoding != "UTF8":
            raise StoreError(f"{self.place} keeps text as {encoding}; a store needs a database with the encoding UTF8")

    def _parameters(self) -> dict[str, Any]:
        milliseconds = str(max(1000, round(self._timeout * 1000)))
        return {
            "application_name": "antiphon",
            "connect_timeout": str(max(2, round(self._timeout))),
            "client_encoding": "UTF8",
            # A network that swallows everything is noticed, too.
            "tcp_user_timeout": milliseconds,
            "keepalives_idle": "10",
            "keepalives_interval": "5",
            "keepalives_count": "3",
            **self.address.parameters,
            "autocommit": True,
        }

    def _refusal(self, error: Error) -> StoreError:
        """The error for a failed connection. Nothing was sent, so nothing was written."""
        message = self._message(error)
        if "authentication" in message or "pg_hba" in message or "no password" in message:
            return StoreError(f"{self.place} does not let the user {self.address.user} in ({message})")
        if "database" in message and "does not exist" in message:
            return StoreError(f"{self.place}: {message}. Make it first: createdb")
        return StoreUnreachable(
            f"{self.place} does not answer ({message}); nothing was written. Is the server running?"
        )

    def _message(self, error: Error) -> str:
        """The driver's message on one line, without the password."""
        message = error.diag.message_primary or str(error)
        return self.address.without_password(" ".join(message.split()).removeprefix("connection failed: "))


class PostgresDatabase(Database):
    """One schema of a PostgreSQL database."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.location = connections.place

    def one_of(self, column: str, name: str) -> str:
        return f"{column} = ANY(:{name})"

    def rows(self, statement: str, *, replan: bool = False, **values: Any) -> Rows:
        return self.connections.rows(_translate(statement), _bound_for_postgres(values), replan=replan)

    def connection(self) -> AbstractContextManager[PostgresConnection]:
        return self.connections.connection()

    def transaction(self) -> AbstractContextManager[PostgresConnection]:
        return self.connections.transaction()

    def execute(self, db: PostgresConnection, statement: str, **values: object) -> Rows:
        cursor = db.execute(_translate(statement).encode(), _bound_for_postgres(values))
        return cursor.fetchall() if cursor.description else []

    def execute_many(self, db: PostgresConnection, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        with db.cursor() as cursor:
            cursor.executemany(_translate(statement).encode(), [_bound_for_postgres(row) for row in rows])

    def insert_many(
        self, db: PostgresConnection, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"
        with db.cursor() as cursor:
            cursor.executemany(statement.encode(), [[_bind_for_postgres(value) for value in row] for row in rows])

    def lock(self, db: PostgresConnection, name: str, *, shared: bool = False) -> None:
        taken = "SELECT pg_advisory_xact_lock_shared(%s, %s)" if shared else "SELECT pg_advisory_xact_lock(%s, %s)"
        db.execute(taken, (LOCKS, lock_number(self.connections.address.schema, name)))

    def to_datetime(self, value: Any) -> datetime:
        at: datetime = value
        return at

    def close(self) -> None:
        self.connections.close()


@cache
def _translate(statement: str) -> str:
    """A shared statement as the driver expects it."""
    return _VALUE.sub(lambda name: _TIMES.get(name[1]) or f"%({name[1]})s", statement)


def _bound_for_postgres(values: Mapping[str, Any]) -> dict[str, object]:
    return {name: _bind_for_postgres(value) for name, value in values.items()}


def _bind_for_postgres(value: object) -> object:
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, datetime):
        return with_zone(value)
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, list | tuple):
        return [_bind_for_postgres(one) for one in value]
    return value


def _storable(text: str) -> str:
    """A text as PostgreSQL can store it, without NUL and lone surrogates. Entries are bytes and need no such change."""
    return replace_lone_surrogates(text.replace("\0", "\ufffd"))


def with_zone(at: datetime | None) -> datetime | None:
    """A time as PostgreSQL takes it; one without a zone is UTC."""
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at


def _is_readable(db: PostgresConnection) -> bool:
    """Whether an idle connection has something to read: usually its end."""
    if db.closed:
        return True
    poll = select.poll()
    poll.register(db.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _close_all(connections: list[PostgresConnection], process: int) -> None:
    while connections and process == os.getpid():
        connections.pop().close()
