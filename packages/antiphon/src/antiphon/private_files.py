"""Files and folders that only their owner can read: conversations, plans, kept responses, typed lines.

They are created with mode 0600 and 0700 in the first place, whatever the umask is: there is no moment at which another user could
open them. SQLite gives its `-wal`, `-shm` and `-journal` files the mode of the database, so those follow.

What exists keeps its mode, for a group may share it on purpose. If other users can read it, that is logged once a process, and
`antiphon doctor` reports it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger("antiphon.history")

_FILE, _FOLDER = 0o600, 0o700
_OTHERS = 0o077
_OTHERS_ENTER = 0o011

_warned: set[str] = set()


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder, and those above it that are missing, for its owner alone. One that exists is left as it is."""
    folder = Path(path)
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_private_folder(folder.parent)
    try:
        os.mkdir(folder, _FOLDER)
        os.chmod(folder, _FOLDER)  # a umask may have taken away even the owner's rights
    except FileExistsError:  # another process was faster, or it is not a folder
        if not folder.is_dir():
            raise


def open_private_file(path: str | os.PathLike[str]) -> int:
    """A descriptor of a new file for its owner alone, open for writing. Raises `FileExistsError` if it exists."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE)
    os.fchmod(descriptor, _FILE)
    return descriptor


def create_private_file(path: str | os.PathLike[str]) -> None:
    """Create an empty file for its owner alone, unless it exists. A link that leads nowhere gets the file it names."""
    with contextlib.suppress(FileExistsError):
        os.close(open_private_file(os.path.realpath(path)))


def read_private_file(path: Path) -> bytes | None:
    """The content of a file; None without one. Raises `PermissionError` if other users can read it: they may know its secrets."""
    try:
        data = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None
    if mode & _OTHERS:
        raise PermissionError(errno.EACCES, f"other users can read it; run: chmod 600 {path}", str(path))
    return data


def write_private_file(path: Path, data: bytes) -> None:
    """Replace a file for its owner alone: it is written whole under another name and renamed. Raises `OSError`."""
    place = path.with_name(f".{path.name}.{os.getpid()}")
    make_private_folder(path.parent)
    try:
        place.unlink(missing_ok=True)
        with os.fdopen(open_private_file(place), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(place, path)
    except OSError:
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
        raise


def exposure(path: str | os.PathLike[str]) -> str:
    """What is wrong with the mode of a file or folder, and how to put it right; empty if other users cannot get at it."""
    try:
        found, above = os.stat(path), os.stat(os.path.dirname(os.path.realpath(path)))
    except OSError:
        return ""
    mode = stat.S_IMODE(found.st_mode)
    is_folder = stat.S_ISDIR(found.st_mode)
    if not (is_folder or stat.S_ISREG(found.st_mode)) or not mode & _OTHERS or not above.st_mode & _OTHERS_ENTER:
        return ""
    private = _FOLDER if is_folder else _FILE
    return f"{os.fspath(path)} is open to other users (mode {mode:04o}); run: chmod {private:o} '{os.fspath(path)}'"


def warn_if_exposed(path: str | os.PathLike[str]) -> None:
    """Log a warning, once a process for each path, if other users can get at a file."""
    if (problem := exposure(path)) and (place := os.path.realpath(path)) not in _warned:
        _warned.add(place)
        logger.warning("%s", problem)
