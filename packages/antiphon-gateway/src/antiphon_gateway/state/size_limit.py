"""`SizeLimit`: how many bytes all clients together, and one of several, may have in the state file or in memory.

The table `stored_bytes` has the bytes of each client. Triggers keep it, so whatever writes or deletes a row is counted, in any
process. Answers make room for newer ones, the oldest first, as they do above the limit of their number. Conversations and answers
in the background do not: above the limit a client gets an error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from msgspec import Struct

from antiphon.errors import StoreFull

_ROW_BYTES = 256
"""What a row costs beside its content."""
_COUNTED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "responses": ("{row}.owner", ("input", "output", "body")),
    "unfinished": ("{row}.owner", ("body", "request")),
    "unfinished_events": ("{row}.owner", ("event",)),
    "conversation_items": ("(SELECT owner FROM conversations WHERE number = {row}.conversation)", ("item",)),
}
"""The tables that are counted: the owner of a row, and its columns."""


class StateLimitReached(StoreFull):
    """A client, or all of them, have stored as many bytes as they may."""


class SizeLimit(Struct, frozen=True):
    """At most `total` bytes (0: any number). `is_shared`: whether there are several clients; then each has half of it."""

    total: int = 0
    is_shared: Callable[[], bool] = lambda: False

    def make_room(self, db: sqlite3.Connection, owner: str, newest: int = 0) -> None:
        """Delete old answers until the limits hold, but not the one with the number `newest`.

        Raises `StateLimitReached` if that is not enough.
        """
        if not self.total:
            return
        self._make_room(db, owner, self.total // 2 if self.is_shared() else self.total, newest)
        self._make_room(db, None, self.total, newest)

    def _make_room(self, db: sqlite3.Connection, owner: str | None, limit: int, newest: int) -> None:
        find_used = "SELECT coalesce(sum(bytes), 0) FROM stored_bytes WHERE ?1 IS NULL OR owner = ?1"
        find_oldest = (
            "SELECT number FROM responses WHERE is_leaf AND number != ?2 AND (?1 IS NULL OR owner = ?1)"
            " ORDER BY kept, number LIMIT 1"
        )
        while (used := db.execute(find_used, (owner,)).fetchone()[0]) > limit:
            oldest = db.execute(find_oldest, (owner, newest)).fetchone()
            if oldest is None:
                whose = "all clients" if owner is None else "this client"
                raise StateLimitReached(
                    f"stored responses and conversations of {whose} would have {used:,} bytes, more than {limit:,} "
                    "(gateway.state_bytes); nothing was stored. Delete conversations or background responses, or raise it"
                )
            drop_response(db, oldest[0])


def drop_response(db: sqlite3.Connection, number: int) -> int:
    """Remove a leaf, and deleted ancestors that only it used. Returns the number of removed rows."""
    dropped = 0
    while True:
        (parent,) = db.execute("SELECT parent FROM responses WHERE number = ?", (number,)).fetchone()
        db.execute("DELETE FROM items WHERE number = ?", (number,))
        db.execute("DELETE FROM responses WHERE number = ?", (number,))
        dropped += 1
        if parent is None or db.execute("SELECT 1 FROM responses WHERE parent = ?", (parent,)).fetchone():
            return dropped
        db.execute("UPDATE responses SET is_leaf = 1 WHERE number = ?", (parent,))
        if not db.execute("SELECT is_gone FROM responses WHERE number = ?", (parent,)).fetchone()[0]:
            return dropped
        number = parent


def counting_tables() -> str:
    """The statements that create the table and its triggers, and count what is there."""
    rows = " UNION ALL ".join(
        f"SELECT {_owner(name, name)} AS owner, {_size(name, name)} AS size FROM {name}" for name in _COUNTED
    )
    return (
        "CREATE TABLE stored_bytes (owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;\n"
        f"INSERT INTO stored_bytes SELECT owner, sum(size) FROM ({rows}) WHERE owner IS NOT NULL GROUP BY owner;\n"
        + "".join(map(_triggers, _COUNTED))
    )


def _triggers(table: str) -> str:
    new, old = _owner(table, "new"), _owner(table, "old")
    change = "UPDATE stored_bytes SET bytes = bytes"
    columns = ", ".join(_COUNTED[table][1])
    return (
        # Without a clause for conflicts: that of the statement that inserts the row would replace it.
        f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN\n"
        f"INSERT INTO stored_bytes SELECT {new}, 0 WHERE NOT EXISTS (SELECT 1 FROM stored_bytes WHERE owner = {new}); "
        f"{change} + {_size(table, 'new')} WHERE owner = {new}; END;\n"
        f"CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN\n"
        f"{change} - {_size(table, 'old')} WHERE owner = {old}; END;\n"
        f"CREATE TRIGGER {table}_changed AFTER UPDATE OF {columns} ON {table} BEGIN\n"
        f"{change} + {_size(table, 'new')} - {_size(table, 'old')} WHERE owner = {new}; END;\n"
    )


def _owner(table: str, row: str) -> str:
    return _COUNTED[table][0].format(row=row)


def _size(table: str, row: str) -> str:
    lengths = (f"coalesce(length({row}.{column}), 0)" for column in _COUNTED[table][1])
    return f"({_ROW_BYTES} + {' + '.join(lengths)})"
