"""The full-text index: derived from the log, and no part of an append. A search first indexes what is new."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator

from antiphon.errors import StoreDamaged
from antiphon.history import search_text
from antiphon.history.entries import HistoryEntry
from antiphon.history.sqlite.body import entry_of
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.rows import SEQUENCE, SHIFT, StoredRow, entry_rows, tagged

logger = logging.getLogger(__name__)


class SaidIndex:
    """What was said, by word."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def find(self, query: str, limit: int, tag: str | None = None) -> list[int]:
        """The keys of the entries that say all of `query`, the best first; with a tag, of conversations that have it."""
        expression = search_text.match_expression(query)
        if not expression:
            return []
        if not self._file.read_only:
            self._catch_up()
        with self._file.reading() as db:
            which = (
                f"rowid >> {SHIFT} IN (SELECT c.number FROM conversations c WHERE {tagged(tag)})"
                if tag is not None
                else "true"
            )
            ranked = (
                f"SELECT rowid FROM said WHERE said MATCH :words AND {which} ORDER BY rank, rowid DESC LIMIT :limit"
            )
            found = [key for (key,) in db.execute(ranked, {"words": expression, "tag": tag, "limit": limit})]
            if self._file.read_only:  # what is not indexed, and cannot be, is read
                has_tag = f"SELECT 1 FROM conversations c WHERE c.number = :number AND {tagged(tag)}"
                found += (
                    key
                    for key in self._read_through(db, query)
                    if db.execute(has_tag, {"number": key >> SHIFT, "tag": tag}).fetchone()
                )
        return found[:limit]

    def entry_at(self, row: StoredRow) -> HistoryEntry | None:
        """The entry in a row; None for a damaged one: it must not keep the others from being found."""
        try:
            return entry_of(row)
        except StoreDamaged as error:
            key = row[0]
            place = (self._file.path, key & SEQUENCE, key >> SHIFT)
            logger.warning("%s: entry %d of conversation number %d is damaged: %s", *place, error)
            return None

    def _words_at(self, row: StoredRow) -> str:
        entry = self.entry_at(row)
        return search_text.searchable_text(entry) if entry is not None else ""

    def _catch_up(self) -> None:
        with self._file.reading() as db:
            behind = _behind(db)
        for number, _ in behind:
            with self._file.transaction() as db:
                self._index(db, number)

    def _index(self, db: sqlite3.Connection, number: int) -> None:
        # Asked again inside the transaction: another process may have indexed or deleted the conversation meanwhile.
        (indexed,) = db.execute(
            "SELECT max(CAST(indexed AS INTEGER)) FROM conversations WHERE number = ?", (number,)
        ).fetchone()
        if indexed is None:
            return
        entries = entry_rows(db, number, indexed + 1)
        for row in entries:
            if text := self._words_at(row):
                db.execute(
                    "INSERT OR REPLACE INTO said (rowid, words) VALUES (?, ?)", (row[0], search_text.index_text(text))
                )
        db.execute("UPDATE conversations SET indexed = indexed + ? WHERE number = ?", (len(entries), number))

    def _read_through(self, db: sqlite3.Connection, query: str) -> Iterator[int]:
        for number, indexed in _behind(db):
            for row in entry_rows(db, number, indexed + 1):
                if search_text.matches(self._words_at(row), query):
                    yield row[0]


def _behind(db: sqlite3.Connection) -> list[tuple[int, int]]:
    """The conversations that are not fully indexed, and how far they are."""
    behind = f"""
        SELECT number, CAST(indexed AS INTEGER) FROM conversations c WHERE EXISTS (SELECT 1 FROM entries
        WHERE key > (c.number << {SHIFT}) + c.indexed AND key < (c.number + 1) << {SHIFT})
    """
    return db.execute(behind).fetchall()
