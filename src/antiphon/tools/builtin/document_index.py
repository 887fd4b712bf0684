"""`DocumentIndex`: a full-text search over a folder of documents, in English and Chinese alike.

The index is derived from the folder. A search first compares the files with what the index knows of them (their times and
sizes) and reads only those that are new or changed, in one transaction; so an index kept in a file is ready when the next
process opens it, and two processes may share it. Words are indexed as `history.words` says: Chinese in overlapping pairs,
English by its stems.

People ask in sentences, and no document has all their words. Documents with all the words come first; then, if there is
room, those with some, the rarest words counting most, and a title counting more than the text below it.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable
from itertools import islice, pairwise
from pathlib import Path

from msgspec import Struct

from antiphon.errors import DocumentsUnreadable
from antiphon.history import search_text
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon.tools.builtin.documents import MOST_FILES, DocumentText, find_files, read_document
from antiphon.tools.builtin.excerpt import marked_excerpt

_APPLICATION_ID = 0x414E5450 + 2
_SCHEMA = 1
_TABLES = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY,
    path   TEXT NOT NULL UNIQUE,
    stamp  TEXT NOT NULL,
    title  TEXT NOT NULL,
    text   TEXT NOT NULL
);
CREATE VIRTUAL TABLE spoken USING fts5 (title, body, tokenize = "porter unicode61 remove_diacritics 2");
"""
_RANKED = "SELECT rowid FROM spoken WHERE spoken MATCH ? ORDER BY bm25(spoken, 5.0, 1.0), rowid LIMIT ?"

_WORD = re.compile(r"\w+")
_FILLERS = """
a about an and are as at be by can do does for from good have how i in is it me my need needs of on or please some that the
their this to was we what when where which who why will with would you your
什么 怎么 怎样 如何 需要 可以 一个 我们 你们 帮我 请问 哪些
"""
_SAY_LITTLE = frozenset(_FILLERS.split())


class FoundDocument(Struct, frozen=True):
    """A document that was found, and the place in it where the words are."""

    path: str
    title: str
    excerpt: str
    has_all_words: bool


class FoundDocuments(Struct, frozen=True):
    """What a search found, the best first, among how many documents."""

    found: tuple[FoundDocument, ...]
    searched: int


class DocumentIndex:
    """The documents of a folder, by word. `index` is the file to keep the index in."""

    def __init__(self, folder: str | os.PathLike[str], index: str | os.PathLike[str] = ":memory:") -> None:
        """Look at the folder; its files are read by the first search. Raises `DocumentsUnreadable`."""
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise DocumentsUnreadable(f"there is no folder {folder} to search; make it, or name another")
        self._file = SqliteFile(
            os.fspath(index),
            tables=_TABLES,
            application_id=_APPLICATION_ID,
            schema=_SCHEMA,
            timeout=30.0,
            read_only=False,
            create=True,
        )

    def close(self) -> None:
        self._file.close()

    def search(self, query: str, limit: int = 5) -> FoundDocuments:
        """The documents that say what is asked for, the best first. Raises `DocumentsUnreadable`."""
        asked = asked_words(query)
        self._catch_up()
        with self._file.writing() as db:
            (searched,) = db.execute("SELECT count(*) FROM documents WHERE text <> ''").fetchone()
            whole = _ranked(db, search_text.match_expression(query), limit)
            partly = _ranked(db, " OR ".join(map(_matching, asked)), limit + len(whole))
            numbers = [*whole, *(number for number in partly if number not in whole)][:limit]
            return FoundDocuments(
                tuple(_shown(db, number, asked, is_whole=number in whole) for number in numbers), searched
            )

    def _catch_up(self) -> None:
        """Bring the index to the state of the folder."""
        files = {file.path: file.stamp for file in islice(find_files(self.folder), MOST_FILES)}
        with self._file.writing() as db:
            if _stamps(db) == files:
                return
        with self._file.transaction() as db:
            known = _stamps(db)  # asked again: another process may have been here meanwhile
            for path in known.keys() - files.keys():
                _forget(db, path)
            for path, stamp in files.items():
                if known.get(path) != stamp:
                    _forget(db, path)
                    _learn(db, path, stamp, read_document(self.folder, path))


def asked_words(query: str) -> list[str]:
    """The words of a query, Chinese in pairs, without those that say little (unless there are no others)."""
    found = _WORD.findall(search_text.index_text(query).casefold())
    # A run of Chinese ends with its last character alone, which its last pair has already.
    told = [word for before, word in pairwise(["", *found]) if len(word) > 1 or word.isascii() or before[1:] != word]
    telling = [word for word in dict.fromkeys(told) if word not in _SAY_LITTLE]
    return telling or list(dict.fromkeys(told))


def _matching(word: str) -> str:
    """The word in the index's own language. A single character of Chinese stands at the beginning of a pair."""
    return f'"{word}"*' if len(word) == 1 and not word.isascii() else f'"{word}"'


def _ranked(db: sqlite3.Connection, expression: str, limit: int) -> list[int]:
    return [number for (number,) in db.execute(_RANKED, (expression, limit))] if expression else []


def _shown(db: sqlite3.Connection, number: int, asked: Iterable[str], *, is_whole: bool) -> FoundDocument:
    path, title, text = db.execute("SELECT path, title, text FROM documents WHERE number = ?", (number,)).fetchone()
    return FoundDocument(path, title, marked_excerpt(text, asked), is_whole)


def _stamps(db: sqlite3.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT path, stamp FROM documents"))


def _forget(db: sqlite3.Connection, path: str) -> None:
    db.execute("DELETE FROM spoken WHERE rowid = (SELECT number FROM documents WHERE path = ?)", (path,))
    db.execute("DELETE FROM documents WHERE path = ?", (path,))


def _learn(db: sqlite3.Connection, path: str, stamp: str, document: DocumentText) -> None:
    number = db.execute(
        "INSERT INTO documents (path, stamp, title, text) VALUES (?, ?, ?, ?)",
        (path, stamp, document.title, document.text),
    ).lastrowid
    spoken = (number, search_text.index_text(document.title), search_text.index_text(document.text))
    db.execute("INSERT INTO spoken (rowid, title, body) VALUES (?, ?, ?)", spoken)
