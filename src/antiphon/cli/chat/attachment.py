"""Files in a message: `@path`, or `@"a path with spaces"`, where there is such a file.

A picture goes as a picture, a PDF as a document, text as a document the model reads; anything else is refused by name, before
anything is sent. A word behind an @ that names no file is a word. What is piped in goes the same way.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

from antiphon.errors import AntiphonError
from antiphon.parts import Document, Image, InputPart, Text
from antiphon.web.uploads import IMAGE_TYPES
from antiphon.wire.media import sniff_bytes

LARGEST = 20_000_000
"""How many bytes of a file are taken: more than any provider does."""

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


class UnsupportedFile(AntiphonError):
    """A file that cannot go into a message."""


def content_of(message: str) -> list[InputPart]:
    """The parts of a message: its text as it was typed, and the files it mentions."""
    return [Text(message), *(attachment(path) for path in mentioned(message))]


def mentioned(message: str) -> list[Path]:
    """The files a message mentions, in order, each once."""
    named = (quoted or plain.rstrip(",.;:!?)") for quoted, plain in _MENTION.findall(message))
    paths = dict.fromkeys(Path(name).expanduser() for name in named if name)
    return [path for path in paths if _is_file(path)]


def attachment(path: Path) -> InputPart:
    """A file as a part of a message. Raises `UnsupportedFile`."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UnsupportedFile(f"cannot read {path}: {error.strerror or error}") from error
    return part_of(data, path.name)


def part_of(data: bytes, name: str) -> InputPart:
    """Bytes as a part of a message: a picture, a PDF, or text. Raises `UnsupportedFile`."""
    if len(data) > LARGEST:
        raise UnsupportedFile(
            f"{name} has more than {LARGEST // 1_000_000} MB, which no provider takes; give a part of it"
        )
    if not data.strip():
        raise UnsupportedFile(f"{name} is empty; there is nothing in it to send")
    kind = sniff_bytes(data, "text/plain") or ""
    if kind in IMAGE_TYPES:
        return Image(kind, base64.b64encode(data).decode())
    if kind == "application/pdf":
        return Document(kind, base64.b64encode(data).decode(), name=name)
    if not kind.startswith("text/"):
        raise UnsupportedFile(
            f"{name} is no picture (png, jpeg, gif, webp), no PDF and no text in UTF-8; convert it first"
        )
    return Document("text/plain", text=data.decode("utf-8-sig"), name=name)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a character no file has
        return False
