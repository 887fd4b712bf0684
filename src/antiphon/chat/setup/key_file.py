"""The API keys that a person asked the chat to store: a small JSON file that only its owner can read, by variable name.

It is written whole under another name and renamed, with mode 0600 from the start. A file that other users can read is refused:
its keys must be considered known.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from antiphon.errors import ProviderSetupError
from antiphon.history.private_files import make_private_folder, open_private_file

NAME = "keys.json"
_OTHERS = 0o077
_decoder = msgspec.json.Decoder(dict[str, str])


def read_keys(folder: Path | None) -> dict[str, str]:
    """The stored keys by the name of their variable; none without a file. Raises `ProviderSetupError`."""
    if folder is None:
        return {}
    path = folder / NAME
    try:
        data = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ProviderSetupError(f"cannot read {path}: {error.strerror or error}") from error
    if mode & _OTHERS:
        raise ProviderSetupError(f"{path} has API keys and other users can read it; run: chmod 600 {path}")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # without the cause, which may quote a key
        raise ProviderSetupError(f"{path} is not a JSON object of keys; correct or delete it") from None


def write_keys(folder: Path, keys: dict[str, str]) -> None:
    """Replace the stored keys; without any, the file is deleted. Raises `ProviderSetupError`."""
    path = folder / NAME
    place = path.with_name(f".{NAME}.{os.getpid()}")
    try:
        make_private_folder(folder)
        if not keys:
            path.unlink(missing_ok=True)
            return
        place.unlink(missing_ok=True)
        with os.fdopen(open_private_file(place), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(keys), indent=2))
            file.flush()
            os.fsync(file.fileno())
        os.replace(place, path)
    except OSError as error:
        with suppress(OSError):
            place.unlink(missing_ok=True)
        raise ProviderSetupError(f"cannot write {path}: {error.strerror or error}") from error
