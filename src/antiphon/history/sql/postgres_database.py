"""`PostgresDatabase`: statements on one schema of a PostgreSQL database.

Shared statements are translated once: `:name` becomes the driver's placeholder, and the names of times become the server's clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.history.sql.database import Database, Rows
from antiphon.history.sql.postgres_connections import Connections
from antiphon.history.sql.schema import LOCKS, lock_number
from antiphon.text import replace_lone_surrogates

if TYPE_CHECKING:
    from antiphon.history.sql.postgres_connections import Database as PostgresConnection

_VALUE = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")
_TIMES = {
    "now": "statement_timestamp()",
    "lease_now": "clock_timestamp()",
    "lease_end": "(clock_timestamp() + %(seconds)s * interval '1 second')",
    "never": "'epoch'",
}


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
