"""The full-text index: derived from the log, and no part of an append. A search first indexes what is new.

What is indexed are the tokens that SQLite's index would hold (see `words`, and `tokens` below), so that both stores find the
same. The index proposes, the text decides: PostgreSQL gives the entries that hold every token of the query, best first, and each
is read before it is a hit, which it must be anyway for its excerpt. So phrases are exact however long a text is, and neither the
limits of an index row (a text with more different words than fit, a word of a million letters) nor its order of positions
can lose anything.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.errors import StoreDamaged, StoreReadOnly
from antiphon.history import search_text
from antiphon.history.entries import HistoryEntry
from antiphon.history.postgres.connections import Connections
from antiphon.history.postgres.rows import ENTRY_ROW, StoredRow, entry_of, plain, tagged
from antiphon.history.postgres.tables import LOCKS, lock_number

if TYPE_CHECKING:
    from antiphon.history.postgres.connections import Database

logger = logging.getLogger(__name__)

_BATCH = 500
_CONVERSATIONS = 100  # indexed at once
_PAGE = 2_000  # proposed at once
_LONGEST_TOKEN = 200  # characters; what is longer is indexed by its beginning
_MOST_BYTES = 700_000  # of an index row; PostgreSQL takes a million
_PLACES = 8  # of a token in a text that count for its rank; PostgreSQL takes places up to 16,383
_LAST_PLACE = 16_383
_TOKEN = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_PHRASE = re.compile(r'"([^"]*)"(\*?)')

_BEHIND = """
SELECT c.number, c.indexed FROM conversations c WHERE EXISTS (
    SELECT 1 FROM entries e WHERE e.number = c.number AND e.sequence > c.indexed)
"""
_NEW = f"""
SELECT number, {ENTRY_ROW} FROM conversations c JOIN entries USING (number)
WHERE number = ANY(%s) AND sequence > c.indexed ORDER BY number, sequence LIMIT %s
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
SELECT number, sequence FROM said WHERE (words @@ %(query)s::tsquery OR is_partial)
{which} ORDER BY ts_rank(words, %(query)s::tsquery, 1) DESC, number DESC, sequence DESC LIMIT %(page)s OFFSET %(known)s
"""
_TAGGED = "AND number IN (SELECT c.number FROM conversations c WHERE c.tags @> %(tags)s)"


class Found(Struct, frozen=True):
    """An entry that says all of a query, and where it is."""

    number: int
    entry: HistoryEntry
    text: str


class Phrase(Struct, frozen=True):
    """Tokens that follow each other; of the last one perhaps only the beginning."""

    tokens: tuple[str, ...]
    is_prefix: bool

    def is_in(self, text: Sequence[str]) -> bool:
        *firsts, last = self.tokens
        for place in range(len(text) - len(firsts)):
            end = text[place + len(firsts)]
            if (end.startswith(last) if self.is_prefix else end == last) and list(
                text[place : place + len(firsts)]
            ) == firsts:
                return True
        return False


class SaidIndex:
    """What was said, by word."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def find(self, query: str, limit: int, tag: str | None = None) -> list[Found]:
        """The entries that say all of `query`, the best first; with a tag, of conversations that have it."""
        phrases = phrases_of(query)
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
            if _says(found.text, phrases)
        )
        return list(islice(hits, limit))

    def words_of(self, number: int, row: StoredRow) -> str:
        """The words of an entry; none for a damaged one: it must not keep the others from being found."""
        entry = self._decoded(number, row)
        return search_text.searchable_text(entry) if entry is not None else ""

    def _decoded(self, number: int, row: StoredRow) -> HistoryEntry | None:
        try:
            return entry_of(row)
        except StoreDamaged as error:
            place = (self._connections.place, row[0], number)
            logger.warning("%s: entry %d of conversation number %d is damaged: %s", *place, error)
            return None

    def _proposed(self, phrases: Sequence[Phrase], page: int, tag: str | None) -> Iterator[tuple[int, int]]:
        asked = {
            f"'{token[:_LONGEST_TOKEN]}'{':*' if phrase.is_prefix or len(token) > _LONGEST_TOKEN else ''}"
            for phrase in phrases
            for token in phrase.tokens
        }
        query = " & ".join(sorted(asked))
        for known in count(0, page):
            given = {"query": query, "page": page, "known": known, "tags": [plain(tag or "")]}
            rows = self._connections.rows(_RANKED.format(which=_TAGGED if tag is not None else ""), given)
            yield from ((number, sequence) for number, sequence in rows)
            if len(rows) < page:
                return

    def _unindexed(self, tag: str | None) -> Iterator[tuple[int, int]]:
        unindexed = f"{_BEHIND} AND {tagged(tag)}"
        for number, indexed in self._connections.rows(unindexed, {"tags": [plain(tag or "")]}):
            behind = "SELECT sequence FROM entries WHERE number = %s AND sequence > %s ORDER BY sequence"
            for (sequence,) in self._connections.rows(behind, (number, indexed)):
                yield number, sequence

    def _read(self, keys: Iterator[tuple[int, int]]) -> Iterator[Found]:
        """The entries under these keys, in their order."""
        these = f"""
            SELECT number, {ENTRY_ROW} FROM unnest(%s::bigint[], %s::int[]) WITH ORDINALITY AS asked (number, sequence, place)
            JOIN entries USING (number, sequence) ORDER BY place
        """
        while batch := list(islice(keys, _BATCH)):
            for number, *row in self._connections.rows(these, [list(column) for column in zip(*batch, strict=True)]):
                if (entry := self._decoded(number, tuple(row))) is not None:
                    yield Found(number, entry, search_text.searchable_text(entry))

    def _catch_up(self) -> None:
        behind = [number for number, _ in self._connections.rows(_BEHIND)]
        for first in range(0, len(behind), _CONVERSATIONS):
            is_behind = True
            while is_behind:
                with self._connections.transaction() as db:
                    is_behind = self._index(db, behind[first : first + _CONVERSATIONS])

    def _index(self, db: Database, numbers: Sequence[int]) -> bool:
        """Index the next entries of some conversations; whether there may be more."""
        # One process at a time, and the conversations are touched last: whoever appends hardly waits for this.
        db.execute(
            "SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, lock_number(self._connections.address.schema, "index"))
        )
        entries = db.execute(_NEW, (numbers, _BATCH), binary=True).fetchall()
        rows = []
        for number, *row in entries:
            if said := tokens(self.words_of(number, tuple(row))):
                vector, is_whole = _vector(said)
                rows.append((number, row[0], vector, not is_whole))
        if rows:
            db.execute(_INSERT, [list(column) for column in zip(*rows, strict=True)])
        reached = {number: sequence for number, sequence, *_ in entries}
        db.execute(_REACHED, (list(reached), list(reached.values())))
        return len(entries) == _BATCH


def phrases_of(query: str) -> list[Phrase]:
    """What a text must hold to be found."""
    return [
        Phrase(tuple(said), bool(star))
        for quoted, star in _PHRASE.findall(search_text.match_expression(query))
        if (said := _split(quoted))
    ]


def tokens(text: str) -> list[str]:
    """The tokens of a text, in order: pairs of Chinese characters, and words without case or accents."""
    return _split(search_text.index_text(text))


def _split(text: str) -> list[str]:
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", text.casefold()))
    return _TOKEN.findall(unicodedata.normalize("NFC", bare))


def _says(text: str, phrases: Sequence[Phrase]) -> bool:
    said = tokens(text)
    return all(phrase.is_in(said) for phrase in phrases)


def _vector(said: Sequence[str]) -> tuple[str, bool]:
    """The tokens as an index row, and whether it holds all of them."""
    places: dict[str, list[str]] = {}
    for place, token in enumerate(said, 1):
        seen = places.setdefault(token[:_LONGEST_TOKEN], [])
        if len(seen) < _PLACES:
            seen.append(str(min(place, _LAST_PLACE)))
    size, kept = 0, list[str]()
    for token, seen in places.items():
        size += len(token.encode()) + 2 * len(seen) + 8
        if size > _MOST_BYTES:
            return " ".join(kept), False
        kept.append(f"'{token}':{','.join(seen)}")
    return " ".join(kept), True
