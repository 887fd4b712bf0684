"""What a person may send in a message: text, images, PDFs and text files.

The type of a file comes from its content, not from its name, and the same function accepts files of the terminal (`@path`, or
`@"a path with spaces"`, and standard input) and of the page (base64 in JSON). A text file becomes text, which every model reads.
A part that was sent before, in this conversation or the one it was forked from, is named by its position and not sent again.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.history import HistoryEntry, ModelInputEntry
from antiphon.media_types import sniff_bytes
from antiphon.parts import Document, Image, InputPart, Text

MEBIBYTE = 1024 * 1024
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
IMAGE_BYTES = 10 * MEBIBYTE
"""The limit of an image on the page; from the terminal it is `MAX_FILE_BYTES`."""
MAX_FILE_BYTES = 20 * MEBIBYTE
MESSAGE_BYTES = 40 * MEBIBYTE
TEXT_CHARACTERS = 4_000_000
MAX_PARTS = 20
_NAME_LENGTH = 200
_MENTION = re.compile(r'(?<!\S)@(?!@)(?:"([^"\n]+)"|(\S+))')
_ESCAPED = re.compile(r"(?<!\S)@@")
_LOOKS_LIKE_FILE = re.compile(r"/|\\|^~|\.\w{1,8}$")


class UploadError(AntiphonError):
    """Something that cannot be part of a message."""


class UploadTooLarge(UploadError):
    """A part, or a whole message, over a limit."""


class UnsupportedFile(UploadError):
    """A file that is neither an image, nor a PDF, nor text."""


# One file.


def file_part(
    data: bytes, name: str, media_type: str = "text/plain", *, limit: int = MAX_FILE_BYTES
) -> Image | Document:
    """The content of a file as a part of a message. Raises `UploadError`.

    `media_type` is the declared type; it is used only where the content is ambiguous.
    """
    label = name or media_type[:_NAME_LENGTH]
    if len(data) > limit:
        raise _too_large(label, limit)
    if not data.strip():
        raise UploadError(f"{label} is empty")
    kind = sniff_bytes(data, media_type) or ""
    if kind in IMAGE_TYPES:
        return Image(kind, base64.b64encode(data).decode())
    if kind == "application/pdf":
        return Document(kind, base64.b64encode(data).decode(), name=name)
    if not kind.startswith("text/"):
        raise UnsupportedFile(f"{label} is not an image (PNG, JPEG, GIF, WebP), a PDF or UTF-8 text; convert it first")
    return Document("text/plain", text=data.decode("utf-8-sig"), name=name)


def _too_large(name: str, limit: int) -> UploadTooLarge:
    return UploadTooLarge(f"{name} is larger than {limit // MEBIBYTE} MiB; send a part of it")


# Messages of the terminal.


def parse_message(message: str) -> list[InputPart]:
    """The parts of a typed message: its text, and the files it mentions. `@@` is a plain @. Raises `UploadError`."""
    return [Text(_ESCAPED.sub("@", message)), *map(read_file, mentioned_files(message))]


def mentioned_files(message: str) -> list[Path]:
    """The files that a message mentions, in order, each once. Raises `UploadError` for one that does not exist.

    A word after an @ that does not look like a file (no quotes, no slash, no ending) is a word, unless a file has that name.
    """
    named = [
        (
            quoted or plain.rstrip(",.;:!?)"),
            bool(quoted) or _LOOKS_LIKE_FILE.search(plain.rstrip(",.;:!?)")) is not None,
        )
        for quoted, plain in _MENTION.findall(message)
    ]
    paths: dict[Path, None] = {}
    for name, is_path in named:
        path = Path(name).expanduser() if name else None
        if path is not None and _is_file(path):
            paths[path] = None
        elif path is not None and is_path:
            raise UploadError(f"@{name}: no such file; correct the name, or write @@{name} to send it as text")
    return list(paths)


def read_file(path: Path) -> InputPart:
    """A file as a part of a message. Raises `UploadError`."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UploadError(f"cannot read {path}: {error.strerror or error}") from error
    return file_part(data, path.name)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a character no file name has
        return False


# Messages of the page.


class TextUpload(Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    """Typed text."""

    text: str


class ImageUpload(Struct, frozen=True, tag="image", forbid_unknown_fields=True):
    """An image, as base64."""

    media_type: str
    data: str
    name: str = ""


class DocumentUpload(Struct, frozen=True, tag="document", forbid_unknown_fields=True):
    """A file, as base64."""

    media_type: str
    data: str
    name: str = ""


class ExistingPart(Struct, frozen=True, tag="part", forbid_unknown_fields=True):
    """A part of a message that was sent before: the number of its entry, and the index of the part."""

    conversation: str
    entry: int
    part: int

    def find(self, entries: Sequence[HistoryEntry]) -> InputPart:
        """The part, out of the entries of that conversation."""
        entry = entries[self.entry - 1] if 0 < self.entry <= len(entries) else None
        if not isinstance(entry, ModelInputEntry) or not 0 <= self.part < len(entry.content):
            raise UploadError(f"conversation {self.conversation} has no part {self.part} in a message {self.entry}")
        return entry.content[self.part]


Upload: TypeAlias = TextUpload | ImageUpload | DocumentUpload | ExistingPart


def message_parts(content: Sequence[Upload], existing: Mapping[ExistingPart, InputPart]) -> tuple[InputPart, ...]:
    """The parts of a message; `existing` has those that were sent before. Raises `UploadError`."""
    if len(content) > MAX_PARTS:
        raise UploadTooLarge(f"the message has {len(content)} parts; the limit is {MAX_PARTS}")
    room = MESSAGE_BYTES * 4 // 3 + 4 * MAX_PARTS
    parts: list[InputPart] = []
    is_empty = True
    for upload in content:
        if isinstance(upload, ExistingPart):
            part = existing[upload]
        else:
            room -= len(upload.text if isinstance(upload, TextUpload) else upload.data)
            if room < 0:
                raise UploadTooLarge(f"the message is larger than {MESSAGE_BYTES // MEBIBYTE} MiB")
            part = _part(upload)
        if not isinstance(part, Text) or part.text:
            parts.append(part)
            is_empty = is_empty and isinstance(part, Text) and not part.text.strip()
    if is_empty:
        raise UploadError("empty message")
    return tuple(parts)


def _part(upload: TextUpload | ImageUpload | DocumentUpload) -> InputPart:
    if isinstance(upload, TextUpload):
        if len(upload.text) > TEXT_CHARACTERS:
            raise UploadTooLarge(f"the text is longer than {TEXT_CHARACTERS:,} characters; attach it as a file")
        return Text(upload.text)
    limit = IMAGE_BYTES if isinstance(upload, ImageUpload) else MAX_FILE_BYTES
    name = upload.name[:_NAME_LENGTH]
    label = name or upload.media_type[:_NAME_LENGTH]
    if len(upload.data) > limit * 4 // 3 + 4:
        raise _too_large(label, limit)
    try:
        data = base64.b64decode(upload.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UploadError(f"{label} is not valid base64: {error}") from error
    part = file_part(data, name, upload.media_type, limit=limit)
    if isinstance(part, Image) != isinstance(upload, ImageUpload):
        wanted = "an image (PNG, JPEG, GIF, WebP)" if isinstance(upload, ImageUpload) else "a PDF or a text file"
        raise UnsupportedFile(f"{label} is not {wanted}")
    return part
