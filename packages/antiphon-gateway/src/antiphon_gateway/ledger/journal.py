"""`UsageRow`: one request to a provider, as the ledger keeps it. `RowJournal`: rows that wait, in files that survive the process.

A row contains no secret; a credential is named by where it is read from. What it cost is found when it is made.

A row is appended by one `write` on the request path, before the client gets the end of its response. The pages are the kernel's
from then on, so `kill -9` loses nothing; only a machine that loses its power does, for what was not committed yet. Files are
segments of a few MiB and deleted when their rows are committed. The owner holds a lock on each; at the start of a gateway the
segments that no process holds are read, and their rows committed under the name of their writer, which keeps them from being
written twice.

A request that was sent and has no row yet is in a slot of another file, mapped into memory: a store into it costs no system call,
and survives the process, too. Those that a killed process left become rows with an estimate of their prompt.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from antiphon.json_text import NOT_JSON
from antiphon.prices.table import PriceTable
from antiphon.private_files import make_private_folder, open_private_file

T = TypeVar("T")
Metering: TypeAlias = Literal["reported", "estimated", "unknown", "free"]
"""Where the tokens of a row come from. `unknown`: the provider reported none and there is nothing to estimate them from.
`free`: nothing was generated, as by a request that failed."""


class UsageRow(Struct, kw_only=True, gc=False, array_like=True):
    """One request to a provider. `at` is when it ended, in microseconds since 1970. New fields are added at the end: rows
    wait in files as arrays."""

    request_id: str
    attempt: int
    """Its number among the attempts of the request, from 1."""
    at: int
    key: str = ""
    """The name of the client's key; empty without one."""
    client_format: str = ""
    """The format of the client."""
    operation: str = "chat"
    provider: str = ""
    credential: str = ""
    """The name of the provider's key: where it is read from, never the key."""
    model_asked: str = ""
    """What the client asked for."""
    model_served: str = ""
    """What the provider was asked for."""
    status: int = 0
    """Of the provider's response; 0: none came."""
    outcome: str = "ok"
    """`ok`, `disconnected` if the client left, or the kind of the error."""
    seconds: float = 0.0
    first_token_seconds: float | None = None
    metering: Metering = "free"
    prompt_tokens: int = 0
    """All tokens of the prompt, cached ones included."""
    completion_tokens: int = 0
    """All tokens of the answer, reasoning included."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """Those of the cache writes that are kept for an hour."""
    reasoning_tokens: int = 0
    variant: str = ""
    """What else changes the price, as a JSON object: `{"service_tier":"flex"}`."""
    price_version: str = ""
    """The version of the price table that `cost` was found with; empty: it has not been looked for yet."""
    cost: int | None = None
    """Nanodollars; None if there is no known price."""

    def set_cost(self, table: PriceTable) -> None:
        """Find what it cost; None if the number of its tokens, or their price, is not known."""
        self.price_version = table.version
        if self.metering in ("free", "unknown"):
            self.cost = 0 if self.metering == "free" else None
            return
        tokens = (
            self.prompt_tokens,
            self.completion_tokens,
            self.cached_tokens,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
            self.reasoning_tokens,
        )
        self.cost = table.card(self.provider, self.model_served, self.variant).nanodollars(tokens, self.at)


logger = logging.getLogger("antiphon.gateway")

_SUFFIX = ".rows"
_SEGMENT_BYTES = 4 << 20
_SENT_SUFFIX = ".sent"
_SLOT_BYTES, _SLOTS = 1024, 2048
"""What is sent beyond so many requests, or has longer names, is kept in memory only."""
_FRESH_SECONDS = 3600

_decoder = msgspec.json.Decoder(tuple[int, UsageRow])
_row_decoder = msgspec.json.Decoder(UsageRow)
_encoder = msgspec.json.Encoder()
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


class RowJournal:
    """The journal of one writer. `append` belongs to one thread, `committed` may be called from another."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._folder = folder
        self._writer = writer
        self._descriptor = -1
        self._size = 0
        self._path = folder
        self._segments: list[tuple[Path, int, int]] = []  # full ones: path, descriptor, last number
        self._count = 0
        self._has_failed = False
        self._sent: mmap.mmap | None = None
        self._sent_descriptor = -1
        self._free = list(range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES))

    def begin(self, row: UsageRow) -> int:
        """Keep what is known of a request that is sent now, in the slot that is returned; -1: there is no room."""
        try:
            sent = self._sent or self._map_sent()
        except OSError as error:
            self._warn(error)
            return -1
        data = _encode(row)
        if not self._free or len(data) > _SLOT_BYTES - 2:
            return -1
        slot = self._free.pop()
        sent[slot + 1 : slot + 2 + len(data)] = data + b"\n"
        sent[slot] = 1  # complete from here on
        return slot

    def append(self, first: int, rows: Sequence[UsageRow], sent: Sequence[int] = ()) -> None:
        """Keep rows, numbered from `first`. They stand for what `begin` kept in the slots `sent`."""
        lines = _encode_lines(list(enumerate(rows, start=first)))
        try:
            if lines:
                if self._descriptor < 0 or self._size > _SEGMENT_BYTES:
                    self._begin_segment(first - 1)
                is_written = os.write(self._descriptor, lines) == len(lines)
                # Else the disk is full: what comes next has a segment of its own, and not the rest of half a line.
                self._size += len(lines) if is_written else _SEGMENT_BYTES + 1
        except OSError as error:
            self._warn(error)
        for slot in sent:
            if slot >= 0 and self._sent is not None:
                self._sent[slot] = 0
                self._free.append(slot)

    def _warn(self, error: OSError) -> None:
        if not self._has_failed:
            logger.warning(
                "usage ledger: cannot write %s: %s; until rows are committed they are only in memory",
                self._folder,
                error.strerror,
            )
        self._has_failed = True

    def committed(self, number: int) -> None:
        """The rows up to `number` are in the database."""
        while self._segments and self._segments[0][2] <= number:
            path, descriptor, _ = self._segments.pop(0)
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def close(self, *, is_empty: bool) -> None:
        """Release the files. `is_empty`: all rows are committed, so they are deleted."""
        if self._descriptor >= 0:
            self._segments.append((self._path, self._descriptor, 0))
            self._descriptor = -1
        for path, descriptor, _ in self._segments:
            if is_empty:
                path.unlink(missing_ok=True)
            os.close(descriptor)
        self._segments = []
        if self._sent is not None:
            self._sent.close()
            self._sent = None
            if is_empty:
                self._sent_path.unlink(missing_ok=True)
            os.close(self._sent_descriptor)

    @property
    def _sent_path(self) -> Path:
        return self._folder / f"{self._writer}{_SENT_SUFFIX}"

    def _map_sent(self) -> mmap.mmap:
        make_private_folder(self._folder)
        self._sent_descriptor = descriptor = open_private_file(self._sent_path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, bytes(_SLOTS * _SLOT_BYTES))  # a store into a page without a block would kill the process
        self._sent = mmap.mmap(descriptor, _SLOTS * _SLOT_BYTES)
        return self._sent

    def _begin_segment(self, last: int) -> None:
        if self._descriptor >= 0:
            self._segments.append((self._path, self._descriptor, last))
            self._descriptor = -1
        make_private_folder(self._folder)
        self._count += 1
        self._path = self._folder / f"{self._writer}-{self._count}{_SUFFIX}"
        self._descriptor = open_private_file(self._path)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._size = 0


def has_segments(folder: Path) -> bool:
    """Whether a folder has rows of some writer."""
    return folder.is_dir() and any(path.suffix in (_SUFFIX, _SENT_SUFFIX) for path in folder.iterdir())


def recover(folder: Path, write: Callable[[str, int, Sequence[UsageRow]], int]) -> int:
    """Pass the rows of processes that are gone to `write`, with the name of their writer and the number of the first; and delete
    their segments. How many rows `write` added: a process may have written most of them before it was killed."""
    found, ended = 0, set[tuple[str, int]]()
    segments = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: (len(path.name), path.name))
    for path in [*segments, *sorted(folder.glob(f"*{_SENT_SUFFIX}"))]:
        with _held(path) as descriptor:
            if descriptor is None:
                continue
            if path.suffix == _SUFFIX:
                writer, numbered = path.stem.rpartition("-")[0], _read(descriptor)
                ended.update((row.request_id, row.attempt) for _, row in numbered)
            else:  # what has no row yet
                rows = [row for row in _read_sent(descriptor) if (row.request_id, row.attempt) not in ended]
                writer, numbered = f"{path.stem} sent", list(enumerate(rows, start=1))
            if numbered:
                found += write(writer, numbered[0][0], [row for _, row in numbered])
            elif time.time() - os.fstat(descriptor).st_mtime < _FRESH_SECONDS:
                continue  # its owner may be about to lock it
            path.unlink(missing_ok=True)
    return found


def _read_sent(descriptor: int) -> list[UsageRow]:
    """The requests that were in progress. What the attempts before the last one of a request brought is not known."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        slots = iter(lambda: file.read(_SLOT_BYTES), b"")
        rows = list(_decoded(_row_decoder, (slot[1:].partition(b"\n")[0] for slot in slots if slot[0])))
    rows.sort(key=lambda row: (row.at, row.attempt))
    last = {row.request_id: row.attempt for row in rows}
    for row in rows:
        if row.attempt != last[row.request_id]:
            row.metering, row.prompt_tokens = "free", 0
    return rows


@contextmanager
def _held(path: Path) -> Iterator[int | None]:
    """A descriptor of a segment, which is locked meanwhile; None if another process holds it or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> list[tuple[int, UsageRow]]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return list(_decoded(_decoder, filter(None, file.read().split(b"\n"))))


def _decoded(decoder: msgspec.json.Decoder[T], written: Iterable[bytes]) -> Iterator[T]:
    """What can be read: a process that is killed may leave half a line, and a machine that loses its power a damaged one."""
    for data in written:
        with suppress(*NOT_JSON):
            yield decoder.decode(data)
