"""`WorkerFiles`: what the workers of one host share, as files in a folder: metrics, records, and the health of keys.

A worker replaces its own files atomically, writes before it reads, and adds up the last files of all workers. Every file only
moves forward, so the sums do too, as counters must. A worker gets a new name when it starts, so a replacement does not
overwrite the counts of the worker that exited. What exited workers had in use is recognised by the age of their files: a live
worker writes every second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from antiphon.ids import new_id
from antiphon.providers.keys.health import CredentialStatus
from antiphon.providers.keys.sharing import SharedHealth
from antiphon.wire.output import ProviderError

logger = logging.getLogger("antiphon.gateway")

T = TypeVar("T")

_STALE_SECONDS = 15.0
_MAX_KEY_BYTES = 64

_encode = msgspec.json.Encoder(enc_hook=dict).encode  # of read-only mappings

Credentials: TypeAlias = Mapping[str, Sequence[CredentialStatus]]


class WorkerFiles:
    """One worker's files, and those of the others. The process that starts the workers creates `folder`, empty."""

    def __init__(self, folder: Path, worker: str = "") -> None:
        self.folder = folder
        self.worker = worker or new_id()
        self._has_failed = False
        self._unreadable: set[str] = set()

    def write(self, kind: str, data: bytes) -> None:
        """Replace this worker's file of `kind`."""
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

    def read_others(self, kind: str, content: type[T]) -> Iterator[tuple[T, bool]]:
        """What the last file of `kind` of every other worker contains, and whether it was written just now."""
        fresh = time.time() - _STALE_SECONDS
        for path in sorted(self.folder.glob(f"{kind}-*")):
            if path.name == f"{kind}-{self.worker}":
                continue
            try:
                yield msgspec.json.decode(path.read_bytes(), type=content), path.stat().st_mtime >= fresh
            except OSError:
                logger.debug("cannot read %s", path, exc_info=True)
            except msgspec.DecodeError:
                if kind not in self._unreadable:
                    logger.warning("skipping unreadable %s of another worker", kind)
                self._unreadable.add(kind)


async def repeat_forever(calls: Sequence[Callable[[], Awaitable[None] | None]], seconds: float = 1.0) -> None:
    """Make the calls now, and again every so many seconds until cancelled."""
    while True:
        for call in calls:
            try:
                if (rest := call()) is not None:
                    await rest
            except Exception:  # an error of ours must not end the loop
                logger.exception("internal error while keeping shared state up to date")
        await asyncio.sleep(seconds)


class KeyCounts(Struct, frozen=True):
    """The calls of a key in one worker, and its last error."""

    calls: int
    successes: int
    failures: int
    last_error: ProviderError | None


class _Snapshot(Struct, frozen=True):
    health: dict[str, SharedHealth]
    counts: dict[str, dict[str, KeyCounts]]
    """By provider and name of the key."""


class WorkerHealth:
    """The health of keys and circuits in the files of workers (`HealthStore`), and the calls of all workers, for display.

    The monotonic clock is one for all processes of a host.
    """

    offset = 0.0

    def __init__(self, files: WorkerFiles, credentials: Callable[[], Credentials]) -> None:
        self._files = files
        self._credentials = credentials
        self.key = files.folder.name.encode()[:_MAX_KEY_BYTES]
        self._counts_of_others: list[dict[str, dict[str, KeyCounts]]] = []

    async def merge(self, known: Mapping[str, SharedHealth]) -> Mapping[str, SharedHealth]:
        """What this worker knows, published, with what the others published."""
        self._files.write("health", _encode(_Snapshot(dict(known), self._counts())))
        others = list(self._files.read_others("health", _Snapshot))
        self._counts_of_others = [snapshot.counts for snapshot, is_live in others if is_live]
        merged = dict(known)
        for snapshot, _ in others:
            for name, health in snapshot.health.items():
                if name in merged:
                    merged[name] = merged[name].merge(health)
        return {name: health for name, health in merged.items() if health != known[name]}

    def with_others(self, credentials: Credentials) -> dict[str, list[CredentialStatus]]:
        """The health of the keys with the calls of all workers."""
        return {
            provider: [
                _add_counts(status, [counts.get(provider, {}).get(status.name) for counts in self._counts_of_others])
                for status in statuses
            ]
            for provider, statuses in credentials.items()
        }

    def _counts(self) -> dict[str, dict[str, KeyCounts]]:
        return {
            provider: {
                status.name: KeyCounts(
                    status.calls, status.successes, status.failures, _without_native(status.last_error)
                )
                for status in statuses
            }
            for provider, statuses in self._credentials().items()
        }


def _add_counts(status: CredentialStatus, others: Iterable[KeyCounts | None]) -> CredentialStatus:
    known = [counts for counts in others if counts is not None]
    errors = [counts.last_error for counts in known if counts.last_error is not None]
    return structs.replace(
        status,
        calls=status.calls + sum(counts.calls for counts in known),
        successes=status.successes + sum(counts.successes for counts in known),
        failures=status.failures + sum(counts.failures for counts in known),
        last_error=status.last_error or (errors[0] if errors else None),
    )


def _without_native(error: ProviderError | None) -> ProviderError | None:
    """An error without the provider's own object."""
    return None if error is None else ProviderError(error.message, error.kind, status=error.status, code=error.code)
