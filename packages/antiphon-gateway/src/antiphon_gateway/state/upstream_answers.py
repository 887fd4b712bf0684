"""`UpstreamAnswers`: which provider and key have an answer that only the provider stored.

An answer that is passed on in the client's own format is stored at its provider, under the provider's id. A client that later
gets, cancels or deletes it sends only the id, so provider and key are remembered here, with the model's name that the client
asked for. An id that is not remembered for a client is not asked for: it may belong to another client of the same account.

A request does not wait for the disk: `remember` collects, and one task at a time writes what has been collected meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon_gateway.threads import STATE

logger = logging.getLogger("antiphon.gateway")


class UpstreamAnswer(Struct, frozen=True):
    """Where an answer is. `credential` is the name of a key; `model` is the one that the client asked for."""

    provider: str
    credential: str
    model: str


class UpstreamAnswers:
    """Answers by owner and id, remembered for `seconds` and at most `limit` of them."""

    def __init__(self, file: SqliteFile, *, seconds: float, limit: int, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._pending: dict[tuple[str, str], UpstreamAnswer] = {}
        self._task: asyncio.Task[None] | None = None

    def remember(self, answer_id: str, owner: str, answer: UpstreamAnswer) -> None:
        """Remember an answer; it is written soon."""
        self._pending[owner, answer_id] = answer
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_pending())

    def get(self, answer_id: str, owner: str) -> UpstreamAnswer | None:
        """Where an answer is; None if that is not known."""
        pending = self._pending.get((owner, answer_id))
        if pending is not None:
            return pending
        find = "SELECT provider, credential, model FROM upstream_answers WHERE owner = ? AND id = ? AND kept > ?"
        with self._file.reading() as db:
            row = db.execute(find, (owner, answer_id, self._clock() - self._seconds)).fetchone()
        return None if row is None else UpstreamAnswer(*row)

    def forget(self, answer_id: str, owner: str) -> None:
        """Forget an answer, which was deleted."""
        self._pending.pop((owner, answer_id), None)
        with self._file.transaction() as db:
            db.execute("DELETE FROM upstream_answers WHERE owner = ? AND id = ?", (owner, answer_id))

    def write(self, answers: dict[tuple[str, str], UpstreamAnswer]) -> None:
        """Write answers, and delete those that are expired or over the limit, the oldest first."""
        now = self._clock()
        rows = [
            (owner, answer_id, now, answer.provider, answer.credential, answer.model)
            for (owner, answer_id), answer in answers.items()
        ]
        with self._file.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO upstream_answers VALUES (?, ?, ?, ?, ?, ?)", rows)
            db.execute("DELETE FROM upstream_answers WHERE kept <= ?", (now - self._seconds,))
            (count,) = db.execute("SELECT count(*) FROM upstream_answers").fetchone()
            if count > self._limit:
                oldest = "SELECT owner, id FROM upstream_answers ORDER BY kept, id LIMIT ?"
                db.execute(
                    f"DELETE FROM upstream_answers WHERE (owner, id) IN ({oldest})",
                    (count - self._limit,),
                )

    async def aclose(self) -> None:
        """Write what is left."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                answers = dict(self._pending)
                try:
                    await STATE.run(self.write, answers)
                except AntiphonError:
                    logger.exception("answers that providers stored are not remembered; clients cannot get them by id")
                for key, answer in answers.items():
                    if self._pending.get(key) is answer:
                        del self._pending[key]
        finally:
            self._task = None
