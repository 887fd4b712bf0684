"""The connections of a store: how many, who waits for one, what happens when the server goes away, and what is said then.

There are at most `max_connections`, made when they are needed and kept. Whoever finds all of them in use waits, at most `timeout`
seconds. A connection that the server closed while nobody used it (it was restarted, say) is seen before it is handed out, by a
look at its socket that costs no round trip, and replaced. One that breaks off under a statement is another matter: whether a
write arrived cannot be known from here, and `BrokenOff` says so. Reading is simply done again.

There is no thread in the background: a store that is not used does nothing, and one in a forked process begins anew.
Nothing but this package sees an error of the driver.
"""

from __future__ import annotations

import os
import select
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from antiphon.errors import StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreUnreachable
from antiphon.history.postgres.address import Address, psycopg

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection, Error

    Database: TypeAlias = Connection[tuple[Any, ...]]

_SETTINGS = """
SELECT set_config('search_path', quote_ident(%(schema)s), false), set_config('TimeZone', 'UTC', false),
    set_config('statement_timeout', %(statement)s, false), set_config('lock_timeout', %(wait)s, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('idle_in_transaction_session_timeout', %(statement)s, false),
    set_config('default_transaction_read_only', CASE WHEN %(read_only)s THEN 'on'
        ELSE current_setting('default_transaction_read_only') END, false),
    -- An append is acknowledged when it is on the disk, whatever somebody set for other programs.
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    current_setting('server_encoding')
"""
_INHERITED: list[list[Database]] = []
"""Connections of the process this one was forked from. They are never closed here: that would end the other's."""

_NOT_YET = ("starting up", "not yet accepting connections", "in recovery mode")


class BrokenOff(StoreUnreachable):
    """A connection broke under a statement: whether it was done is not known."""


class Connections:
    """The connections of one store."""

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
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._free = threading.BoundedSemaphore(self._most)
        self._idle: list[Database] = []
        # A store nobody closed is closed when nobody holds it.
        weakref.finalize(self, _close_all, self._idle, self._process)

    @contextmanager
    def connection(self) -> Iterator[Database]:
        """A connection on which each statement is kept, durably, by itself."""
        if self._process != os.getpid():
            _INHERITED.append(self._idle)
            self._begin()
        if not self._free.acquire(timeout=self._timeout):
            raise StoreLocked(
                f"{self.place}: all {self._most} connections of this store were in use for {self._timeout:g} s; try again, "
                "or open the store with more (max_connections)"
            )
        try:
            db = self._taken()
            try:
                with self.told(db):
                    yield db
            finally:
                self._put_back(db)
        finally:
            self._free.release()

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """A connection to write with: all of it is kept when the block ends well, and none of it otherwise."""
        with self.connection() as db, db.transaction():
            yield db

    def undo(self) -> NoReturn:
        """End the block of a transaction, and keep nothing of it."""
        raise self._driver.Rollback

    def rows(
        self, query: str, given: Sequence[object] | dict[str, object] = (), *, is_planned_anew: bool = False
    ) -> list[tuple[Any, ...]]:
        """What a question to the database gives. It changes nothing, so it is asked again if the connection breaks.

        `is_planned_anew`: the way to the answer depends on the values, so the server is not to keep the one it found before.
        """
        for is_last in (False, True):
            try:
                with self.connection() as db:
                    prepare = False if is_planned_anew else None
                    return db.execute(query, given, prepare=prepare, binary=True).fetchall()
            except BrokenOff:
                if is_last:
                    raise
        raise AssertionError("the second attempt returns or raises")

    async def listener(self) -> AsyncConnection[tuple[Any, ...]]:
        """A connection of its own beside the others, to wait on."""
        try:
            db: AsyncConnection[tuple[Any, ...]] = await self._driver.AsyncConnection.connect(**self._parameters())
        except self._driver.Error as error:
            raise self._refusal(error) from None
        try:
            await db.execute(_SETTINGS, self._settings)
        except self._driver.Error as error:
            await db.close()
            raise self.explained(error, db) from error
        return db

    @contextmanager
    def told(self, db: Database | AsyncConnection[tuple[Any, ...]]) -> Iterator[None]:
        """What the database complains of in the block, in our words."""
        try:
            yield
        except self._driver.Error as error:
            raise self.explained(error, db) from error

    def explained(self, error: Error, db: Database | AsyncConnection[tuple[Any, ...]]) -> StoreError:
        """An error of the driver as one of ours."""
        said = self._said(error)
        if db.closed:
            return BrokenOff(f"{self.place} broke the connection off ({said}); try again when it is back")
        match error.sqlstate or "":
            case "25006":
                return StoreReadOnly(
                    f"{self.place} is read-only, a replica perhaps: nothing was written. Use the primary server for that"
                )
            case "42501":
                return StoreReadOnly(f"{self.place}: the user {self.address.user} may not do this ({said})")
            case "57014" | "55P03" | "40P01" | "40001":
                return StoreLocked(
                    f"{self.place} took too long, or somebody else held what was needed ({said}); try again"
                )
            case "53100" | "53200":
                return StoreFull(f"{self.place} has no room left ({said}); nothing was written")
            case "XX001" | "XX002":
                return StoreDamaged(
                    f"{self.place} is damaged ({said}); restore a copy, or export what can still be read"
                )
            case "3F000" | "42P01" | "42703":
                return StoreDamaged(f"{self.place} lacks tables of ours ({said}); was the schema dropped or changed?")
            case state if state.startswith(("08", "57P")):
                return BrokenOff(f"{self.place} broke the connection off ({said}); try again when it is back")
            case _:
                return StoreError(f"{self.place}: {said}")

    def close(self) -> None:
        self._is_closed = True
        _close_all(self._idle, self._process)

    def _taken(self) -> Database:
        while self._idle and not self._is_closed:
            try:
                db = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if not _has_news(db):
                return db
            db.close()
        return self._connected()

    def _put_back(self, db: Database) -> None:
        if not db.closed:
            if self._is_closed or db.pgconn.transaction_status != self._driver.pq.TransactionStatus.IDLE:
                db.close()
            else:
                self._idle.append(db)

    def _connected(self) -> Database:
        if self._is_closed:
            raise StoreError(f"{self.place} was closed")
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                db: Database = self._driver.connect(**self._parameters())
                break
            except self._driver.Error as error:
                if not any(word in str(error) for word in _NOT_YET) or time.monotonic() > deadline:
                    raise self._refusal(error) from None
                time.sleep(0.05)
        try:
            with self.told(db):
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
        """Why there is no connection. Nothing was sent, so nothing was written."""
        said = self._said(error)
        if "authentication" in said or "pg_hba" in said or "no password" in said:
            return StoreError(f"{self.place} does not let the user {self.address.user} in ({said})")
        if "database" in said and "does not exist" in said:
            return StoreError(f"{self.place}: {said}. Make it first: createdb")
        return StoreUnreachable(f"{self.place} does not answer ({said}); nothing was written. Is the server running?")

    def _said(self, error: Error) -> str:
        """The driver's words in one line, without the password."""
        said = error.diag.message_primary or str(error)
        return self.address.hidden(" ".join(said.split()).removeprefix("connection failed: "))


def _has_news(db: Database) -> bool:
    """Whether something waits on the socket of a connection nobody asked anything: its end, mostly."""
    if db.closed:
        return True
    looking = select.poll()
    looking.register(db.pgconn.socket, select.POLLIN)
    return bool(looking.poll(0))


def _close_all(connections: list[Database], process: int) -> None:
    while connections and process == os.getpid():
        connections.pop().close()
