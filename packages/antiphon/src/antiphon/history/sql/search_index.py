"""The full-text index: derived from the log, and not part of an append. A search first indexes what is new.

Both stores index the same tokens (see `search_text`), so both find the same. SQLite's FTS5 decides itself what matches. In
PostgreSQL the index proposes and the text decides: it returns the entries with every token of the query, best first, and each
is read before it is a hit, which its excerpt needs anyway. So phrases are exact however long a text is, and neither the limits
of an index row (too many different words, a word of a million letters) nor its positions can lose a hit.
"""

from __future__ import annotations

import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.errors import StoreDamaged, StoreReadOnly
from antiphon.history.codec import StoredRow, row_entry
from antiphon.history.entries import HistoryEntry
from antiphon.history.search_text import (
    Phrase,
    index_text,
    match_expression,
    matches,
    query_phrases,
    searchable_text,
    tokens,
)
from antiphon.history.sql.schema import SEQUENCE, SHIFT

if TYPE_CHECKING:
    from antiphon.history.sql.dialect import Dialect
    from antiphon.history.sql.postgres import PostgresDialect
    from antiphon.history.sql.postgres_connections import PostgresConnection
    from antiphon.history.sql.sqlite import SqliteDialect

logger = logging.getLogger("antiphon.history")

_BATCH = 500
_CONVERSATIONS = 100  # indexed at once
_PAGE = 2_000  # proposed at once
_MAX_TOKEN = 200  # characters; a longer one is indexed by its beginning
_MAX_ROW_BYTES = 700_000  # PostgreSQL accepts a million
_MAX_POSITIONS = 8  # of a token in a text that count for its rank
_LAST_POSITION = 16_383  # PostgreSQL accepts no higher one


class Found(Struct, frozen=True):
    """An entry that matches a query."""

    number: int
    entry: HistoryEntry
    text: str


class SearchIndex(ABC):
    """Finds entries by their words."""

    def __init__(self, dialect: Dialect) -> None:
        self._location = dialect.location

    @abstractmethod
    def find(self, query: str, limit: int, tag: str | None = None) -> list[Found]:
        """The entries that match `query`, the best first; with a tag, of conversations that have it."""

    def entry_at(self, number: int, row: StoredRow) -> HistoryEntry | None:
        """The entry in a row; None for a damaged one: it must not keep the others from being found."""
        try:
            return row_entry(row)
        except StoreDamaged as error:
            place = (self._location, row[0], number)
            logger.warning("%s: entry %d of conversation number %d is damaged: %s", *place, error)
            return None

    def text_at(self, number: int, row: StoredRow) -> str:
        entry = self.entry_at(number, row)
        return searchable_text(entry) if entry is not None else ""

    def _found(self, number: int, rows: Sequence[StoredRow]) -> Iterator[Found]:
        for row in rows:
            if (entry := self.entry_at(number, row)) is not None:
                yield Found(number, entry, searchable_text(entry))


class Fts5Index(SearchIndex):
    """The index of an SQLite file; the rowid of a text is the key of its entry."""

    def __init__(self, dialect: SqliteDialect) -> None:
        super().__init__(dialect)
        self._dialect = dialect
        self._file = dialect.file

    def find(self, query: str, limit: int, tag: str | None = None) -> list[Found]:
        expression = match_expression(query)
        if not expression:
            return []
        if not self._file.read_only:
            self._catch_up()
        tagged = f"AND rowid >> {SHIFT} IN (SELECT c.number FROM conversations c WHERE {self._dialect.has_tag})"
        ranked = f"""
            SELECT rowid FROM said WHERE said MATCH :words {tagged if tag is not None else ""}
            ORDER BY rank, rowid DESC LIMIT :limit
        """
        keys = [key for (key,) in self._dialect.rows(ranked, words=expression, tag=tag, limit=limit)]
        if self._file.read_only:  # what is not indexed, and cannot be, is read
            keys += islice(self._scan(query, tag), max(0, limit - len(keys)))
        return [hit for key in keys for hit in self._at(key >> SHIFT, key & SEQUENCE)]

    def _at(self, number: int, sequence: int) -> Iterator[Found]:
        return self._found(number, self._dialect.read_entries(number, sequence, sequence))

    def _catch_up(self) -> None:
        for number, _ in self._unindexed():
            with self._dialect.transaction() as db:
                self._index(db, number)

    def _index(self, db: sqlite3.Connection, number: int) -> None:
        # Asked again inside the transaction: another process may have indexed or deleted the conversation meanwhile.
        indexed: Any
        (indexed,) = db.execute(
            "SELECT max(CAST(indexed AS INTEGER)) FROM conversations WHERE number = ?", (number,)
        ).fetchone()
        if indexed is None:
            return
        rows = self._dialect.read_entries_in(db, number, indexed + 1)
        for row in rows:
            if text := self.text_at(number, row):
                values = (number << SHIFT | row[0], index_text(text))
                db.execute("INSERT OR REPLACE INTO said (rowid, words) VALUES (?, ?)", values)
        db.execute("UPDATE conversations SET indexed = indexed + ? WHERE number = ?", (len(rows), number))

    def _scan(self, query: str, tag: str | None) -> Iterator[int]:
        for number, indexed in self._unindexed(tag):
            for row in self._dialect.read_entries(number, indexed + 1):
                if matches(self.text_at(number, row), query):
                    yield number << SHIFT | row[0]

    def _unindexed(self, tag: str | None = None) -> Sequence[tuple[Any, ...]]:
        """The conversations that are not fully indexed, and how far they are."""
        unindexed = f"""
            SELECT number, CAST(indexed AS INTEGER) FROM conversations c WHERE EXISTS (SELECT 1 FROM entries
            WHERE key > (c.number << {SHIFT}) + c.indexed AND key < (c.number + 1) << {SHIFT})
            {f"AND {self._dialect.has_tag}" if tag is not None else ""}
        """
        return self._dialect.rows(unindexed, tag=tag)


_UNINDEXED = """
SELECT c.number, c.indexed FROM conversations c WHERE EXISTS (
    SELECT 1 FROM entries e WHERE e.number = c.number AND e.sequence > c.indexed)
"""
_INSERT = """
INSERT INTO said (number, sequence, words, is_partial)
SELECT number, sequence, words::tsvector, is_partial
FROM unnest(%s::bigint[], %s::int[], %s::text[], %s::boolean[]) AS new (number, sequence, words, is_partial)
"""
_REACHED = """
UPDATE conversations c SET indexed = reached.sequence
FROM unnest(%s::bigint[], %s::int[]) AS reached (number, sequence) WHERE c.number = reached.number
"""
_RANKED = """
SELECT number, sequence FROM said WHERE (words @@ CAST(:query AS tsquery) OR is_partial) {tagged}
ORDER BY ts_rank(words, CAST(:query AS tsquery), 1) DESC, number DESC, sequence DESC LIMIT :page OFFSET :known
"""


class TsvectorIndex(SearchIndex):
    """The index of a PostgreSQL database."""

    def __init__(self, dialect: PostgresDialect) -> None:
        super().__init__(dialect)
        self._dialect = dialect

    def find(self, query: str, limit: int, tag: str | None = None) -> list[Found]:
        phrases = query_phrases(query)
        if not phrases or not limit:
            return []
        unindexed: Iterator[tuple[int, int]] = iter(())
        try:
            self._catch_up()
        except StoreReadOnly:  # what is not indexed, and cannot be, is read
            unindexed = self._unindexed(tag)
        hits = (
            found
            for keys in (self._proposed(phrases, max(_PAGE, 2 * limit), tag), unindexed)
            for found in self._read(keys)
            if _has_phrases(found.text, phrases)
        )
        return list(islice(hits, limit))

    def _proposed(self, phrases: Sequence[Phrase], page: int, tag: str | None) -> Iterator[tuple[int, int]]:
        wanted = {
            f"'{token[:_MAX_TOKEN]}'{':*' if phrase.is_prefix or len(token) > _MAX_TOKEN else ''}"
            for phrase in phrases
            for token in phrase.tokens
        }
        query = " & ".join(sorted(wanted))
        tagged = f"AND number IN (SELECT c.number FROM conversations c WHERE {self._dialect.has_tag})"
        ranked = _RANKED.format(tagged=tagged if tag is not None else "")
        for known in count(0, page):
            rows = self._dialect.rows(ranked, query=query, page=page, known=known, tag=tag)
            yield from ((number, sequence) for number, sequence in rows)
            if len(rows) < page:
                return

    def _unindexed(self, tag: str | None) -> Iterator[tuple[int, int]]:
        unindexed = f"{_UNINDEXED} AND {self._dialect.has_tag}" if tag is not None else _UNINDEXED
        for number, indexed in self._dialect.rows(unindexed, tag=tag):
            rest = "SELECT sequence FROM entries WHERE number = :number AND sequence > :indexed ORDER BY sequence"
            for (sequence,) in self._dialect.rows(rest, number=number, indexed=indexed):
                yield number, sequence

    def _read(self, keys: Iterator[tuple[int, int]]) -> Iterator[Found]:
        """The entries under these keys, in their order."""
        these = f"""
            SELECT number, {self._dialect.entry_columns}
            FROM unnest(%s::bigint[], %s::int[]) WITH ORDINALITY AS wanted (number, sequence, place)
            JOIN entries USING (number, sequence) ORDER BY place
        """
        while batch := list(islice(keys, _BATCH)):
            columns = [list(column) for column in zip(*batch, strict=True)]
            for number, *row in self._dialect.connections.rows(these, columns):
                yield from self._found(number, [tuple(row)])

    def _catch_up(self) -> None:
        numbers = [number for number, _ in self._dialect.rows(_UNINDEXED)]
        for first in range(0, len(numbers), _CONVERSATIONS):
            has_more = True
            while has_more:
                with self._dialect.transaction() as db:
                    has_more = self._index(db, numbers[first : first + _CONVERSATIONS])

    def _index(self, db: PostgresConnection, numbers: Sequence[int]) -> bool:
        """Index the next entries of some conversations; whether there may be more."""
        # One process at a time, and the conversations are changed last: appends hardly wait for this.
        self._dialect.lock(db, "index")
        new = f"""
            SELECT number, {self._dialect.entry_columns} FROM conversations c JOIN entries USING (number)
            WHERE number = ANY(%s) AND sequence > c.indexed ORDER BY number, sequence LIMIT %s
        """
        entries = db.execute(new.encode(), (numbers, _BATCH), binary=True).fetchall()
        rows = []
        for number, *row in entries:
            if found := tokens(self.text_at(number, tuple(row))):
                vector, is_whole = _vector(found)
                rows.append((number, row[0], vector, not is_whole))
        if rows:
            db.execute(_INSERT, [list(column) for column in zip(*rows, strict=True)])
        reached = {number: sequence for number, sequence, *_ in entries}
        db.execute(_REACHED, (list(reached), list(reached.values())))
        return len(entries) == _BATCH


def _has_phrases(text: str, phrases: Sequence[Phrase]) -> bool:
    found = tokens(text)
    return all(phrase.is_in(found) for phrase in phrases)


def _vector(found: Sequence[str]) -> tuple[str, bool]:
    """The tokens as an index row, and whether it holds all of them."""
    positions: dict[str, list[str]] = {}
    for position, token in enumerate(found, 1):
        seen = positions.setdefault(token[:_MAX_TOKEN], [])
        if len(seen) < _MAX_POSITIONS:
            seen.append(str(min(position, _LAST_POSITION)))
    size, kept = 0, list[str]()
    for token, seen in positions.items():
        size += len(token.encode()) + 2 * len(seen) + 8
        if size > _MAX_ROW_BYTES:
            return " ".join(kept), False
        kept.append(f"'{token}':{','.join(seen)}")
    return " ".join(kept), True
