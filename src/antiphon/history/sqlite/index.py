"""The full-text index: derived from the log, and no part of an append. A search first indexes what is new."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator

from antiphon.errors import StoreDamaged
from antiphon.history import words
from antiphon.history.codec import decode_entry
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.rows import SEQUENCE, SHIFT, ConversationRow, bodies, rows

logger = logging.getLogger(__name__)


class SaidIndex:
    """What was said, by word."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def find(self, query: str, limit: int) -> list[int]:
        """The keys of the entries that say all of `query`, the best first."""
        expression = words.match_expression(query)
        if not expression:
            return []
        if not self._file.read_only:
            self._catch_up()
        with self._file.reading() as db:
            ranked = "SELECT rowid FROM said WHERE said MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
            found = [key for (key,) in db.execute(ranked, (expression, limit))]
            if self._file.read_only:  # what is not indexed, and cannot be, is read
                found += self._read_through(db, query)
        return found[:limit]

    def words_of(self, key: int, body: bytes) -> str:
        """The words of an entry; of a damaged one, none: it must not keep the others from being found."""
        try:
            return words.said(decode_entry(body))
        except StoreDamaged as error:
            place = (self._file.path, key & SEQUENCE, key >> SHIFT)
            logger.warning("%s: entry %d of conversation number %d is damaged: %s", *place, error)
            return ""

    def _catch_up(self) -> None:
        with self._file.reading() as db:
            behind = _behind(db)
        for row in behind:
            with self._file.transaction() as db:
                self._index(db, row.number)

    def _index(self, db: sqlite3.Connection, number: int) -> None:
        # Asked again inside the transaction: another process may have indexed or deleted the conversation meanwhile.
        (indexed,) = db.execute("SELECT max(indexed) FROM conversations WHERE number = ?", (number,)).fetchone()
        if indexed is None:
            return
        entries = bodies(db, number, indexed + 1)
        for key, body in entries:
            if text := self.words_of(key, body):
                db.execute("INSERT INTO said (rowid, words) VALUES (?, ?)", (key, words.index_text(text)))
        db.execute("UPDATE conversations SET indexed = indexed + ? WHERE number = ?", (len(entries), number))

    def _read_through(self, db: sqlite3.Connection, query: str) -> Iterator[int]:
        for row in _behind(db):
            for key, body in bodies(db, row.number, row.indexed + 1):
                if words.says(self.words_of(key, body), query):
                    yield key


def _behind(db: sqlite3.Connection) -> list[ConversationRow]:
    """The conversations that are not fully indexed."""
    return [row for row in rows(db) if row.version > row.indexed]
