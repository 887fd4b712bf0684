"""`Database`: an open SQLite file or PostgreSQL schema that runs statements.

Statements are shared by both and name their values `:name`; `:now` is the time of the database. For PostgreSQL they are
translated once: `:name` becomes the driver's placeholder, and the names of times become the server's clock. The dialects of a
history store and the operator database of the gateway build on this.
"""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from antiphon.errors import StoreUnreachable
from antiphon.history.codec import from_microseconds, to_microseconds
from antiphon.history.sql.lease_clock import wall_time
from antiphon.history.sql.schema import LOCKS, lock_number
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon.text import replace_lone_surrogates

if TYPE_CHECKING:
    from antiphon.history.sql.postgres_connections import Connections, PostgresConnection

Rows: TypeAlias = Sequence[tuple[Any, ...]]

_ROWS_IN_STATEMENT = 100
_VALUE = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")
_TIMES = {
    "now": "statement_timestamp()",
    "lease_now": "clock_timestamp()",
    "lease_end": "(clock_timestamp() + %(seconds)s * interval '1 second')",
    "never": "'epoch'",
}


class ConnectionBroken(StoreUnreachable):
    """A connection broke during a statement: whether it was executed is not known."""


class Database(ABC):
    """An open database. A `db` is a connection of its driver."""

    location: str
    """Where the database is, as people may see it."""

    @abstractmethod
    def one_of(self, column: str, name: str) -> str:
        """The condition that a column has one of the values of the list `:name`."""

    @abstractmethod
    def rows(self, statement: str, *, replan: bool = False, **values: Any) -> Rows:
        """The result of a query. `replan`: its plan depends on the values."""

    @abstractmethod
    def connection(self) -> AbstractContextManager[Any]:
        """A connection on which each statement is durable by itself."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """A connection to write with: all is stored when the block ends well, and nothing otherwise."""

    @abstractmethod
    def execute(self, db: Any, statement: str, **values: object) -> Rows:
        """Execute a statement and return its rows, if it has any."""

    @abstractmethod
    def execute_many(self, db: Any, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Execute a statement once per row of plain values: numbers, bytes and text."""

    @abstractmethod
    def insert_many(self, db: Any, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows of plain values into a table."""

    @abstractmethod
    def lock(self, db: Any, name: str, *, shared: bool = False) -> None:
        """Exclude other transactions that take the lock of this name, until this one ends."""

    @abstractmethod
    def to_datetime(self, value: Any) -> datetime:
        """A stored time."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class SqliteDatabase(Database):
    """One SQLite file."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.location = file.path

    def one_of(self, column: str, name: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(:{name}))"

    def rows(self, statement: str, *, replan: bool = False, **values: Any) -> Rows:  # noqa: ARG002 - for PostgreSQL
        return self.file.read(statement, self._bound(statement, values))

    def connection(self) -> AbstractContextManager[sqlite3.Connection]:
        return self.file.writing()

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return self.file.transaction()

    def execute(self, db: sqlite3.Connection, statement: str, **values: object) -> Rows:
        return db.execute(statement, self._bound(statement, values)).fetchall()

    def _bound(self, statement: str, values: Mapping[str, object]) -> dict[str, object]:
        bound: dict[str, object] = dict(values)
        for name, value in values.items():
            if type(value) is not int:
                bound[name] = _bind_for_sqlite(value)
        for name in _time_names(statement):
            bound[name] = self.time(name, values)
        return bound

    def execute_many(self, db: sqlite3.Connection, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        db.executemany(statement, rows)

    def insert_many(
        self, db: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        # Many rows in one statement: each statement releases the interpreter's lock and has to wait for it again.
        row_text = f"({', '.join('?' * len(columns))})"
        for start in range(0, len(rows), _ROWS_IN_STATEMENT):
            chunk = rows[start : start + _ROWS_IN_STATEMENT]
            statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row_text] * len(chunk))}"
            db.execute(statement, [value for row in chunk for value in row])

    def time(self, name: str, values: Mapping[str, Any]) -> int:  # noqa: ARG002 - leases have more names
        """The value of a name of a time (`:now`, `:lease_end`, …)."""
        return wall_time()

    def lock(self, db: sqlite3.Connection, name: str, *, shared: bool = False) -> None:
        pass  # there is one transaction at a time

    def to_datetime(self, value: Any) -> datetime:
        return from_microseconds(value)

    def close(self) -> None:
        self.file.close()


@cache
def _time_names(statement: str) -> tuple[str, ...]:
    return tuple(set(re.findall(r":(now|lease_now|lease_end|never)\b", statement)))


def _bind_for_sqlite(value: object) -> object:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, datetime):
        return to_microseconds(value)
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple | dict) else value


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
