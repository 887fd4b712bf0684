"""The tables of the file, and the keys and rows in them.

The key of an entry's row is `conversation number << 32 | sequence number`. So a conversation is one stretch of one b-tree, an
append is a single insert, and two writers of one conversation meet in the primary key.

`touched` is when a conversation was last changed, to the minute: the time of its last entry is not before that, and at most a
minute after. So the latest are found by an index, and yet an append writes nothing but its row, unless the minute is over.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from antiphon.errors import StoreDamaged
from antiphon.history.codec import EPOCH, MICROSECOND
from antiphon.history.store import ConversationRow

logger = logging.getLogger(__name__)

StoredRow: TypeAlias = tuple[int, int | None, bytes | None, int | None]
"""Key, time, body and checksum of an entry; None where a value has a wrong type, and for the checksum of an older row."""

APPLICATION_ID = 0x414E5450  # "ANTP", in the header of every file of ours
SHIFT = 32
SEQUENCE = (1 << SHIFT) - 1
MINUTE = 60_000_000  # in microseconds
UNTOUCHED = (1 << 63) - 1
"""When a conversation was touched of which that is not known, for an older program made it: it is always looked at."""

UPDATED = f"""coalesce((SELECT at FROM entries WHERE key > conversations.number << {SHIFT}
    AND key < (conversations.number + 1) << {SHIFT} ORDER BY key DESC LIMIT 1), created)"""
"""When a conversation was last changed: the time of its last entry."""

TABLES = """
CREATE TABLE conversations (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, so a deleted conversation's writer cannot hit another
    id        TEXT NOT NULL UNIQUE,
    title     TEXT NOT NULL,
    created   INTEGER NOT NULL,                   -- microseconds since 1970, as `at` below
    parent    TEXT,
    forked_at INTEGER,
    tags      TEXT NOT NULL,                      -- a JSON array
    indexed   INTEGER NOT NULL DEFAULT 0          -- how far the full-text index has come
);
CREATE TABLE entries (key INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE attachments (name TEXT PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE attachment_uses (number INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (number, name)) WITHOUT ROWID;
CREATE INDEX attachment_users ON attachment_uses (name);
CREATE VIRTUAL TABLE said USING fts5 (words, tokenize = "unicode61 remove_diacritics 2");
"""

# What later versions of the file added to these, by the version they start from.
MIGRATIONS = {
    1: """
ALTER TABLE conversations ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN holder TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN held_until INTEGER NOT NULL DEFAULT 0;
CREATE TABLE runs (
    id           TEXT PRIMARY KEY,
    number       INTEGER NOT NULL,                -- of the conversation
    kind         TEXT NOT NULL,
    code         INTEGER NOT NULL,
    provider     TEXT NOT NULL,
    options      TEXT NOT NULL,                   -- a JSON object
    state        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    created      INTEGER NOT NULL,
    updated      INTEGER NOT NULL,
    due          INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,
    is_cancelled INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX open_runs ON runs (number) WHERE state IN ('waiting', 'suspended');
CREATE INDEX waiting_runs ON runs (due) WHERE state = 'waiting';
""",
    # Bodies may be deflated from here on (see `body`); those that are there stay as they are. `touched`: see above.
    2: f"""
ALTER TABLE conversations ADD COLUMN touched INTEGER NOT NULL DEFAULT {UNTOUCHED};
UPDATE conversations SET touched = {UPDATED};
CREATE INDEX latest_touched ON conversations (touched);
""",
    # A checksum of each row (see `codec`), NULL in rows that were there before; and the clock of leases (see `lease_clock`).
    3: """
ALTER TABLE entries ADD COLUMN checksum INTEGER;
CREATE TABLE lease_clock (boot TEXT NOT NULL, ahead INTEGER NOT NULL);
""",
}
FILE_SCHEMA = 1 + len(MIGRATIONS)

EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond that is a date: the years 1 to 9999."""

CONVERSATIONS = f"""
SELECT c.number, c.id, c.title, c.created, c.parent, c.forked_at, c.tags, last.key & {SEQUENCE},
    CASE WHEN typeof(last.at) = 'integer' AND last.at BETWEEN {EARLIEST} AND {LATEST} THEN last.at END
FROM conversations c LEFT JOIN entries last ON last.key = (
    SELECT max(key) FROM entries WHERE key > c.number << {SHIFT} AND key < (c.number + 1) << {SHIFT})
"""

_TAGGED = "EXISTS (SELECT 1 FROM json_each(c.tags) WHERE value = :tag)"
# Of those that were touched more than a minute before the last of the page, none belongs on it: only the others are sorted.
TOUCHED = f"""c.touched >= coalesce((SELECT touched FROM conversations c WHERE touched < {UNTOUCHED} AND {{which}}
    ORDER BY touched DESC LIMIT 1 OFFSET :last) - {MINUTE}, -{UNTOUCHED})"""

# A flipped bit may change the type of a value; it must not reach the decoders, nor pass for a row without a checksum.
_ENTRY_ROWS = f"""
SELECT key, CASE typeof(at) WHEN 'integer' THEN at END, CASE typeof(body) WHEN 'blob' THEN body END,
    CASE typeof(checksum) WHEN 'integer' THEN checksum WHEN 'null' THEN NULL ELSE {1 << 32} END
FROM entries WHERE key BETWEEN ? AND ? ORDER BY key
"""
_ENTRY_ROWS_BEFORE_CHECKSUMS = _ENTRY_ROWS.replace("checksum", "NULL")

LATEST_FIRST = "ORDER BY coalesce(last.at, c.created) DESC, c.number DESC"

_tags = msgspec.json.Decoder(tuple[str, ...])


def rows(
    db: sqlite3.Connection,
    rest: str = "",
    given: Sequence[object] | Mapping[str, object] = (),
    *,
    skips_damaged: bool = False,
) -> Sequence[ConversationRow]:
    """Conversations; `rest` is the rest of the query. A damaged row raises `StoreDamaged`, or is skipped with a warning."""
    found = []
    for row in db.execute(f"{CONVERSATIONS} {rest}", given):
        try:
            found.append(_conversation(*row))
        except StoreDamaged as error:
            if not skips_damaged:
                raise
            logger.warning("%s", error)
    return found


def _conversation(
    number: int,
    conversation: str,
    title: str,
    created: int,
    parent: str | None,
    forked_at: int | None,
    tags: str,
    last: int | None,
    at: int | None,
) -> ConversationRow:
    texts = (conversation, title, "" if parent is None else parent)
    try:
        if not all(isinstance(text, str) for text in texts) or not isinstance(forked_at, int | None):
            raise TypeError("a column has a value of a wrong type")  # noqa: TRY301 - one place says what is damaged
        return ConversationRow.of(
            number, *texts[:2], moment(created), parent, forked_at, _tags.decode(tags), last, moment(at or 0)
        )
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise StoreDamaged(f"the row of conversation {conversation!r} (number {number}) is damaged: {error}") from error


def tagged(tag: str | None) -> str:
    """The condition that a conversation has a tag, which is to be given under that name; without one, all are meant."""
    return "true" if tag is None else _TAGGED


def entry_rows(db: sqlite3.Connection, number: int, first: int = 1, last: int = SEQUENCE) -> list[StoredRow]:
    """The rows of a conversation's entries from `first` to `last`, in order."""
    try:
        return db.execute(_ENTRY_ROWS, keys(number, first, last)).fetchall()
    except sqlite3.OperationalError as error:
        if "no such column" not in str(error):  # else an older file, opened for reading
            raise
        return db.execute(_ENTRY_ROWS_BEFORE_CHECKSUMS, keys(number, first, last)).fetchall()


def keys(number: int, first: int = 1, last: int = SEQUENCE) -> tuple[int, int]:
    """The first and the last key of a stretch of a conversation."""
    return number << SHIFT | first, number << SHIFT | last


def tags_json(tags: tuple[str, ...]) -> str:
    return msgspec.json.encode(tags).decode()


def now() -> int:
    """The time of this machine. Leases go by a clock of their own (see `lease_clock`)."""
    return time.time_ns() // 1_000


def moment(microseconds: int) -> datetime:
    return EPOCH + microseconds * MICROSECOND
