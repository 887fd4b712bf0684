"""The rows of conversations and entries, as they are read.

`touched` is when a conversation was last changed, to the minute: the time of its last entry is not before that, and at most a
minute after. So the latest are found by an index, and yet an append writes nothing but its row, unless the minute is over.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias

from antiphon.history.asked import whole
from antiphon.history.codec import check_row, decode_row
from antiphon.history.entries import HistoryEntry

_IS_DATE = (
    "at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'"  # else Python has no datetime for it
)
ENTRY_ROW = f"sequence, CASE WHEN {_IS_DATE} THEN (extract(epoch FROM at) * 1000000)::bigint ELSE 0 END, body, checksum"
"""The columns of an entry that make a `StoredRow`."""
StoredRow: TypeAlias = tuple[int, int, bytes, int | None]
"""Sequence number, time in microseconds, body and checksum, which is None in a row of an earlier version."""
ENTRY_ROWS = f"SELECT {ENTRY_ROW} FROM entries WHERE number = %s AND sequence BETWEEN %s AND %s ORDER BY sequence"

CONVERSATIONS = f"""
SELECT c.number, c.id, c.title, c.created, c.parent, c.forked_at, c.tags, last.sequence, CASE WHEN {_IS_DATE} THEN last.at END
FROM conversations c LEFT JOIN LATERAL (
    SELECT sequence, at FROM entries WHERE entries.number = c.number ORDER BY sequence DESC LIMIT 1) last ON true
"""

# Of those that were touched more than a minute before the last of the page, none belongs on it: only the others are sorted. It is
# asked for by itself, because the planner takes the index only for a time that it knows.
SINCE = """
SELECT coalesce((SELECT touched FROM conversations c WHERE touched < 'infinity' AND {which}
    ORDER BY touched DESC LIMIT 1 OFFSET %(last)s) - interval '1 minute', '-infinity')::text
"""
LATEST = f"""{CONVERSATIONS} WHERE c.touched >= %(since)s::timestamptz AND {{which}}
ORDER BY coalesce(last.at, c.created) DESC, c.number DESC LIMIT %(limit)s OFFSET %(offset)s
"""
LAST_SEQUENCE = (1 << 31) - 1


def body_of(row: StoredRow) -> bytes:
    """The body of an entry. Raises `StoreDamaged` if the row is not what was written."""
    check_row(*row)
    sequence, _, body, checksum = row
    if checksum is None:  # a body that can be decoded is all that can be asked for
        decode_row(sequence, body)
    return body


def entry_of(row: StoredRow) -> HistoryEntry:
    """The entry in a row. Raises `StoreDamaged` if the row is not what was written."""
    check_row(*row)
    return decode_row(row[0], row[2])


def tagged(tag: str | None) -> str:
    """The condition that a conversation has the tag that is given as the one of `tags`; without one, all are meant."""
    return "true" if tag is None else "c.tags @> %(tags)s"


def plain(text: str) -> str:
    """A text as PostgreSQL can keep it: it knows neither NUL nor half a character. Entries need no such care, they are bytes."""
    return whole(text.replace("\0", "\ufffd"))


def aware(at: datetime | None) -> datetime | None:
    """A time with its zone; one without is UTC."""
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
