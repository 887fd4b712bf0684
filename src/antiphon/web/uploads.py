"""What a person may send: words, pictures and documents, each checked to be what it says it is, and none too large.

A picture or a PDF is told by how it begins, not by its name. A text file becomes text: every model reads that. What was sent
before, in this conversation or in the one it was forked from, is named by its place and not sent again.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from antiphon.history import HistoryEntry, ModelInputEntry
from antiphon.parts import Document, Image, InputPart, Text
from antiphon.web.refusal import Refused
from antiphon.wire.media import sniff_bytes

MEBIBYTE = 1024 * 1024
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
IMAGE_BYTES = 10 * MEBIBYTE
DOCUMENT_BYTES = 20 * MEBIBYTE
MESSAGE_BYTES = 40 * MEBIBYTE
TEXT_CHARACTERS = 4_000_000
MOST_PARTS = 20
_NAME_LENGTH = 200


class TextGiven(Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    """Words."""

    text: str


class ImageGiven(Struct, frozen=True, tag="image", forbid_unknown_fields=True):
    """A picture, as base64."""

    media_type: str
    data: str
    name: str = ""


class DocumentGiven(Struct, frozen=True, tag="document", forbid_unknown_fields=True):
    """A file, as base64."""

    media_type: str
    data: str
    name: str = ""


class PartGiven(Struct, frozen=True, tag="part", forbid_unknown_fields=True):
    """A part of a message that was sent before: the number of its entry, and which of its parts, from 0."""

    conversation: str
    entry: int
    part: int

    def of(self, entries: Sequence[HistoryEntry]) -> InputPart:
        """The part, out of the entries of that conversation."""
        entry = entries[self.entry - 1] if 0 < self.entry <= len(entries) else None
        if not isinstance(entry, ModelInputEntry) or not 0 <= self.part < len(entry.content):
            raise Refused(f"conversation {self.conversation} has no part {self.part} of a message {self.entry}")
        return entry.content[self.part]


Given: TypeAlias = TextGiven | ImageGiven | DocumentGiven | PartGiven


def parts_of(content: Sequence[Given], known: Mapping[PartGiven, InputPart]) -> tuple[InputPart, ...]:
    """The parts of a message; `known` are those that were sent before. Raises `Refused` for what is too large, or is not what
    it says it is."""
    if len(content) > MOST_PARTS:
        raise Refused(f"a message has at most {MOST_PARTS} parts, and this one has {len(content)}", 413, "too_large")
    if sum(len(_data(given)) for given in content) > MESSAGE_BYTES * 4 // 3 + 4 * MOST_PARTS:
        raise Refused(f"a message has at most {MESSAGE_BYTES // MEBIBYTE} MiB altogether", 413, "too_large")
    parts = [known[given] if isinstance(given, PartGiven) else _part(given) for given in content]
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise Refused("the message is empty; say something")
    return tuple(part for part in parts if not isinstance(part, Text) or part.text)


def _data(given: Given) -> str:
    if isinstance(given, PartGiven):
        return ""
    return given.text if isinstance(given, TextGiven) else given.data


def _part(given: TextGiven | ImageGiven | DocumentGiven) -> InputPart:
    if isinstance(given, TextGiven):
        if len(given.text) > TEXT_CHARACTERS:
            raise Refused(f"a text has at most {TEXT_CHARACTERS:,} characters; attach it as a file", 413, "too_large")
        return Text(given.text)
    limit = IMAGE_BYTES if isinstance(given, ImageGiven) else DOCUMENT_BYTES
    what = given.name[:_NAME_LENGTH] or given.media_type[:_NAME_LENGTH]
    if len(given.data) > limit * 4 // 3 + 4:
        raise Refused(f"{what} is larger than {limit // MEBIBYTE} MiB", 413, "too_large")
    try:
        data = b64decode(given.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"{what} is not sent as base64: {error}") from error
    kind = sniff_bytes(data, given.media_type)
    if isinstance(given, ImageGiven):
        if kind not in IMAGE_TYPES:
            raise _unsupported(what, "a PNG, JPEG, GIF or WebP picture")
        return Image(media_type=kind, data=given.data)
    if kind == "application/pdf":
        return Document(media_type=kind, data=given.data, name=given.name[:_NAME_LENGTH])
    if kind is None or not kind.startswith("text/"):
        raise _unsupported(what, "a PDF or a text file")
    return Document(media_type="text/plain", text=data.decode(), name=given.name[:_NAME_LENGTH])


def _unsupported(what: str, wanted: str) -> Refused:
    return Refused(f"{what} is not {wanted}; nothing else is taken here", 415, "unsupported_media")
