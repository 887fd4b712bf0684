"""The file for the state of all clients: its tables, and how it is opened.

One SQLite file, or one database in memory. A migration only adds, so a process of the version before can
still read what it knows.
"""

from __future__ import annotations

import os

from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon_gateway.state.size_limit import counting_tables

APPLICATION_ID = 0x414E5453  # "ANTS": not a history, so that neither is mistaken for the other
SCHEMA = 4

_TABLES = """
CREATE TABLE responses (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    owner   TEXT NOT NULL,
    id      TEXT NOT NULL,
    parent  INTEGER,                      -- the number of the response it continues
    kept    REAL NOT NULL,                -- seconds since 1970
    is_gone INTEGER NOT NULL DEFAULT 0,   -- deleted, and here only because others build on it
    is_leaf INTEGER NOT NULL DEFAULT 1,   -- no response continues it
    input   BLOB NOT NULL,
    output  BLOB NOT NULL,
    body    BLOB NOT NULL
);
CREATE UNIQUE INDEX known ON responses (owner, id) WHERE NOT is_gone;
CREATE INDEX leaves ON responses (kept, number) WHERE is_leaf;
CREATE INDEX children ON responses (parent);
CREATE TABLE items (owner TEXT NOT NULL, id TEXT NOT NULL, number INTEGER NOT NULL, first INTEGER, behind INTEGER,
    PRIMARY KEY (owner, id)) WITHOUT ROWID;
CREATE INDEX item_homes ON items (number);
"""

_BACKGROUND_AND_CONVERSATIONS = """
CREATE TABLE unfinished (
    owner        TEXT NOT NULL,
    id           TEXT NOT NULL,
    kept         REAL NOT NULL,               -- seconds since 1970
    due          REAL NOT NULL,               -- when its process has given up; 0: it has ended
    is_cancelled INTEGER NOT NULL DEFAULT 0,  -- a client asked for it, perhaps at another worker
    body         BLOB NOT NULL,
    PRIMARY KEY (owner, id)
) WITHOUT ROWID;
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

_UPSTREAM_ANSWERS_AND_EVENTS = """
CREATE TABLE upstream_answers (
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL,
    kept       REAL NOT NULL,   -- seconds since 1970
    provider   TEXT NOT NULL,
    credential TEXT NOT NULL,   -- the name of the key, never the key
    model      TEXT NOT NULL,   -- as the client asked for it
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


def open_state_file(path: str | os.PathLike[str] = "", *, timeout: float = 5.0) -> SqliteFile:
    """The file at `path`, or a database in memory with an empty path."""
    return SqliteFile(
        os.fspath(path) or ":memory:",
        tables=_TABLES,
        application_id=APPLICATION_ID,
        schema=SCHEMA,
        timeout=timeout,
        read_only=False,
        create=True,
        migrations={1: _BACKGROUND_AND_CONVERSATIONS, 2: _UPSTREAM_ANSWERS_AND_EVENTS, 3: counting_tables()},
    )
