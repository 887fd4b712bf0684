"""A folder of documents: which files of it can be read, and as what text.

Read are Markdown, plain text and HTML. Everything else is left alone, and so are hidden files and folders (they hold settings and
secrets), and links: a link may lead out of the folder, and what it leads to inside is found where it is. A file is looked at
again when it is opened, so that no link and no pipe that never ends can take its place in between.

Nothing in a folder can make reading it fail. A file that is binary in spite of its name, or cannot be opened, is a document
without words; of a huge one the beginning is read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from msgspec import Struct

from antiphon.errors import DocumentsUnreadable

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
    """What a document says."""

    title: str
    text: str


def find_files(folder: Path) -> Iterator[FoundFile]:
    """The files of the folder that look like documents. Raises `DocumentsUnreadable` if the folder itself cannot be read."""
    try:
        top = list(os.scandir(folder))
    except OSError as error:
        raise DocumentsUnreadable(
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
    text = _decoded(_first_bytes(folder / path))
    suffix = _suffix(name)
    heading = ""
    if suffix in HTML:
        heading, text = _shown(text)
    elif suffix in MARKDOWN and (found := _HEADING.search(text)):
        heading = re.sub(r"[*`]", "", found[1])
    return DocumentText(" ".join(heading.split())[:_TITLE_LENGTH] or Path(name).stem, text)


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


def _decoded(data: bytes) -> str:
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


def _shown(html: str) -> tuple[str, str]:
    """The title of a page, and what a reader of it sees."""
    page = _Page()
    page.feed(html)
    page.close()
    lines = (" ".join(line.split()) for line in "".join(page.pieces).splitlines())
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
