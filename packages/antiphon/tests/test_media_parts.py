"""Images, audio and documents from files and bytes: the content says what they are."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.errors import InvalidEntry

PNG = b"\x89PNG\r\n\x1a\n...."
WAV = b"RIFF\0\0\0\0WAVEfmt "
PDF = b"%PDF-1.7 ..."


@pytest.mark.parametrize(
    ("kind", "name", "data", "media_type"),
    [
        (ap.Image, "a.png", PNG, "image/png"),
        (ap.Image, "a.jpg", PNG, "image/png"),
        (ap.Image, "picture", PNG, "image/png"),
        (ap.Audio, "a.wav", WAV, "audio/wav"),
        (ap.Document, "a.pdf", PDF, "application/pdf"),
        (ap.Document, "a.png", PNG, "image/png"),
        (ap.Document, "a.mp4", b"\0\0\0\x18ftypisom", "video/mp4"),
    ],
)
def test_a_file_is_what_its_content_says(kind: Any, name: str, data: bytes, media_type: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    for part in (kind.from_file(tmp_path / name), kind.from_file(str(tmp_path / name))):
        assert (part.media_type, b64decode(part.data)) == (media_type, data)
    assert getattr(part, "name", name) == name


def test_text_is_a_document_of_text(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("\ufeff# Häuser", encoding="utf-8")
    expected = ap.Document("text/plain", text="# Häuser", name="notes.md")
    assert ap.Document.from_file(tmp_path / "notes.md") == expected
    assert ap.Document.from_bytes(b"plain") == ap.Document("text/plain", text="plain")


def test_a_declared_type_counts_where_the_bytes_leave_it_open() -> None:
    assert ap.Audio.from_bytes(b"\0\0\0\x18ftypisom", "audio/mp4").media_type == "audio/mp4"
    assert ap.Image.from_bytes(PNG, "image/jpeg").media_type == "image/png"
    assert ap.Document.from_bytes(b"PK\x03\x04\0", "application/zip").media_type == "application/zip"


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        (ap.Image, PDF, "the data is application/pdf, not image; Document.from_file takes other files"),
        (ap.Image, b"<svg/>", "the data is text/plain, not image"),
        (ap.Audio, PNG, "the data is image/png, not audio"),
        (ap.Audio, b"\0\1\2", "the data is of an unknown type, not audio"),
        (ap.Document, b"\0\1\2", "the data is of an unknown type; give it as media_type="),
        (ap.Image, b"", "the data is empty"),
    ],
)
def test_bytes_of_another_media_type_are_refused(kind: Any, data: bytes, problem: str) -> None:
    with pytest.raises(InvalidEntry, match=problem):
        kind.from_bytes(data)


@pytest.mark.parametrize("kind", [ap.Image, ap.Audio, ap.Document])
def test_bytes_are_refused_where_base64_is_expected(kind: Any) -> None:
    for given in ((PNG,), ("image/png", PNG)):
        with pytest.raises(TypeError, match=rf"data as base64; {kind.__name__}.from_bytes\(data\) takes bytes"):
            kind(*given)
    with pytest.raises(TypeError, match="from_bytes takes bytes, not str"):
        kind.from_bytes("iVBORw0=")


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ap.Image.from_file(tmp_path / "none.png")


def test_a_part_from_a_file_is_stored_and_sent_like_any_other(tmp_path: Path) -> None:
    picture = ap.Image.from_bytes(PNG)
    assert msgspec.json.decode(msgspec.json.encode(picture), type=ap.Image) == picture
    model = ap.ScriptedModel("A picture.")
    with ap.Conversation(model, store=tmp_path / "chats.db") as chat:
        ap.Agent("guide").run_sync("What is it?", picture, chat=chat)
    assert picture in model.calls[0].context[-1].content
