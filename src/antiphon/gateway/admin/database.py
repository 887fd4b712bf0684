"""`OperatorDatabase`: the operator database for code on the event loop. It is opened at first use, and statements run in threads.

An SQLite file that does not exist is only created by a change: a gateway that stores nothing leaves no file.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from antiphon.gateway.ledger.database import open_operator_database
from antiphon.history.location import display_location, is_postgres_url
from antiphon.history.sql.database import Database

T = TypeVar("T")
_CLOSE_SECONDS = 10.0


class OperatorDatabase:
    """The database at an address, for one process."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Condition()
        self._database: Database | None = None
        self._calls = 0  # in progress

    @property
    def location(self) -> str:
        """Where it is, as people may see it."""
        return display_location(self._address)

    @property
    def exists(self) -> bool:
        """Whether there is something to read; a server always is."""
        return self._database is not None or is_postgres_url(self._address) or Path(self._address).exists()

    async def run(self, call: Callable[[Database], T]) -> T:
        """The result of a call with the open database, in a thread. Raises `StoreError`."""
        return await asyncio.to_thread(self.run_now, call)

    def run_now(self, call: Callable[[Database], T]) -> T:
        """The same in this thread."""
        with self._lock:
            if self._database is None:
                self._database = open_operator_database(self._address)
            database = self._database
            self._calls += 1
        try:
            return call(database)
        finally:
            with self._lock:
                self._calls -= 1
                self._lock.notify_all()

    def close(self) -> None:
        """Close it when the calls in progress have ended; a later call opens it again.

        SQLite crashes the process if a connection is closed while a thread uses it, so one that is stuck is left open.
        """
        with self._lock:
            is_unused = self._lock.wait_for(lambda: not self._calls, _CLOSE_SECONDS)
            database, self._database = self._database, None
        if database is not None and is_unused:
            database.close()
