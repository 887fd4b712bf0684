"""`PrivateJson`: a JSON file of the chat that only its owner can read. One that other users can read is refused: its secrets must
be considered known."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from antiphon.errors import AntiphonError
from antiphon.json_text import NOT_JSON
from antiphon.private_files import read_private_file, write_private_file

T = TypeVar("T")


class PrivateJson(Generic[T]):
    """A file of `kind`; its problems are raised as `error`, and quote nothing of the file if that `is_secret`."""

    def __init__(self, path: Path, kind: type[T], error: type[AntiphonError], *, is_secret: bool = True) -> None:
        self.path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._error = error
        self._is_secret = is_secret

    def read(self) -> T | None:
        """What is stored; None without a file."""
        try:
            data = read_private_file(self.path)
        except OSError as error:
            raise self._error(f"cannot use {self.path}: {error.strerror or error}") from error
        try:
            return None if data is None else self._decoder.decode(data)
        except NOT_JSON as error:
            why = "" if self._is_secret else f": {error}"
            raise self._error(f"{self.path} cannot be read{why}; correct or delete it") from None

    def write(self, value: T) -> None:
        """Store the value; without any content the file is deleted."""
        try:
            if value:
                write_private_file(self.path, msgspec.json.format(msgspec.json.encode(value), indent=2))
            else:
                self.path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error(f"cannot write {self.path}: {error.strerror or error}") from error
