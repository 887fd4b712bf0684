"""`LeaseClock`: the clock for leases in a file. It never steps, even if the wall clock of the machine is set.

A wall clock may be set: forward, and every lease would be over at once while its holder works; back, and the lease of a dead
holder would last for hours. The clock of the kernel since boot does not step, and every process of the machine reads the same
(SQLite's WAL mode demands that they share the machine). So lease time is boot time plus a constant: how far the wall clock was
ahead of it when the first process of this boot wrote with the file. The constant is kept in the file with the id of the boot.

With another boot id the machine was started again, or the file was copied to another one: every holder is gone, and so are their
leases. Epochs stay, so an append under such a lease is fenced off by the next claim.
Where the kernel gives no boot id (not Linux), lease time is the wall clock.
"""

from __future__ import annotations

import time
from datetime import datetime
from functools import cached_property

from antiphon.history.codec import EARLIEST, LATEST, from_microseconds
from antiphon.history.sql.schema import UNTOUCHED
from antiphon.history.sql.sqlite_file import SqliteFile, wall_time

_SECOND = 1_000_000
_KNOWN = "SELECT boot, ahead FROM lease_clock"


def boot_id() -> str:
    """What distinguishes this boot of the machine from every other; empty where the kernel has no boot id."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() if hasattr(time, "CLOCK_BOOTTIME") else ""
    except (OSError, ValueError):
        return ""


def since_boot() -> int:
    """The microseconds since the machine was started, the time it was suspended included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000


class LeaseClock:
    """The clock of the leases of one file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._ahead: int | None = None

    @cached_property
    def _boot(self) -> str:
        return boot_id()  # read when it is needed: a program that only reads conversations never asks

    def settle(self) -> None:
        """Agree on the time with the other processes. Call it before a transaction that looks at leases."""
        if self._ahead is not None or not self._boot:
            return
        known = self._known()
        if known is None or known[0] != self._boot:
            known = self._begin()
        self._ahead = known[1]

    def now(self) -> int:
        """Lease time in microseconds; after every lease where no process of this boot has written yet."""
        if self._ahead is not None:
            return since_boot() + self._ahead
        known = self._known() if self._boot else None
        if known is None:
            return wall_time()
        if known[0] != self._boot:
            return UNTOUCHED
        self._ahead = known[1]
        return since_boot() + self._ahead

    def shown(self, at: int) -> datetime:
        """A lease time as the wall clock would show it, to the second if that was set meanwhile."""
        lease_now = self.now()
        step = 0 if lease_now == UNTOUCHED else round((wall_time() - lease_now) / _SECOND) * _SECOND
        return from_microseconds(min(max(at + step, EARLIEST), LATEST))

    def _known(self) -> tuple[str, int] | None:
        if self._file.schema < 4:  # an older file, opened for reading
            return None
        with self._file.reading() as db:
            known: tuple[str, int] | None = db.execute(_KNOWN).fetchone()
        return known

    def _begin(self) -> tuple[str, int]:
        with self._file.transaction() as db:
            known: tuple[str, int] | None = db.execute(_KNOWN).fetchone()
            if known is not None and known[0] == self._boot:  # another process was faster
                return known
            if known is not None:
                db.execute("UPDATE conversations SET holder = '', held_until = 0 WHERE held_until != 0")
            db.execute("DELETE FROM lease_clock")
            begun = self._boot, wall_time() - since_boot()
            db.execute("INSERT INTO lease_clock VALUES (?, ?)", begun)
        return begun
