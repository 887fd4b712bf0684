"""`DocumentIndex`: full-text search over a folder: reading documents, indexing them in SQLite, and excerpts of matches."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from itertools import islice, pairwise
from pathlib import Path

from msgspec import Struct

from antiphon.errors import DocumentFolderError
from antiphon.history import search_text
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon.text import one_line

_WIDTH = 500
_BEFORE = 60
_LOOKED_AT = 5_000
_MARKUP = re.compile(r"^[ \t]*(?:#{1,6}|>|[-+*](?= )|\|)[ \t]*|\*\*|__|`+", re.MULTILINE)
_ENDING = re.compile(r"(?:ing|ed|es|s)$")


def marked_excerpt(text: str, terms: Iterable[str]) -> str:
    """The best place of the text for the words; its beginning if none of them is found letter by letter."""
    line = one_line(_MARKUP.sub("", text))
    spans = list(islice(_spans(line, terms), _LOOKED_AT))
    begin = _word_edge(line, max(0, min(_best_start(spans) - _BEFORE, len(line) - _WIDTH)))
    end = min(len(line), begin + _WIDTH)
    if end < len(line):
        end = line.rfind(" ", end - 20, end) if " " in line[end - 20 : end] else end
    pieces: list[str] = []
    place = begin
    for first, last in _merge(spans):
        if first >= begin and last <= end:
            pieces += (line[place:first], "**", line[first:last], "**")
            place = last
    pieces.append(line[place:end])
    return ("…" if begin else "") + "".join(pieces) + ("…" if end < len(line) else "")


def _spans(line: str, terms: Iterable[str]) -> Iterable[tuple[int, int]]:
    """The positions of the words, overlapping ones too."""
    patterns = [_pattern(word) for word in terms]
    if patterns:
        for found in re.finditer(f"(?=({'|'.join(patterns)}))", line, re.IGNORECASE):
            yield found.start(1), found.end(1)


def _pattern(word: str) -> str:
    if not word.isascii():
        return re.escape(word)
    stem = _ENDING.sub("", word) if len(word) > 4 else word
    return rf"\b{re.escape(stem)}\w{{0,20}}" if len(stem) > 3 else rf"\b{re.escape(stem)}\b"


def _best_start(spans: list[tuple[int, int]]) -> int:
    """Where the excerpt with the most marked characters begins."""
    best = most = marked = first = 0
    for last, (begin, end) in enumerate(spans):
        marked += end - begin
        while end - spans[first][0] > _WIDTH - _BEFORE:
            marked -= spans[first][1] - spans[first][0]
            first += 1
        if marked > most and first <= last:
            best, most = spans[first][0], marked
    return best


def _word_edge(line: str, place: int) -> int:
    """The beginning of a word at `place` or soon after it."""
    edge = line.find(" ", place - 1, place + 20) if place else -1
    return edge + 1 if edge >= 0 else place


def _merge(spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Spans that touch, as one."""
    first = last = -1
    for begin, end in spans:
        if begin > last:
            if last > first:
                yield first, last
            first, last = begin, end
        else:
            last = max(last, end)
    if last > first:
        yield first, last


MARKDOWN = frozenset({".md", ".markdown", ".mdx"})
HTML = frozenset({".html", ".htm", ".xhtml"})
PLAIN = frozenset({".txt", ".text", ".rst", ".org", ".adoc"})

READ_BYTES = 2_000_000
MOST_FILES = 20_000

_NOT_SHOWN = frozenset({"script", "style", "template", "noscript", "svg", "title"})
_IN_LINE = frozenset(
    {"a", "abbr", "b", "code", "em", "i", "mark", "q", "s", "small", "span", "strong", "sub", "sup", "u"}
)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_TITLE_LENGTH = 120


class FoundFile(Struct, frozen=True):
    """A file that may be a document. `stamp` changes when it does."""

    path: str
    """Relative to the folder, with slashes."""
    stamp: str


class DocumentText(Struct, frozen=True):
    """The text of a document."""

    title: str
    text: str


def find_files(folder: Path) -> Iterator[FoundFile]:
    """The files of the folder that look like documents. Raises `DocumentFolderError` if the folder itself cannot be read."""
    try:
        top = list(os.scandir(folder))
    except OSError as error:
        raise DocumentFolderError(
            f"the folder of documents {folder} cannot be read: {error.strerror or error}"
        ) from error
    waiting = [("", top)]
    while waiting:
        prefix, entries = waiting.pop()
        for entry in entries:
            if entry.name.startswith(".") or not _is_text(entry.name):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((f"{prefix}{entry.name}/", list(os.scandir(entry.path))))
                elif entry.is_file(follow_symlinks=False) and _suffix(entry.name) in MARKDOWN | HTML | PLAIN:
                    about = entry.stat(follow_symlinks=False)
                    yield FoundFile(prefix + entry.name, f"{about.st_mtime_ns} {about.st_size} {about.st_ino}")
            except OSError:  # gone meanwhile, or a folder that is not ours to read
                continue


def read_document(folder: Path, path: str) -> DocumentText:
    """The document at `path` in the folder; one without text if it cannot be read."""
    name = path.rpartition("/")[2]
    text = _decode(_first_bytes(folder / path))
    suffix = _suffix(name)
    heading = ""
    if suffix in HTML:
        heading, text = _page_text(text)
    elif suffix in MARKDOWN and (found := _HEADING.search(text)):
        heading = re.sub(r"[*`]", "", found[1])
    return DocumentText(one_line(heading)[:_TITLE_LENGTH] or Path(name).stem, text)


def _is_text(name: str) -> bool:
    """Whether a file's name can be written down; one in an encoding the system does not use cannot."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _first_bytes(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return b""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        try:
            return file.read(READ_BYTES)
        except OSError:
            return b""


def _decode(data: bytes) -> str:
    """The text of the bytes: by their mark, as UTF-8, or in the older encodings of Chinese and Western files."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" in data[:8192]:
        return ""
    if len(data) == READ_BYTES:
        return data.decode("utf-8-sig", "ignore")  # the cut may have gone through a character
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")


def _page_text(html: str) -> tuple[str, str]:
    """The title of a page, and what a reader of it sees."""
    page = _Page()
    page.feed(html)
    page.close()
    lines = (one_line(line) for line in "".join(page.pieces).splitlines())
    return "".join(page.title or page.heading), "\n".join(line for line in lines if line)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.title: list[str] = []
        self.heading: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in _NOT_SHOWN or tag == "h1":
            self._open.append(tag)
        if tag not in _IN_LINE:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[self._open.index(tag) :]
        if tag not in _IN_LINE:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if self._open == ["title"]:
            self.title.append(data)
        elif inside not in _NOT_SHOWN:
            self.pieces.append(data)
            if inside == "h1":
                self.heading.append(data)


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
_STOP_WORDS = frozenset(_FILLERS.split())


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
        """Look at the folder; its files are read by the first search. Raises `DocumentFolderError`."""
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise DocumentFolderError(f"there is no folder {folder} to search; make it, or name another")
        self._file = SqliteFile(
            os.fspath(index),
            tables=_TABLES,
            application_id=_APPLICATION_ID,
            schema=_SCHEMA,
            timeout=30.0,
        )

    def close(self) -> None:
        self._file.close()

    def search(self, query: str, limit: int = 5) -> FoundDocuments:
        """The documents that match the query, the best first. Raises `DocumentFolderError`."""
        terms = query_terms(query)
        self._catch_up()
        with self._file.writing() as db:
            (searched,) = db.execute("SELECT count(*) FROM documents WHERE text <> ''").fetchone()
            whole = _rank(db, search_text.match_expression(query), limit)
            partly = _rank(db, " OR ".join(map(_match_word, terms)), limit + len(whole))
            numbers = [*whole, *(number for number in partly if number not in whole)][:limit]
            return FoundDocuments(
                tuple(_to_document(db, number, terms, is_whole=number in whole) for number in numbers), searched
            )

    def _catch_up(self) -> None:
        """Bring the index to the state of the folder."""
        files = {file.path: file.stamp for file in islice(find_files(self.folder), MOST_FILES)}
        with self._file.writing() as db:
            if _stamps(db) == files:
                return
        with self._file.transaction() as db:
            known = _stamps(db)  # read again: another process may have updated it meanwhile
            for path in known.keys() - files.keys():
                _remove_document(db, path)
            for path, stamp in files.items():
                if known.get(path) != stamp:
                    _remove_document(db, path)
                    _index_document(db, path, stamp, read_document(self.folder, path))


def query_terms(query: str) -> list[str]:
    """The words of a query, Chinese in pairs, without stop words (unless there are no others)."""
    found = _WORD.findall(search_text.index_text(query).casefold())
    # A run of Chinese ends with its last character alone, which its last pair has already.
    words = [word for before, word in pairwise(["", *found]) if len(word) > 1 or word.isascii() or before[1:] != word]
    significant = [word for word in dict.fromkeys(words) if word not in _STOP_WORDS]
    return significant or list(dict.fromkeys(words))


def _match_word(word: str) -> str:
    """The word in the index's own language. A single character of Chinese matches the beginning of a pair."""
    return f'"{word}"*' if len(word) == 1 and not word.isascii() else f'"{word}"'


def _rank(db: sqlite3.Connection, expression: str, limit: int) -> list[int]:
    return [number for (number,) in db.execute(_RANKED, (expression, limit))] if expression else []


def _to_document(db: sqlite3.Connection, number: int, terms: Iterable[str], *, is_whole: bool) -> FoundDocument:
    path, title, text = db.execute("SELECT path, title, text FROM documents WHERE number = ?", (number,)).fetchone()
    return FoundDocument(path, title, marked_excerpt(text, terms), is_whole)


def _stamps(db: sqlite3.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT path, stamp FROM documents"))


def _remove_document(db: sqlite3.Connection, path: str) -> None:
    db.execute("DELETE FROM spoken WHERE rowid = (SELECT number FROM documents WHERE path = ?)", (path,))
    db.execute("DELETE FROM documents WHERE path = ?", (path,))


def _index_document(db: sqlite3.Connection, path: str, stamp: str, document: DocumentText) -> None:
    number = db.execute(
        "INSERT INTO documents (path, stamp, title, text) VALUES (?, ?, ?, ?)",
        (path, stamp, document.title, document.text),
    ).lastrowid
    spoken = (number, search_text.index_text(document.title), search_text.index_text(document.text))
    db.execute("INSERT INTO spoken (rowid, title, body) VALUES (?, ?, ?)", spoken)
