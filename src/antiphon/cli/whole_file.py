"""A file that appears when everything is written, and not at all otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from antiphon.errors import AntiphonError


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write under another name, and rename when the block ends well. What the disk refuses is said by name."""
    is_stream = path.exists() and not path.is_file()  # a pipe or a device is written to, never replaced
    target = Path(os.path.realpath(path))  # a link stays a link
    place = path if is_stream else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            with open(place, "wb") as file:
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
