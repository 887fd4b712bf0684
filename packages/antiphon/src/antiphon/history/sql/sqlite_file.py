"""`SqliteFile`: an SQLite file that is opened, migrated, read and written, with its errors translated; `SqliteDatabase` over it.

Every thread reads through a connection of its own, and in WAL mode reading never waits. Writing goes through one connection
under a lock; other processes wait at SQLite's lock, at most `timeout` seconds. Nothing but this module sees an
`sqlite3.Error`, except constraint violations, which mean something to the store.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from antiphon.errors import StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly
from antiphon.history.codec import from_microseconds, to_microseconds
from antiphon.history.sql.database import Database, Rows
from antiphon.private_files import create_private_file, warn_if_exposed
from antiphon.text import replace_lone_surrogates

_MEMORY = ":memory:"
_ROWS_IN_STATEMENT = 100


class SqliteFile:
    """An open SQLite file with our header. A new one gets `tables`, which are of version `tables_schema` (by default the oldest
    that `migrations` start from); then it gets, as an older one, the `migrations` it lacks.

    A migration, by the version it starts from, only adds: programs that have the file open can still read what they know.
    """

    def __init__(
        self,
        path: str,
        *,
        tables: str,
        application_id: int,
        schema: int,
        timeout: float,
        read_only: bool = False,
        create: bool = True,
        migrations: Mapping[int, str] = MappingProxyType({}),
        tables_schema: int | None = None,
        is_shareable: bool = False,
    ) -> None:
        """`is_shareable`: what is in it may be read by others, so its mode is not warned about."""
        self.path = path
        self.read_only = read_only
        self._timeout = timeout
        self._application_id = application_id
        self._schema = schema
        self._migrations = migrations
        self._tables_schema = schema - len(migrations) if tables_schema is None else tables_schema
        self.schema = 0
        """The version of what is in the file; below ours only if it was opened for reading."""
        self._lock = threading.RLock()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False
        self._errors = _Errors(path, timeout)
        self._writing: _Writing | None = None
        weakref.finalize(
            self, _close_all, self._connections
        )  # a file that was not closed is closed with its last reference
        self._check_path(create)
        try:
            # Not every program that opens a file writes to it. The connection to write with is made by the first one that does.
            with self._errors:
                db = self._connect()
                if path == _MEMORY:  # a database in memory belongs to its one connection
                    self._writing = _Writing(db, self._lock, self._errors)
                else:
                    self._local.reading = _Reading(db, self._errors)
                if not self._check_header(db):  # the journal mode of another program's file is not changed
                    self._create_tables(tables)
                elif self.schema < schema and not read_only:
                    self._migrate()
        except BaseException:
            self.close()
            raise
        if path != _MEMORY and not is_shareable:  # now that it is known to be ours
            warn_if_exposed(path)

    def write(self, statement: str, values: Sequence[object]) -> int:
        """Execute one statement, durable by itself; returns how many rows it changed."""
        with self._lock:
            try:
                return (self._writing or self._open_writer()).cursor.execute(statement, values).rowcount
            except Exception as error:
                self._errors.translate(error)
                raise

    def read(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The result of one query."""
        if self.path == _MEMORY:
            with self.writing() as db:
                return db.execute(statement, values).fetchall()
        reading: _Reading = getattr(self._local, "reading", None) or self._open_reader()
        try:
            return reading.connection.execute(statement, values).fetchall()
        except Exception as error:
            self._errors.translate(error)
            raise

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection to read with; what is read in one `with` may come from several moments, each consistent."""
        if self.path == _MEMORY:
            return self.writing()
        reading: _Reading | None = getattr(self._local, "reading", None)
        return self._open_reader() if reading is None or self._closed else reading

    def _open_reader(self) -> _Reading:
        with self._errors:
            reading = self._local.reading = _Reading(self._connect(), self._errors)
        return reading

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection to write with: all is stored when the block ends well, and nothing otherwise."""
        with self.writing() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection on which each statement is durable by itself."""
        return self._writing or self._open_writer()

    def _open_writer(self) -> _Writing:
        if self.read_only:
            raise StoreReadOnly(f"{self.path} was opened for reading only")
        with self._lock, self._errors:
            if self._writing is None:
                db = self._connect()
                self._use_wal(db)
                db.execute("PRAGMA synchronous = FULL")
                # A journal that is begun again after a MiB is written over, which costs a quarter less than making it longer.
                db.execute("PRAGMA wal_autocheckpoint = 256")
                db.execute("PRAGMA fullfsync = ON")  # where an ordinary fsync does not reach the disk
                self._writing = _Writing(db, self._lock, self._errors)
            return self._writing

    def close(self, *, without_journal: bool = False) -> None:
        """Close the file. `without_journal` leaves a single file without a journal, unless others have it open."""
        with self._lock:
            self._closed = True
            if without_journal and not self.read_only and self._connections:
                last = self._connections.pop()
                _close_all(self._connections)
                with suppress(sqlite3.Error):
                    last.execute("PRAGMA journal_mode = DELETE")
                last.close()
            _close_all(self._connections)

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"{self.path} was closed")
        connection = sqlite3.connect(
            self._uri(), uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        self._connections.append(connection)
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to the write-ahead log. SQLite does not wait when another process creates the same file just now; we do."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def _uri(self) -> str:
        if self.path == _MEMORY:
            return "file::memory:"
        uri = Path(self.path).absolute().as_uri()
        if not self.read_only:
            return f"{uri}?mode=rwc"
        # A WAL file in a folder we cannot write is readable only if no other process writes it; without a -wal, none does.
        still = not os.access(Path(self.path).absolute().parent, os.W_OK) and not os.path.exists(f"{self.path}-wal")
        return f"{uri}?immutable=1" if still else f"{uri}?mode=ro"

    def _check_path(self, create: bool) -> None:
        if self.path == _MEMORY:
            return
        if os.path.isdir(self.path):
            raise StoreError(f"{self.path} is a folder; a store is a file")
        if not os.path.exists(self.path):
            folder = Path(self.path).absolute().parent
            if not create or self.read_only:
                raise StoreError(f"there is no store at {self.path}")
            if not folder.is_dir():
                raise StoreError(f"cannot create {self.path}: the folder {folder} does not exist")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise StoreReadOnly(f"cannot create {self.path}: the folder {folder} is not writable")
            try:
                create_private_file(self.path)  # SQLite would apply the umask
            except OSError as error:
                refused = StoreFull if error.errno == errno.ENOSPC else StoreReadOnly
                raise refused(f"cannot create {self.path}: {error.strerror or error}") from error

    def _check_header(self, db: sqlite3.Connection) -> bool:
        # One statement, so that all three are of one moment: another process may be creating the tables.
        application_id, schema, tables = db.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if not schema and not tables:
            return False
        if application_id != self._application_id:
            raise StoreDamaged(f"{self.path} is an SQLite database of another program; it was not modified")
        if schema > self._schema:
            raise StoreError(
                f"{self.path} was written by a newer Antiphon (schema {schema}, this one knows {self._schema}); upgrade"
            )
        self.schema = schema
        return True

    def _create_tables(self, tables: str) -> None:
        if self.read_only:
            raise StoreDamaged(f"{self.path} is empty; it is not a store yet")
        with self.transaction() as db:
            if self._check_header(db):  # another process was faster
                return
            _run(db, tables)
            db.execute(f"PRAGMA application_id = {self._application_id}")
            self.schema = self._tables_schema
            self._apply_migrations(db)

    def _migrate(self) -> None:
        with self.transaction() as db:
            self._check_header(db)  # checked again: another process may have been faster
            self._apply_migrations(db)

    def _apply_migrations(self, db: sqlite3.Connection) -> None:
        for version in range(self.schema, self._schema):
            _run(db, self._migrations[version])
        db.execute(f"PRAGMA user_version = {self._schema}")
        self.schema = self._schema


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


def wall_time() -> int:
    """The microseconds since 1970, by the clock of the machine."""
    return time.time_ns() // 1_000


@cache
def _time_names(statement: str) -> tuple[str, ...]:
    return tuple(set(re.findall(r":(now|lease_now|lease_end|never)\b", statement)))


def _bind_for_sqlite(value: object) -> object:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, datetime):
        return to_microseconds(value)
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple | dict) else value


class _Errors:
    """Raises errors of SQLite in a block as `StoreError`. It does not refer to the file, which would never be forgotten."""

    __slots__ = ("_path", "_timeout")

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.translate(error)

    def translate(self, error: BaseException) -> None:
        """Raise an error of SQLite as one of ours. The others, and constraint violations, are left to the caller."""
        if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
            raise self._to_store_error(error) from error
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes what is damaged, and Python cannot read the quotation
            raise StoreDamaged(
                f"{self._path} is corrupt ({error}); restore a backup, or export the readable conversations"
            )

    def _to_store_error(self, error: sqlite3.Error) -> StoreError:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the low byte is the kind, the rest its details
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StoreLocked(
                    f"{self._path} is locked by another process (waited {self._timeout:g} s); try again when it is done"
                )
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return StoreReadOnly(f"{self._path} cannot be written: {error}")
            case sqlite3.SQLITE_CANTOPEN:
                return StoreReadOnly(
                    f"{self._path} cannot be opened: its folder or file may not be accessible to this user"
                )
            case sqlite3.SQLITE_FULL:
                return StoreFull(f"{self._path}: no space left; nothing was written. Make room and try again")
            case sqlite3.SQLITE_IOERR:
                return StoreFull(f"{self._path}: the disk refused ({error}); nothing was written")
            case sqlite3.SQLITE_NOTADB:
                return StoreDamaged(f"{self._path} is not an SQLite database; it was not modified")
            case sqlite3.SQLITE_CORRUPT:
                return StoreDamaged(
                    f"{self._path} is corrupt ({error}); restore a backup, or export the readable conversations"
                )
            case _ if "closed database" in str(error):
                return StoreError(f"{self._path} was closed")
            case _ if "decode to UTF-8" in str(error):
                return StoreDamaged(
                    f"{self._path} is corrupt ({error}); restore a backup, or export the readable conversations"
                )
            case _:
                return StoreError(f"{self._path}: {error}")


class _Reading:
    """A connection to read with. These two are context managers without a generator: there is one around every statement."""

    __slots__ = ("_errors", "connection")

    def __init__(self, connection: sqlite3.Connection, errors: _Errors) -> None:
        self.connection = connection
        self._errors = errors

    def __enter__(self) -> sqlite3.Connection:
        return self.connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._errors.translate(error)


class _Writing:
    """The connection to write with, for one thread at a time; and a cursor for single statements."""

    __slots__ = ("_errors", "_lock", "connection", "cursor")

    def __init__(self, connection: sqlite3.Connection, lock: threading.RLock, errors: _Errors) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self._lock = lock
        self._errors = errors

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        return self.connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._lock.release()
        if error is not None:
            self._errors.translate(error)


def _run(db: sqlite3.Connection, script: str) -> None:
    """Run statements inside the transaction, which `executescript` would end."""
    for statement in script.split(";\n"):
        db.execute(statement)  # the last one is empty, and does nothing


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()
