"""`WorkerSnapshots`: what each worker publishes for the others, as files in a shared folder.

A worker replaces its own files atomically, writes before it reads, and adds up the last files of all workers. Every file only
moves forward, so the sums do too, as counters must. A worker gets a new name when it starts, so a replacement does not
overwrite the counts of the worker that exited. Gauges of exited workers are recognised by age: a live worker writes every
second.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from antiphon.ids import new_id

logger = logging.getLogger("antiphon.gateway")


class WorkerSnapshots:
    """One worker's files, and those of the others. The process that starts the workers creates `folder`, empty."""

    def __init__(self, folder: Path, worker: str = "") -> None:
        self.folder = folder
        self.worker = worker or new_id()
        self._has_failed = False

    def write(self, kind: str, data: bytes) -> None:
        """Replace this worker's snapshot of `kind`."""
        half = self.folder / f".{kind}-{self.worker}"
        try:
            half.write_bytes(data)
            os.replace(half, self.folder / f"{kind}-{self.worker}")
        except OSError as error:
            if not self._has_failed:
                logger.warning("cannot write worker snapshots to %s: %s", self.folder, error.strerror)
            self._has_failed = True
        else:
            self._has_failed = False

    def read_others(self, kind: str) -> list[bytes]:
        """The last snapshot of `kind` of every other worker."""
        found = []
        for path in sorted(self.folder.glob(f"{kind}-*")):
            if path.name != f"{kind}-{self.worker}":
                try:
                    found.append(path.read_bytes())
                except OSError:
                    logger.debug("cannot read %s", path, exc_info=True)
        return found


async def publish_forever(share: Iterable[Callable[[], Awaitable[None] | None]], seconds: float = 1.0) -> None:
    """Call each of `share` every second, until cancelled."""
    every = tuple(share)
    while True:
        for one in every:
            if (rest := one()) is not None:
                await rest
        await asyncio.sleep(seconds)
