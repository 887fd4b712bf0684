"""`Database`: an open SQLite file or PostgreSQL schema that runs statements.

Statements are shared by both and name their values `:name`; `:now` is the time of the database. For PostgreSQL they are
translated once: `:name` becomes the driver's placeholder, and the names of times become the server's clock. The dialects of a
history store and the operator database of the gateway build on this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, TypeAlias

from antiphon.errors import StoreUnreachable

Rows: TypeAlias = Sequence[tuple[Any, ...]]


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
