"""The API keys that a person asked the chat to store: a small JSON file that only its owner can read, by variable name.

A file that other users can read is refused: its keys must be considered known.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from antiphon.errors import ProviderSetupError
from antiphon.private_files import make_private_folder, read_private_file, write_private_file

NAME = "keys.json"
_decoder = msgspec.json.Decoder(dict[str, str])


def read_keys(folder: Path | None) -> dict[str, str]:
    """The stored keys by the name of their variable; none without a file. Raises `ProviderSetupError`."""
    if folder is None:
        return {}
    path = folder / NAME
    try:
        data = read_private_file(path)
    except PermissionError as error:
        raise ProviderSetupError(f"{path} has API keys: {error.strerror}") from error
    except OSError as error:
        raise ProviderSetupError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return {} if data is None else _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # without the cause, which may quote a key
        raise ProviderSetupError(f"{path} is not a JSON object of keys; correct or delete it") from None


def write_keys(folder: Path, keys: dict[str, str]) -> None:
    """Replace the stored keys; without any, the file is deleted. Raises `ProviderSetupError`."""
    path = folder / NAME
    try:
        make_private_folder(folder)
        if not keys:
            path.unlink(missing_ok=True)
            return
        write_private_file(path, msgspec.json.format(msgspec.json.encode(keys), indent=2))
    except OSError as error:
        raise ProviderSetupError(f"cannot write {path}: {error.strerror or error}") from error
