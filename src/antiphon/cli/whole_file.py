"""A file that appears when everything is written, and not at all otherwise."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from antiphon.errors import AntiphonError
from antiphon.history.private_files import open_private_file


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write under another name, and rename when the block ends well. What the disk refuses is said by name.

    A new file is its owner's alone, for it may hold a conversation; one that is replaced keeps its mode.
    """
    is_stream = path.exists() and not path.is_file()  # a pipe or a device is written to, never replaced
    target = Path(os.path.realpath(path))  # a link stays a link
    place = path if is_stream else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            with _opened(place, target, is_stream) as file:
                yield file
                file.flush()
                if not is_stream:
                    os.fsync(file.fileno())
            if not is_stream:
                os.replace(place, target)
        finally:
            if not is_stream:
                place.unlink(missing_ok=True)
    except OSError as error:
        raise AntiphonError(f"cannot write {path}: {error.strerror or error}") from error


def _opened(place: Path, target: Path, is_stream: bool) -> BinaryIO:
    if is_stream:
        return open(place, "wb")
    place.unlink(missing_ok=True)  # left by a process of the same number that was killed
    descriptor = open_private_file(place)
    if target.exists():
        os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
    return os.fdopen(descriptor, "wb")
