"""The digest chain of a conversation: each entry's digest covers its stored bytes and the digest of the entry before it.

So the last digest, the head, covers the whole log: if it was noted elsewhere, it shows later whether an entry was changed,
inserted or removed. A fork has the digests of its parent up to the fork. Large media are covered through the hash by which an
entry names them. The chain is the same in every store and in an export.

A program that can write to the store can also write a new chain; only a head kept elsewhere proves more than an accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256

from msgspec import Struct

FIRST_DIGEST = bytes(32)
"""The digest before the first entry."""


def entry_digest(previous: bytes, stored: bytes) -> bytes:
    """The digest of an entry with these stored bytes, after the one with the digest `previous`."""
    return sha256(previous + stored).digest()


def chain(bodies: Iterable[bytes], previous: bytes = FIRST_DIGEST) -> Iterator[bytes]:
    """The digests of entries that follow each other."""
    for body in bodies:
        previous = entry_digest(previous, body)
        yield previous


def head_of(bodies: Iterable[bytes]) -> bytes:
    """The digest of the last of a conversation's entries."""
    head = FIRST_DIGEST
    for digest in chain(bodies):
        head = digest
    return head


class Verification(Struct, frozen=True, kw_only=True):
    """What checking a conversation found. `head` is computed from the entries; `problem` is empty if all is well."""

    conversation: str
    entries: int
    head: str
    undigested: int = 0
    """Entries that were stored without a digest, by an earlier version."""
    problem: str = ""


class Tombstone(Struct, frozen=True, kw_only=True):
    """What is left of a deleted conversation: that it existed, how long it was, and its head. None of its content."""

    id: str
    deleted: datetime
    entries: int
    head: str
