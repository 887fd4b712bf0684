"""What tests look at beneath a store, whatever it is made of."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from antiphon.history import HistoryStore, SqliteStore
from antiphon.history.sql.postgres import PostgresStore


def table(store: HistoryStore, query: str) -> list[tuple[Any, ...]]:
    """What the database under a store says to a query."""
    if isinstance(store, PostgresStore):
        return store._connections.rows(query)
    assert isinstance(store, SqliteStore)
    with closing(sqlite3.connect(store.path)) as db:
        return db.execute(query).fetchall()


def rows(store: HistoryStore, name: str) -> int:
    """How many rows a table has."""
    return int(table(store, f"SELECT count(*) FROM {name}")[0][0])
