"""`Tape`: an SQLite file of exchanges, each a request and the answer to it with the time of every piece.

An exchange is written when its answer ends, in one statement, so a killed process loses only what was still being answered. A
closed tape is a single file, which can be committed with the tests that use it. Secrets are removed before something is written
(`redaction`); the names that were removed beyond the usual ones are kept in the file, because a request is compared without them.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import StoreDamaged, StoreError, TapeError
from antiphon.history.sql.sqlite_file import SqliteFile

APPLICATION_ID = 0x414E5454  # "ANTT": neither a history, nor the state or the ledger of a gateway
SCHEMA = 1

_TABLES = """
CREATE TABLE exchanges (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at              INTEGER NOT NULL,   -- microseconds since 1970, when the request arrived
    method          TEXT NOT NULL,
    path            TEXT NOT NULL,
    query           TEXT NOT NULL,      -- a JSON object, as both headers
    request_headers TEXT NOT NULL,
    request_body    BLOB NOT NULL,      -- zlib
    status          INTEGER NOT NULL,
    headers         TEXT NOT NULL,
    head_after      INTEGER NOT NULL,   -- microseconds from the request to the head of the answer
    is_stream       INTEGER NOT NULL,
    is_cut          INTEGER NOT NULL,   -- the answer has no end: the client left, or the upstream broke off
    pieces          BLOB NOT NULL       -- zlib of msgpack: a list of (microseconds since the head, bytes)
);
CREATE INDEX requests ON exchanges (method, path);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_REQUEST_COLUMNS = ("at", "method", "path", "query", "request_headers", "request_body")
_COLUMNS = (*_REQUEST_COLUMNS, "status", "headers", "head_after", "is_stream", "is_cut", "pieces")
_INSERT = f"INSERT INTO exchanges ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_SELECT = f"SELECT id, {', '.join(_COLUMNS)} FROM exchanges"
_REQUESTS = f"SELECT id, {', '.join(_REQUEST_COLUMNS)} FROM exchanges ORDER BY id"
_REDACTED = "redacted"

_pieces = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
_fields = msgspec.json.Decoder(dict[str, str])
_names = msgspec.json.Decoder(list[str])


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """A request. `body` is that of the client, without secrets; names of headers are in lower case."""

    id: int = 0
    """Its number on the tape; 0: it is not on one."""
    at: int = 0
    method: str
    path: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""


class RecordedAnswer(Struct, frozen=True, kw_only=True):
    """An answer. `head_after` counts from the request, the times of the `pieces` from the head, both in microseconds."""

    status: int
    headers: dict[str, str] = {}
    head_after: int = 0
    is_stream: bool = False
    is_cut: bool = False
    pieces: list[tuple[int, bytes]] = []

    @property
    def body(self) -> bytes:
        """All of it, as far as it came."""
        return b"".join([piece for _, piece in self.pieces])

    @property
    def duration(self) -> float:
        """Seconds from the request to the last piece."""
        return (self.head_after + (self.pieces[-1][0] if self.pieces else 0)) / 1_000_000


class Exchange(Struct, frozen=True):
    """A request and the answer to it."""

    request: RecordedRequest
    answer: RecordedAnswer


class Tape:
    """An open tape. A missing file is created only with `records`; without it the file is not changed, except by `delete`."""

    def __init__(self, path: str | os.PathLike[str], *, records: bool = False, edits: bool = False) -> None:
        self.path = os.fspath(path)
        self._writes = records or edits
        if not records and not os.path.exists(self.path):
            raise TapeError(f"there is no tape at {self.path}; record one: `antiphon serve --record {self.path}`")
        if records and not (folder := Path(self.path).absolute().parent).is_dir():
            raise TapeError(f"cannot create the tape {self.path}: the folder {folder} does not exist")
        with self._reported():
            self._file = SqliteFile(
                self.path,
                tables=_TABLES,
                application_id=APPLICATION_ID,
                schema=SCHEMA,
                timeout=10.0,
                read_only=not self._writes,
                create=records,
                is_shareable=True,
            )
            try:
                self._check()
            except BaseException:
                self._file.close()
                raise

    def _check(self) -> None:
        if self._writes:
            with self._file.writing() as db:
                # What was committed survives the process without a sync for each exchange; only a power failure may take it.
                db.execute("PRAGMA synchronous = NORMAL")
        with self._file.reading() as db:
            (problem,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise StoreDamaged(" ".join(str(problem).replace("*** in database main ***", "").split()))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise what is wrong with the file as a `TapeError`."""
        try:
            yield
        except TapeError:
            raise
        except StoreDamaged as error:
            if "not modified" in str(error) or "is empty" in str(error):
                raise TapeError(f"not a tape: {error}") from error
            raise TapeError(f"the tape {self.path} is damaged ({error}); delete it and record it again") from error
        except StoreError as error:
            raise TapeError(f"tape: {error}") from error
        except (zlib.error, msgspec.MsgspecError, sqlite3.Error) as error:
            raise TapeError(f"the tape {self.path} is damaged ({error}); delete it and record it again") from error

    def add(self, exchange: Exchange) -> int:
        """Write an exchange, and return its number. It survives the process when this returns."""
        request, answer = exchange.request, exchange.answer
        values = (
            request.at,
            request.method,
            request.path,
            _json(request.query),
            _json(request.headers),
            zlib.compress(request.body),
            answer.status,
            _json(answer.headers),
            answer.head_after,
            answer.is_stream,
            answer.is_cut,
            zlib.compress(msgspec.msgpack.encode(answer.pieces)),
        )
        with self._reported(), self._file.writing() as db:
            return int(db.execute(_INSERT, values).lastrowid or 0)

    def requests(self) -> Iterator[RecordedRequest]:
        """All requests, in the order of their ends."""
        with self._reported(), self._file.reading() as db:
            yield from map(_request, db.execute(_REQUESTS))

    def exchanges(self, numbers: Iterable[int] | None = None) -> Iterator[Exchange]:
        """Exchanges with these numbers, or all. Raises `TapeError` for a number that the tape does not have."""
        with self._reported(), self._file.reading() as db:
            if numbers is None:
                yield from map(_exchange, db.execute(f"{_SELECT} ORDER BY id"))
                return
            for number in numbers:
                row = db.execute(f"{_SELECT} WHERE id = ?", (number,)).fetchone()
                if row is None:
                    raise self._unknown(number)
                yield _exchange(row)

    def answer(self, number: int) -> RecordedAnswer:
        """The answer of an exchange."""
        (found,) = self.exchanges([number])
        return found.answer

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete exchanges: all of these numbers, or none if the tape lacks one of them."""
        with self._reported(), self._file.transaction() as db:
            for number in numbers:
                if not db.execute("DELETE FROM exchanges WHERE id = ?", (number,)).rowcount:
                    raise self._unknown(number)
        with self._reported(), self._file.writing() as db:
            db.execute("VACUUM")  # what was deleted is gone from the file, too

    @property
    def redacted(self) -> tuple[str, ...]:
        """Names of headers and fields that are removed from this tape, beyond those that always are."""
        with self._reported(), self._file.reading() as db:
            row = db.execute("SELECT value FROM settings WHERE name = ?", (_REDACTED,)).fetchone()
            return tuple(_names.decode(row[0])) if row is not None else ()

    def redact_also(self, names: Iterable[str]) -> tuple[str, ...]:
        """Remove these names from now on, and return all of them."""
        known = self.redacted
        wanted = tuple(sorted({*known, *(name.lower() for name in names)}))
        if wanted != known:
            with self._reported(), self._file.writing() as db:
                db.execute(
                    "INSERT INTO settings VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (_REDACTED, _json(wanted)),
                )
        return wanted

    def close(self) -> None:
        """Close the file; what was recorded is then in this one file, without a journal beside it."""
        self._file.close(without_journal=True)

    def _unknown(self, number: int) -> TapeError:
        return TapeError(f"{self.path} has no exchange {number}; see `antiphon tape list {self.path}`")


def _request(row: tuple[Any, ...]) -> RecordedRequest:
    number, at, method, path, query, headers, body = row
    return RecordedRequest(
        id=number,
        at=at,
        method=method,
        path=path,
        query=_fields.decode(query),
        headers=_fields.decode(headers),
        body=zlib.decompress(body),
    )


def _exchange(row: tuple[Any, ...]) -> Exchange:
    status, headers, head_after, is_stream, is_cut, pieces = row[7:]
    answer = RecordedAnswer(
        status=status,
        headers=_fields.decode(headers),
        head_after=head_after,
        is_stream=bool(is_stream),
        is_cut=bool(is_cut),
        pieces=_pieces.decode(zlib.decompress(pieces)),
    )
    return Exchange(_request(row[:7]), answer)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
