"""`Database`: an open SQLite file or PostgreSQL schema that runs statements.

Statements are shared by both and name their values `:name`; `:now` is the time of the database. The dialects of a history store
and the operator database of the gateway build on this.
"""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import StoreUnreachable
from antiphon.history.codec import from_microseconds, to_microseconds
from antiphon.history.sql.lease_clock import wall_time
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon.text import replace_lone_surrogates

Rows: TypeAlias = Sequence[tuple[Any, ...]]

_ROWS_IN_STATEMENT = 100


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
        with self.file.reading() as db:
            return self.execute(db, statement, **values)

    def connection(self) -> AbstractContextManager[sqlite3.Connection]:
        return self.file.writing()

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return self.file.transaction()

    def execute(self, db: sqlite3.Connection, statement: str, **values: object) -> Rows:
        bound = {name: _bind_for_sqlite(value) for name, value in values.items()}
        for name in _time_names(statement):
            bound[name] = self.time(name, values)
        return db.execute(statement, bound).fetchall()

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
        """The value of a name that stands for a time."""
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
