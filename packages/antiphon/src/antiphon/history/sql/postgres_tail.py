"""The tail of a conversation in PostgreSQL: its entries, and then each new one, with LISTEN and NOTIFY.

NOTIFY makes the commits of a whole database queue up, so an append notifies only while there is a listener: a listener writes
into the conversation's row until when it listens, and renews that. Nothing is lost between reading and listening: it listens
first, then marks the row, which waits for appends in progress, then reads; later appends see the mark. A notification means only
that there is something new: entries are read from the log after the last number, also those missed during an outage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from antiphon.errors import StoreReadOnly, StoreUnreachable, UnknownConversation
from antiphon.history.entries import HistoryEntry
from antiphon.history.sql.log import Log
from antiphon.history.sql.postgres_connections import Connections
from antiphon.history.store import ConversationRow

if TYPE_CHECKING:
    from psycopg import AsyncConnection

logger = logging.getLogger(__name__)

MARK_SECONDS = 60.0
"""For so long appends notify a listener after it marked the conversation."""
RENEW_SECONDS = 20.0
POLL_SECONDS = 0.5
"""Where nothing can be marked: a replica."""
GIVE_UP_SECONDS = 120.0
"""Without the server."""
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0

_MARK = """
UPDATE conversations SET watched_until = clock_timestamp() + %s * interval '1 second' WHERE number = %s RETURNING number
"""


async def tail(connections: Connections, log: Log, conversation: str, after: int) -> AsyncIterator[HistoryEntry]:
    """The entries after number `after`, and then each new one. Raises `UnknownConversation` when it is deleted."""
    row = await asyncio.to_thread(log.find, conversation)
    wait, connected = _FIRST_WAIT, time.monotonic()
    while True:
        try:
            async with contextlib.aclosing(_Listener(connections, row)) as listener:
                while True:
                    await listener.open()
                    for entry in await asyncio.to_thread(log.read, row.number, row.id, after):
                        yield entry
                        after = entry.sequence_number
                    wait, connected = _FIRST_WAIT, time.monotonic()
                    await listener.wait()
        except StoreUnreachable as error:
            if time.monotonic() - connected > GIVE_UP_SECONDS:
                raise
            logger.warning("%s; listening again in %g s, from entry %d of %s on", error, wait, after, row.id)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


class _Listener:
    """A connection that waits for news of one conversation."""

    def __init__(self, connections: Connections, row: ConversationRow) -> None:
        self._connections = connections
        self._row = row
        self._db: AsyncConnection[tuple[Any, ...]] | None = None
        self._marked = 0.0
        self._is_read_only = False

    async def open(self) -> None:
        """Listen, and mark the conversation so that appends notify."""
        if self._is_read_only or (self._db is not None and time.monotonic() - self._marked < RENEW_SECONDS):
            return
        if self._db is None:
            self._db = await self._connections.listener()
        try:
            with self._connections.translate_errors(self._db):
                await self._db.execute(f'LISTEN "antiphon_{self._row.id}"')
                marked = await (await self._db.execute(_MARK, (MARK_SECONDS, self._row.number))).fetchone()
        except StoreReadOnly:
            self._is_read_only = True
            return
        if marked is None:
            raise UnknownConversation(f"{self._connections.place}: conversation {self._row.id} was deleted")
        self._marked = time.monotonic()

    async def wait(self) -> None:
        """Return when something may be new."""
        if self._db is None or self._is_read_only:
            await asyncio.sleep(POLL_SECONDS)
            return
        with self._connections.translate_errors(self._db):
            async with contextlib.aclosing(self._db.notifies(timeout=RENEW_SECONDS, stop_after=1)) as notified:
                async for notification in notified:
                    if not notification.payload:  # the conversation was deleted: marking it will show
                        self._marked = 0.0

    async def aclose(self) -> None:
        if self._db is not None:
            await self._db.close()
