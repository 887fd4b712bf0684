"""`UsageLedger`: rows in from the request path, batches out to the database from a thread.

`add` appends to a list in memory and to the journal, a local file (`journal`). A thread commits what was added every `interval`
seconds, so a request never waits for the database. While that is away rows wait, the gateway keeps serving, and the log says so
once; when it is back they are written. Above `max_pending` further rows are dropped and counted. Rows of a process that was
killed are found in its journal when a gateway starts. The thread also reads (`read`), because it knows which rows are written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from antiphon.errors import StoreError
from antiphon.history.sql.database import Database
from antiphon.ids import new_id
from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.journal import RowJournal, UsageRow, has_segments, recover
from antiphon_gateway.ledger.repricing import price_old_rows
from antiphon_gateway.ledger.writer import LedgerWriter
from antiphon_gateway.utc_time import DAY_MICROSECONDS, now_microseconds

T = TypeVar("T")
logger = logging.getLogger("antiphon.gateway")

_BATCH_ROWS = 1_000
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.5, 30.0
_PURGE_SECONDS = 3600.0


class LedgerStatus(Struct, frozen=True):
    """The state of a ledger. `problem` is why it cannot write at present."""

    location: str
    written_rows: int
    pending_rows: int
    lost_rows: int
    problem: str = ""
    write_errors: int = 0
    """How often a batch could not be written; it is tried again."""


class Spent:
    """What written rows used, for one provider, model and key. `model` is the one that clients asked for."""

    __slots__ = ("calls", "completion_tokens", "nanodollars", "prompt_tokens", "unpriced_calls")

    def __init__(self) -> None:
        self.calls = self.unpriced_calls = self.prompt_tokens = self.completion_tokens = self.nanodollars = 0

    def add(self, row: UsageRow) -> None:
        """Add a row."""
        self.calls += 1
        self.prompt_tokens += row.prompt_tokens
        self.completion_tokens += row.completion_tokens
        self.unpriced_calls += row.cost is None
        self.nanodollars += row.cost or 0


class _Read(Struct):
    """A call that waits for the rows up to number `after`."""

    after: int
    call: Callable[[Database], Any]
    found: Future[Any]


Label: TypeAlias = tuple[str, str, str]
"""Provider, requested model, client key."""


class UsageLedger:
    """The ledger of one process. `open_database` is called in its thread, at the first row."""

    def __init__(
        self,
        open_database: Callable[[], Database],
        *,
        prices: Callable[[], PriceTable] = PriceTable,
        location: str = "",
        journal: Path | None = None,
        retention_days: int | None = None,
        interval: float = 1.0,
        max_pending: int = 100_000,
    ) -> None:
        self._open_database = open_database
        self._prices = prices
        self._location = location
        self._retention_days = retention_days
        self._interval = interval
        self._max_pending = max_pending
        self._write_errors = 0
        self._pending: deque[UsageRow] = deque()
        self._batch: list[UsageRow] = []  # being written; kept until it is
        self._reads: deque[_Read] = deque()
        self._added = self._written = self._lost = 0
        self._journal_folder = journal
        self._problem = ""
        self._name = new_id()
        self._journal = None if journal is None else RowJournal(journal, self._name)
        self.begin: Callable[[UsageRow], int] = (lambda _: -1) if self._journal is None else self._journal.begin
        """A request is sent: its row, if the process is killed before `add` gets another one."""
        self._writer: LedgerWriter | None = None
        self._has_old_rows = True  # perhaps
        self._spent: defaultdict[Label, Spent] = defaultdict(Spent)
        self._spent_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_rows = threading.Event()
        self._hurry = threading.Event()  # commit now, without waiting for more rows
        self._is_closing = False
        self._next_purge = 0.0

    def add(self, rows: Sequence[UsageRow], sent: Sequence[int] = ()) -> None:
        """Add the rows of a request. `sent` is what `begin` returned for it. They are written within about `interval` seconds."""
        if len(self._pending) + len(rows) > self._max_pending:
            self._drop(len(rows))
            rows = ()
        if self._journal is not None:
            self._journal.append(self._added + 1, rows, sent)
        if not rows:
            return
        self._added += len(rows)
        self._pending.extend(rows)
        if not self._has_rows.is_set():
            self._has_rows.set()
            if self._thread is None:
                self._start()

    def read(self, call: Callable[[Database], T]) -> Future[T]:
        """The result of a call with the database, when it has the rows that were added so far and no later ones of ours."""
        found: Future[T] = Future()
        self._reads.append(_Read(self._added, call, found))
        self._wake()
        if self._thread is None:
            self._start()
        return found

    def recover(self) -> None:
        """Write the rows of processes that were killed, if there are any."""
        if self._thread is None and self._journal_folder is not None and has_segments(self._journal_folder):
            self._wake()
            self._start()

    @property
    def status(self) -> LedgerStatus:
        """The state."""
        pending = len(self._pending) + len(self._batch)
        return LedgerStatus(self._location, self._written, pending, self._lost, self._problem, self._write_errors)

    def take_spent(self) -> dict[Label, Spent]:
        """What rows used that were written since the last call. Rows that cost nothing are left out."""
        with self._spent_lock:
            spent, self._spent = self._spent, defaultdict(Spent)
        return spent

    def flush(self, timeout: float) -> bool:
        """Wait until the rows added so far are written, at most `timeout` seconds. Whether they are."""
        if self._thread is None or self._written >= self._added:
            return True
        try:
            self.read(lambda _: None).result(timeout)
        except (TimeoutError, StoreError):
            return False
        return True

    def close(self, timeout: float = 10.0) -> None:
        """Write what is left, at most `timeout` seconds, and end the thread."""
        is_written = self.flush(timeout)
        if not is_written:
            logger.error(
                "usage ledger: %s rows were not written to %s: %s",
                self.status.pending_rows,
                self._location,
                self._problem,
            )
        self._is_closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._journal is not None:
            self._journal.close(is_empty=is_written)

    def _wake(self) -> None:
        """Commit now, without waiting for more rows."""
        self._hurry.set()
        self._has_rows.set()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="usage-ledger", daemon=True)
        self._thread.start()

    def _drop(self, count: int) -> None:
        if not self._lost:
            logger.error("usage ledger: %s rows wait to be written; further rows are dropped", self._max_pending)
        self._lost += count

    # What runs in the thread.

    def _run(self) -> None:
        delay = _FIRST_RETRY_SECONDS
        while True:
            self._has_rows.wait()
            self._hurry.wait(self._interval)
            self._hurry.clear()
            self._has_rows.clear()
            if self._is_closing and not self._pending and not self._batch:
                break
            try:
                self._write_pending()
            except Exception as error:  # an unknown error must not end the thread either
                self._report(error)
                while self._reads and self._reads[0].found.cancelled():
                    self._reads.popleft()
                if self._is_closing:
                    break
                self._hurry.wait(delay)
                delay = min(2 * delay, _LONGEST_RETRY_SECONDS)
                self._has_rows.set()
            else:
                delay = _FIRST_RETRY_SECONDS
                self._purge()
                self._price_old_rows()
        while self._reads:
            read = self._reads.popleft()
            if read.found.set_running_or_notify_cancel():
                read.found.set_exception(StoreError("the usage ledger is closed"))
        if self._writer is not None:
            self._writer.close()

    def _write_pending(self) -> None:
        writer = self._writer or self._open()
        while self._batch or self._pending or self._reads:
            if not self._batch:
                while self._pending and len(self._batch) < _BATCH_ROWS:
                    self._batch.append(self._pending.popleft())
                while self._reads and self._written + len(self._batch) > self._reads[0].after:
                    self._pending.appendleft(self._batch.pop())  # it was added after the read
            if self._batch:
                self._write_batch(writer)
            while self._reads and self._reads[0].after <= self._written:
                read = self._reads.popleft()
                if read.found.set_running_or_notify_cancel():  # else its caller has left
                    try:
                        read.found.set_result(read.call(writer.database))
                    except Exception as error:
                        read.found.set_exception(error)
            if self._problem:
                logger.warning("usage ledger: %s is written again", self._location)
                self._problem = ""

    def _write_batch(self, writer: LedgerWriter) -> None:
        writer.write(self._name, self._written + 1, self._batch)
        written, self._batch = self._batch, []
        self._written += len(written)
        if self._journal is not None:
            self._journal.committed(self._written)
        self._count(written)

    def _open(self) -> LedgerWriter:
        database = self._open_database()
        self._location = database.location
        writer = LedgerWriter(database, self._prices)
        try:
            if self._journal_folder is not None and (count := recover(self._journal_folder, writer.write)):
                logger.warning("usage ledger: recovered %s rows of processes that were killed", count)
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        return writer

    def _count(self, rows: Sequence[UsageRow]) -> None:
        with self._spent_lock:
            for row in rows:
                if row.metering != "free":
                    self._spent[row.provider, row.model_asked, row.key].add(row)

    def _price_old_rows(self) -> None:
        """Find what rows of an older version cost, some at a time."""
        if not self._has_old_rows or self._writer is None or self._is_closing:
            return
        try:
            self._has_old_rows = price_old_rows(self._writer.database, self._prices())
        except Exception:
            logger.exception("usage ledger: cannot price the rows of an older version; `antiphon spend reprice` does")
            self._has_old_rows = False
        if self._has_old_rows:
            self._wake()

    def _report(self, error: Exception) -> None:
        self._write_errors += 1
        if not self._problem:
            logger.error("usage ledger: cannot write: %s; rows wait in memory, retrying", error)
        self._problem = str(error) or type(error).__name__

    def _purge(self) -> None:
        """Delete expired rows, now and then and some at a time."""
        if self._retention_days is None or self._writer is None or time.monotonic() < self._next_purge:
            return
        try:
            before = now_microseconds() - self._retention_days * DAY_MICROSECONDS
            if not self._writer.delete_before(before):
                self._next_purge = time.monotonic() + _PURGE_SECONDS
        except Exception:
            logger.exception("usage ledger: cannot delete expired rows")
            self._next_purge = time.monotonic() + _PURGE_SECONDS
