"""`WorkerFiles`: what each worker of one gateway tells the others, as files in a folder they share.

A worker replaces its own files whole, so a reader sees the old one or the new one, never half of one. Whoever is asked adds up
what everybody wrote last, itself included: it writes first and reads then. As every file only moves forward, two answers of
different workers move forward too, which a counter must.

A worker's name is made anew when it starts. One that takes the place of a crashed worker does not overwrite what that one
counted. What no longer counts (the gauges of the dead) is told by age: a living worker writes every second.

A folder that cannot be written costs the others their view of this worker, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from antiphon.history.ids import new_id

logger = logging.getLogger("antiphon.gateway")


class WorkerFiles:
    """One worker's files, and those of the others. `folder` is made by whoever starts the workers, empty."""

    def __init__(self, folder: Path, worker: str = "") -> None:
        self.folder = folder
        self.worker = worker or new_id()
        self._has_failed = False

    def write(self, kind: str, data: bytes) -> None:
        """Replace what this worker says of `kind`."""
        half = self.folder / f".{kind}-{self.worker}"
        try:
            half.write_bytes(data)
            os.replace(half, self.folder / f"{kind}-{self.worker}")
        except OSError as error:
            if not self._has_failed:
                logger.warning("the workers cannot share what they count: %s: %s", self.folder, error.strerror)
            self._has_failed = True
        else:
            self._has_failed = False

    def others(self, kind: str) -> list[bytes]:
        """What every other worker last said of `kind`."""
        found = []
        for path in sorted(self.folder.glob(f"{kind}-*")):
            if path.name != f"{kind}-{self.worker}":
                try:
                    found.append(path.read_bytes())
                except OSError:
                    logger.debug("%s cannot be read", path, exc_info=True)
        return found


async def keep_sharing(share: Iterable[Callable[[], None]], seconds: float = 1.0) -> None:
    """Call each of `share` again and again, until cancelled."""
    every = tuple(share)
    while True:
        for one in every:
            one()
        await asyncio.sleep(seconds)
