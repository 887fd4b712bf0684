"""`WorkerHealth`: key health and circuits of the workers of one host, shared through their snapshots.

Every second a worker publishes what it knows about the providers' keys and circuits, and merges what the others published. A key
that one of them finds rejected, exhausted or rate limited rests in all of them, and one that an operator switches off through a
worker is off in all. Merging needs no order (`shared_state`), and the monotonic clock is one for all processes of a host. Counts
of calls are added up for display. A key is named by a hash of its secret, keyed with the name of the workers' folder (law L10).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from antiphon.providers.credentials.health import CredentialStatus
from antiphon.providers.credentials.shared_state import HealthSource, SharedHealth
from antiphon.wire.output import ProviderError
from antiphon_gateway.cluster.shared_health import LocalHealth
from antiphon_gateway.cluster.worker_snapshots import WorkerSnapshots

logger = logging.getLogger("antiphon.gateway")

_KIND = "health"
_STALE_SECONDS = 15.0
_MAX_KEY_BYTES = 64

_encode = msgspec.json.Encoder(enc_hook=dict).encode  # of read-only mappings

Credentials = Mapping[str, Sequence[CredentialStatus]]


class KeyCounts(Struct, frozen=True):
    """The calls of a key in one worker, and its last error."""

    calls: int
    successes: int
    failures: int
    last_error: ProviderError | None


class _Snapshot(Struct, frozen=True):
    time: float
    health: dict[str, SharedHealth]
    counts: dict[str, dict[str, KeyCounts]]
    """By provider and name of the key."""


class WorkerHealth:
    """The health that this worker shares. `sources` gives the keys and circuits in use, each with its URL."""

    def __init__(
        self,
        snapshots: WorkerSnapshots,
        sources: Callable[[], Iterable[tuple[str, HealthSource]]],
        credentials: Callable[[], Credentials],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshots = snapshots
        self._sources = sources
        self._credentials = credentials
        self._clock = clock
        self._key = snapshots.folder.name.encode()[:_MAX_KEY_BYTES]
        self._others: list[_Snapshot] = []
        self._logged_unreadable = False

    def sync(self) -> None:
        """Publish what this worker knows and merge what the others know. Called every second by `publish_forever`."""
        local = LocalHealth(self._sources(), self._key)
        health = local.export()
        self._snapshots.write(_KIND, _encode(_Snapshot(self._clock(), health, self._counts())))
        self._others = list(self._read_others())
        merged = dict(health)
        for snapshot in self._others:
            for name, known in snapshot.health.items():
                if name in merged:
                    merged[name] = merged[name].merge(known)
        changed = {name: known for name, known in merged.items() if known != health[name]}
        if changed:
            local.merge(changed)

    def with_others(self, credentials: Credentials) -> dict[str, list[CredentialStatus]]:
        """The health of the keys with the calls of all workers."""
        fresh = self._clock() - _STALE_SECONDS
        others = [snapshot.counts for snapshot in self._others if snapshot.time >= fresh]
        return {
            provider: [
                _add_counts(status, [counts.get(provider, {}).get(status.name) for counts in others])
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

    def _read_others(self) -> Iterable[_Snapshot]:
        for data in self._snapshots.read_others(_KIND):
            try:
                yield msgspec.json.decode(data, type=_Snapshot)
            except msgspec.DecodeError:
                if not self._logged_unreadable:
                    logger.warning("skipping unreadable key health of another worker")
                self._logged_unreadable = True


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
