"""Images and audio of trajectories: as files in a folder, for formats that refer to media by path.

A file is named after the digest of its content, so the same picture is stored once. Media with a web address keep it.
Without a folder, media in the history have no path: they are reported as lost, with the option that would have kept them.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from antiphon.errors import StoreError
from antiphon.parts import Audio, Image
from antiphon.private_files import make_private_folder, open_private_file
from antiphon.wire.media import file_name, is_web_url, media_type_of_url, sniff_base64


class StoredMedia(Struct, frozen=True):
    """Where a medium is (a path or a web address), and its type."""

    path: str
    media_type: str


class MediaFolder:
    """Stores media in `folder`; None: nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def store(self, part: Image | Audio) -> StoredMedia | str:
        """Where the medium is, or why it has no path."""
        if part.url and is_web_url(part.url):
            return StoredMedia(part.url, part.media_type or media_type_of_url(part.url))
        if not part.data:
            return "stored at a provider, under an id that only its API knows"
        if self._folder is None:
            return "it is not a file; --media FOLDER writes it to one"
        try:
            content = b64decode(part.data, validate=True)
        except (binascii.Error, ValueError):
            return "its data is not base64"
        media_type = sniff_base64(part.data) or part.media_type
        name = f"{sha256(content).hexdigest()[:32]}{Path(file_name(media_type)).suffix}"
        self._write(self._folder / name, content)
        return StoredMedia(str(self._folder / name), media_type)

    def _write(self, path: Path, content: bytes) -> None:
        if path.exists():
            return
        try:
            make_private_folder(path.parent)
            with open(open_private_file(path), "wb") as file:
                file.write(content)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
