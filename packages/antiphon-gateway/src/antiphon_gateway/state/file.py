"""`StateFile`: the file for the state of all clients: its tables, how long what is in it stays, and how much it may be.

One SQLite file, or the same tables in memory. The table `stored_bytes` has the bytes of each client. Triggers keep it, so
whatever writes or deletes a row is counted, in any process. Answers make room for newer ones, the oldest first. Conversations and
answers in progress do not: above the limit a client gets an error.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping

from antiphon.errors import StoreFull
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon_gateway.utc_time import DAY_SECONDS

APPLICATION_ID = 0x414E5453  # "ANTS": not a history, so that neither is mistaken for the other
SCHEMA = 5

HERE, THERE = "status != 'upstream'", "status = 'upstream'"
"""The answers that are here, and those that only their provider stored. Each kind has an index, and makes room for its own."""
OVERDUE_SECONDS = 10.0
"""How long a process may be silent about an answer that it generates. It may have to wait for the file for half of that."""
ALIVE = -1
"""The number of the row among the events of an answer that says when its process was last alive. Its end removes it."""
_PURGED_AT_ONCE = 200
"""Expired rows deleted with each stored one: each call stays short, and rows expire slower than they are deleted."""
_ROW_BYTES = 256
"""What a row costs beside its content."""
_COUNTED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "answers": ("{row}.owner", ("input", "output", "body", "request")),
    "answer_events": ("(SELECT owner FROM answers WHERE number = {row}.answer)", ("event",)),
    "conversation_items": ("(SELECT owner FROM conversations WHERE number = {row}.conversation)", ("item",)),
}
"""The tables that are counted: the owner of a row, and its columns."""


class StateLimitReached(StoreFull):
    """A client, or all of them, have stored as many bytes as they may."""


class StateFile(SqliteFile):
    """The file at `path`, or memory with an empty path. What is in it stays for `seconds`, and at most `limit` of a kind.

    `max_bytes` is the size of all together (0: any). `is_shared`: whether there are several clients; then each may have half.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        *,
        seconds: float = 30 * DAY_SECONDS,
        limit: int = 10_000,
        max_bytes: int = 0,
        is_shared: Callable[[], bool] = lambda: False,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.seconds = seconds
        self.limit = limit
        self.max_bytes = max_bytes
        self.clock = clock
        self._is_shared = is_shared
        super().__init__(
            os.fspath(path) or ":memory:",
            tables=_TABLES,
            tables_schema=SCHEMA,
            application_id=APPLICATION_ID,
            schema=SCHEMA,
            timeout=timeout,
            migrations={
                1: _BACKGROUND_ANSWERS + _CONVERSATION_TABLES,
                2: _UPSTREAM_ANSWERS_AND_EVENTS,
                3: _STORED_BYTES + _count_changes("conversation_items"),
                4: _ONE_TABLE_OF_ANSWERS + _count_rows() + _count_changes("answers", "answer_events"),
            },
        )

    @property
    def oldest(self) -> float:
        """What was stored then, or before, has expired."""
        return self.clock() - self.seconds

    @property
    def times(self) -> dict[str, float]:
        """The parameters of statements with `is_alive`, or that leave out what has expired."""
        return {"oldest": self.oldest, "alive": self.clock() - OVERDUE_SECONDS}

    def make_room(self, db: sqlite3.Connection, owner: str | None, newest: int = 0, place: str = HERE) -> None:
        """Delete answers that have expired, and the oldest ones above the limits, but not the one with the number `newest`.

        Raises `StateLimitReached` if that is not enough for what `owner` has stored; None: what was stored takes no room.
        """
        expired = f"SELECT number FROM answers WHERE is_leaf AND {place} AND stored_at <= ? ORDER BY stored_at, number LIMIT 1"
        for _ in range(_PURGED_AT_ONCE):
            row = db.execute(expired, (self.oldest,)).fetchone()
            if row is None:
                break
            drop_answer(db, row[0])
        # Counted with indexes: the status of a row comes after all of its content.
        (count,) = db.execute(f"SELECT count(*) FROM answers WHERE {THERE}").fetchone()
        if place == HERE:
            count = db.execute("SELECT count(*) FROM answers").fetchone()[0] - count
        while count > self.limit and (dropped := self._drop_oldest(db, newest, place=place)):
            count -= dropped
        if self.max_bytes and owner is not None:
            self._shrink(db, owner, self.max_bytes // 2 if self._is_shared() else self.max_bytes, newest)
            self._shrink(db, None, self.max_bytes, newest)

    def _shrink(self, db: sqlite3.Connection, owner: str | None, limit: int, newest: int) -> None:
        find_used = "SELECT coalesce(sum(bytes), 0) FROM stored_bytes WHERE :owner IS NULL OR owner = :owner"
        while (used := db.execute(find_used, {"owner": owner}).fetchone()[0]) > limit:
            if not self._drop_oldest(db, newest, owner):
                whose = "all clients" if owner is None else "this client"
                raise StateLimitReached(
                    f"stored responses and conversations of {whose} would have {used:,} bytes, more than {limit:,} "
                    "(gateway.state_bytes); nothing was stored. Delete conversations or background responses, or raise it"
                )

    def _drop_oldest(self, db: sqlite3.Connection, newest: int, owner: str | None = None, place: str = HERE) -> int:
        """Remove the oldest answer, of one owner or of all, that no other continues, and that is neither `newest` nor generated
        now. Returns the number of removed rows."""
        find = (
            f"SELECT number FROM answers WHERE is_leaf AND {place} AND number != :newest AND (:owner IS NULL OR owner = :owner)"
            f" AND (status != 'running' OR NOT {is_alive('answers.number')}) ORDER BY stored_at, number LIMIT 1"
        )
        oldest = db.execute(find, {"owner": owner, "newest": newest, **self.times}).fetchone()
        return 0 if oldest is None else drop_answer(db, oldest[0])


def is_alive(answer: str) -> str:
    """The condition that an answer, whose number is in that column, is being generated."""
    return f"EXISTS (SELECT 1 FROM answer_events p WHERE p.answer = {answer} AND p.number = {ALIVE} AND p.stored_at > :alive)"


def drop_answer(db: sqlite3.Connection, number: int) -> int:
    """Remove an answer that no other continues, and deleted ones that only it continued. Returns the number of removed rows."""
    dropped = 0
    while True:
        (parent,) = db.execute("SELECT parent FROM answers WHERE number = ?", (number,)).fetchone()
        db.execute("DELETE FROM items WHERE number = ?", (number,))
        db.execute("DELETE FROM answer_events WHERE answer = ?", (number,))
        db.execute("DELETE FROM answers WHERE number = ?", (number,))
        dropped += 1
        if parent is None or db.execute("SELECT 1 FROM answers WHERE parent = ?", (parent,)).fetchone():
            return dropped
        db.execute("UPDATE answers SET is_leaf = 1 WHERE number = ?", (parent,))
        if not db.execute("SELECT is_deleted FROM answers WHERE number = ?", (parent,)).fetchone()[0]:
            return dropped
        number = parent


def _count_rows() -> str:
    """The statements that count what is in the tables."""
    rows = " UNION ALL ".join(
        f"SELECT {_owner(table, table)} AS owner, {_size(table, table)} AS size FROM {table}" for table in _COUNTED
    )
    return (
        "DELETE FROM stored_bytes;\n"
        f"INSERT INTO stored_bytes SELECT owner, sum(size) FROM ({rows}) WHERE owner IS NOT NULL GROUP BY owner;\n"
    )


def _count_changes(*tables: str) -> str:
    """The triggers that count every change of tables."""
    change = "UPDATE stored_bytes SET bytes = bytes"
    triggers = ""
    for table in tables:
        owner, size = _owner(table, "new"), _size(table, "new")
        # Without a clause for conflicts: that of the statement that inserts the row would replace it.
        triggers += (
            f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN\n"
            f"INSERT INTO stored_bytes SELECT {owner}, 0"
            f" WHERE NOT EXISTS (SELECT 1 FROM stored_bytes WHERE owner = {owner}); "
            f"{change} + {size} WHERE owner = {owner}; END;\n"
            f"CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN\n"
            f"{change} - {_size(table, 'old')} WHERE owner = {_owner(table, 'old')}; END;\n"
            f"CREATE TRIGGER {table}_changed AFTER UPDATE OF {', '.join(_COUNTED[table][1])} ON {table} BEGIN\n"
            f"{change} + {size} - {_size(table, 'old')} WHERE owner = {owner}; END;\n"
        )
    return triggers


def _owner(table: str, row: str) -> str:
    return _COUNTED[table][0].format(row=row)


def _size(table: str, row: str) -> str:
    lengths = (f"coalesce(length({row}.{column}), 0)" for column in _COUNTED[table][1])
    return f"({_ROW_BYTES} + {' + '.join(lengths)})"


_STORED_BYTES = "CREATE TABLE stored_bytes (owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;\n"

_CONVERSATION_TABLES = """
CREATE TABLE conversations (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    owner    TEXT NOT NULL,
    id       TEXT NOT NULL,
    created  REAL NOT NULL,
    used     REAL NOT NULL,
    metadata BLOB NOT NULL
);
CREATE UNIQUE INDEX known_conversations ON conversations (owner, id);
CREATE INDEX idle_conversations ON conversations (used);
CREATE TABLE conversation_items (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    id           TEXT NOT NULL,
    item         BLOB NOT NULL
);
CREATE UNIQUE INDEX known_conversation_items ON conversation_items (conversation, id);
"""

_ANSWER_TABLES = """
CREATE UNIQUE INDEX known ON answers (owner, id) WHERE NOT is_deleted;
CREATE INDEX leaves ON answers (stored_at, number) WHERE is_leaf AND status != 'upstream';
CREATE INDEX upstream ON answers (stored_at, number) WHERE status = 'upstream';
CREATE TABLE answer_events (
    answer    INTEGER NOT NULL,   -- the number of the answer
    number    INTEGER NOT NULL,
    stored_at REAL NOT NULL,
    event     BLOB NOT NULL,
    PRIMARY KEY (answer, number)
) WITHOUT ROWID;
CREATE INDEX oldest_answer_events ON answer_events (stored_at);
"""

_TABLES = (
    """
CREATE TABLE answers (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    owner        TEXT NOT NULL,
    id           TEXT NOT NULL,
    parent       INTEGER,                      -- the number of the response it continues
    stored_at    REAL NOT NULL,                -- seconds since 1970
    is_deleted   INTEGER NOT NULL DEFAULT 0,   -- here only because others build on it
    is_leaf      INTEGER NOT NULL DEFAULT 1,   -- no response continues it
    input        BLOB NOT NULL,
    output       BLOB NOT NULL,
    body         BLOB NOT NULL,
    status       TEXT NOT NULL DEFAULT 'complete',
    deadline     REAL NOT NULL DEFAULT 0,      -- of versions before; nothing reads it
    is_cancelled INTEGER NOT NULL DEFAULT 0,
    request      BLOB NOT NULL DEFAULT x'',
    provider     TEXT NOT NULL DEFAULT '',
    credential   TEXT NOT NULL DEFAULT '',
    model        TEXT NOT NULL DEFAULT ''
);
CREATE INDEX children ON answers (parent);
CREATE TABLE items (owner TEXT NOT NULL, id TEXT NOT NULL, number INTEGER NOT NULL, first INTEGER, behind INTEGER,
    PRIMARY KEY (owner, id)) WITHOUT ROWID;
CREATE INDEX item_homes ON items (number);
"""
    + _ANSWER_TABLES
    + _CONVERSATION_TABLES
    + _STORED_BYTES
    + _count_changes(*_COUNTED)
)
"""The tables of a new file. An answer is `running`, then `complete`, or `ended` without being so. One
that is `upstream` is stored by its provider; the row says where: provider, name of the key, and the model that was asked for."""

# Migrations of older files, each in one transaction. A process of the version before that has the file open gets errors for
# stored answers until it is replaced; everything else it answers as before.

_BACKGROUND_ANSWERS = """
CREATE TABLE unfinished (
    owner        TEXT NOT NULL,
    id           TEXT NOT NULL,
    kept         REAL NOT NULL,
    due          REAL NOT NULL,
    is_cancelled INTEGER NOT NULL DEFAULT 0,
    body         BLOB NOT NULL,
    PRIMARY KEY (owner, id)
) WITHOUT ROWID;
"""

_UPSTREAM_ANSWERS_AND_EVENTS = """
CREATE TABLE upstream_answers (
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL,
    kept       REAL NOT NULL,
    provider   TEXT NOT NULL,
    credential TEXT NOT NULL,
    model      TEXT NOT NULL,
    PRIMARY KEY (owner, id)
) WITHOUT ROWID;
CREATE INDEX oldest_upstream_answers ON upstream_answers (kept);
ALTER TABLE unfinished ADD COLUMN request BLOB;
CREATE TABLE unfinished_events (
    owner  TEXT NOT NULL,
    id     TEXT NOT NULL,
    number INTEGER NOT NULL,
    kept   REAL NOT NULL,
    event  BLOB NOT NULL,
    PRIMARY KEY (owner, id, number)
) WITHOUT ROWID;
CREATE INDEX oldest_unfinished_events ON unfinished_events (kept);
"""

_ONE_TABLE_OF_ANSWERS = f"""
DROP TRIGGER IF EXISTS responses_added;
DROP TRIGGER IF EXISTS responses_removed;
DROP TRIGGER IF EXISTS responses_changed;
DROP INDEX known;
DROP INDEX leaves;
ALTER TABLE responses RENAME TO answers;
ALTER TABLE answers RENAME COLUMN kept TO stored_at;
ALTER TABLE answers RENAME COLUMN is_gone TO is_deleted;
ALTER TABLE answers ADD COLUMN status TEXT NOT NULL DEFAULT 'complete';
ALTER TABLE answers ADD COLUMN deadline REAL NOT NULL DEFAULT 0;
ALTER TABLE answers ADD COLUMN is_cancelled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE answers ADD COLUMN request BLOB NOT NULL DEFAULT x'';
ALTER TABLE answers ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE answers ADD COLUMN credential TEXT NOT NULL DEFAULT '';
ALTER TABLE answers ADD COLUMN model TEXT NOT NULL DEFAULT '';
{_ANSWER_TABLES}
INSERT OR IGNORE INTO answers (owner, id, stored_at, status, deadline, is_cancelled, request, input, output, body)
    SELECT owner, id, kept, CASE WHEN due > 0 THEN 'running' ELSE 'ended' END, due, is_cancelled, coalesce(request, x''),
    x'', x'', body FROM unfinished;
INSERT OR IGNORE INTO answers (owner, id, stored_at, status, provider, credential, model, input, output, body)
    SELECT owner, id, kept, 'upstream', provider, credential, model, x'', x'', x'' FROM upstream_answers;
INSERT INTO answer_events SELECT a.number, e.number, e.kept, e.event
    FROM unfinished_events e JOIN answers a ON a.owner = e.owner AND a.id = e.id AND NOT a.is_deleted;
DROP TABLE unfinished;
DROP TABLE unfinished_events;
DROP TABLE upstream_answers;
"""
