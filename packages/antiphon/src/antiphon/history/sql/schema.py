"""The tables of both databases and their migrations, forward only.

`touched` is when a conversation was last changed, to the minute: the time of its last entry is not before that, and at most a
minute after. So the latest ones are found by an index, and an append writes nothing but its row, unless the minute is over.

Rule for a migration: older programs keep working during and after it, so it only adds (tables, columns with a constant default,
indexes on new tables). In PostgreSQL, `needs` is the oldest schema whose code may still use the database; a program that knows
less is refused. A lock lets one process migrate while others wait; a migration that cannot lock a table at once gives way and
tries again, so that appends do not queue up. There are no foreign keys: an append checks and locks the conversation's row.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.errors import StoreError, StoreLocked, StoreReadOnly

if TYPE_CHECKING:
    from antiphon.history.sql.postgres_connections import Connections, PostgresConnection

APPLICATION_ID = 0x414E5450  # "ANTP", in the header of every file of ours
SHIFT = 32
SEQUENCE = (1 << SHIFT) - 1
UNTOUCHED = (1 << 63) - 1
"""`touched` of a conversation that an older program created: it is always looked at."""

_LAST_CHANGE = f"""coalesce((SELECT at FROM entries WHERE key > conversations.number << {SHIFT}
    AND key < (conversations.number + 1) << {SHIFT} ORDER BY key DESC LIMIT 1), created)"""
"""The time of a conversation's last entry."""

SQLITE_TOUCH_LAST = f"UPDATE conversations SET touched = {_LAST_CHANGE} WHERE number = :number"

SCHEMA_V1 = """
CREATE TABLE conversations (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused, so a deleted conversation's writer cannot hit another
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
SQLITE_MIGRATIONS = {
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
    # Bodies may be deflated from here on (see `codec`); those that are there stay as they are. `touched`: see above.
    2: f"""
ALTER TABLE conversations ADD COLUMN touched INTEGER NOT NULL DEFAULT {UNTOUCHED};
UPDATE conversations SET touched = {_LAST_CHANGE};
CREATE INDEX latest_touched ON conversations (touched);
""",
    # A checksum of each row (see `codec`), NULL in rows that were there before; and the clock of leases (see `lease_clock`).
    3: """
ALTER TABLE entries ADD COLUMN checksum INTEGER;
CREATE TABLE lease_clock (boot TEXT NOT NULL, ahead INTEGER NOT NULL);
""",
    # The digest of each entry (see `history/codec.py`), NULL in rows that were there before; and deleted conversations.
    4: """
ALTER TABLE entries ADD COLUMN digest BLOB;
CREATE TABLE tombstones (id TEXT NOT NULL, deleted INTEGER NOT NULL, entries INTEGER NOT NULL, head BLOB NOT NULL);
""",
    # How many entries of a conversation were imported (see `export`): decisions among them permit nothing.
    5: "ALTER TABLE conversations ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;\n",
    # What others have for a conversation (see `history/journal.py`).
    6: """
CREATE TABLE IF NOT EXISTS inbox (
    number INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (number, key)
) WITHOUT ROWID;
""",
}
FILE_SCHEMA = 1 + len(SQLITE_MIGRATIONS)

LOCKS = APPLICATION_ID  # the first half of the key of every advisory lock of ours
_LOCK_TIMEOUT = "300ms"
_MAX_WAIT = 60.0


class Migration(Struct, frozen=True):
    """One migration. `needs`: the oldest schema whose code may use the database after it."""

    number: int
    needs: int
    statements: str


POSTGRES_MIGRATIONS = (
    Migration(
        1,
        1,
        """
CREATE TABLE conversations (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- never reused
    id            text COLLATE "C" NOT NULL UNIQUE,
    title         text NOT NULL,
    created       timestamptz NOT NULL,
    parent        text,
    forked_at     integer,
    tags          text[] NOT NULL,
    indexed       integer NOT NULL DEFAULT 0,                       -- how far the full-text index has come
    epoch         bigint NOT NULL DEFAULT 0,                        -- these three are the lease
    holder        text NOT NULL DEFAULT '',
    held_until    timestamptz NOT NULL DEFAULT 'epoch',
    watched_until timestamptz NOT NULL DEFAULT 'epoch'              -- not used any more: tails poll
) WITH (fillfactor = 80);
CREATE INDEX conversations_by_tag ON conversations USING gin (tags);
CREATE TABLE entries (
    number   bigint NOT NULL,
    sequence integer NOT NULL,
    at       timestamptz,
    body     bytea NOT NULL,                                        -- the entry as it is exported, byte for byte
    PRIMARY KEY (number, sequence)
);
CREATE TABLE attachments (name text COLLATE "C" PRIMARY KEY, data bytea NOT NULL);
ALTER TABLE attachments ALTER data SET STORAGE EXTERNAL;            -- base64 does not get smaller by trying
CREATE TABLE attachment_uses (number bigint NOT NULL, name text COLLATE "C" NOT NULL, PRIMARY KEY (number, name));
CREATE INDEX attachment_users ON attachment_uses (name);
CREATE TABLE said (
    number     bigint NOT NULL,
    sequence   integer NOT NULL,
    words      tsvector NOT NULL,
    is_partial boolean NOT NULL,                                    -- too many words for an index row: it is read instead
    PRIMARY KEY (number, sequence)
);
CREATE INDEX said_words ON said USING gin (words);
CREATE INDEX said_in_part ON said (number) WHERE is_partial;
CREATE TABLE runs (
    id           text COLLATE "C" PRIMARY KEY,
    number       bigint NOT NULL,                                   -- of the conversation
    kind         text NOT NULL,
    code         integer NOT NULL,
    provider     text NOT NULL,
    options      text NOT NULL,                                     -- a JSON object
    state        text NOT NULL,
    reason       text NOT NULL,
    created      timestamptz NOT NULL,
    updated      timestamptz NOT NULL,
    due          timestamptz NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    is_cancelled boolean NOT NULL DEFAULT false
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX open_runs ON runs (number) WHERE state IN ('waiting', 'suspended');
CREATE INDEX waiting_runs ON runs (due, id) WHERE state = 'waiting'
""",
    ),
    # Conversations of older workers are not touched, and therefore always looked at; those they append to keep their place in
    # lists until a newer one appends. Appends wait for this one: two seconds for 100,000 conversations.
    Migration(
        2,
        1,
        """
ALTER TABLE conversations ADD COLUMN touched timestamptz NOT NULL DEFAULT 'infinity';
UPDATE conversations c SET touched = coalesce(
    (SELECT at FROM entries e WHERE e.number = c.number ORDER BY sequence DESC LIMIT 1), created);
CREATE INDEX latest_touched ON conversations (touched);
ANALYZE conversations (touched)
""",
    ),
    # The checksum of a row (see `codec`). Older workers write none, as in the rows that were there before.
    Migration(3, 1, "ALTER TABLE entries ADD COLUMN checksum integer"),
    # The digest of an entry (see `history/codec.py`), and deleted conversations. Older workers write neither.
    Migration(
        4,
        1,
        """
ALTER TABLE entries ADD COLUMN digest bytea;
CREATE TABLE tombstones (
    id text COLLATE "C" NOT NULL, deleted timestamptz NOT NULL, entries integer NOT NULL, head bytea NOT NULL)
""",
    ),
    # How many entries of a conversation were imported (see `export`). What older workers import counts as written here.
    Migration(5, 1, "ALTER TABLE conversations ADD COLUMN imported integer NOT NULL DEFAULT 0"),
    # What others have for a conversation (see `history/journal.py`). Older workers leave it to newer ones.
    Migration(
        6,
        1,
        """
CREATE TABLE inbox (
    number bigint NOT NULL, key text COLLATE "C" NOT NULL, kind text NOT NULL, body bytea NOT NULL, at timestamptz NOT NULL,
    PRIMARY KEY (number, key))
""",
    ),
)

_LEDGER = "CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, needs integer NOT NULL, done timestamptz NOT NULL)"


def migrate(
    connections: Connections, migrations: Sequence[Migration] = POSTGRES_MIGRATIONS, *, create: bool = True
) -> None:
    """Bring the tables up to date. Raises `StoreError` if it needs a newer Antiphon."""
    known = migrations[-1].number
    version = _current_version(connections, known)
    if version >= known:
        return
    if not version and not create:
        raise StoreError(f"there is no store at {connections.place}")
    deadline = time.monotonic() + _MAX_WAIT
    while True:
        try:
            with connections.transaction() as db:
                if not _step(db, connections.address.schema, migrations):
                    return
        except StoreLocked:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        except StoreReadOnly as error:
            raise StoreReadOnly(f"the tables of this Antiphon (schema {known}) cannot be made: {error}") from error


def lock_number(schema: str, what: str) -> int:
    """The second half of the key of an advisory lock: a number of 32 bits with a sign."""
    return zlib.crc32(f"{schema}\0{what}".encode()) - (1 << 31)


def _current_version(connections: Connections, known: int) -> int:
    """The last migration of the database."""
    schema = connections.address.schema
    ((is_there,),) = connections.rows("SELECT to_regclass(quote_ident(%s) || '.migrations') IS NOT NULL", (schema,))
    if not is_there:
        return 0
    ((number, needs),) = connections.rows("SELECT max(number), max(needs) FROM migrations")
    if (needs or 0) > known:
        raise StoreError(
            f"{connections.place} was made by a newer Antiphon: it is at schema {number} and needs a program that knows schema "
            f"{needs}, and this one knows {known}; upgrade"
        )
    return number or 0


def _step(db: PostgresConnection, schema: str, migrations: Sequence[Migration]) -> bool:
    """Apply the next missing migration, and return whether there was one."""
    db.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, lock_number(schema, "migration")))
    db.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,))
    # Asked first, for CREATE IF NOT EXISTS wants the right to create even where there is nothing to do.
    (is_there,) = db.execute("SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", (schema,)).fetchone() or (False,)
    if not is_there:
        db.execute(_with_identifier("CREATE SCHEMA {}", schema))
    db.execute(_LEDGER)
    (done,) = db.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone() or (0,)
    for migration in migrations:
        if migration.number > done:
            db.execute(migration.statements.encode())
            row = (migration.number, migration.needs)
            db.execute("INSERT INTO migrations VALUES (%s, %s, clock_timestamp())", row)
            return True
    return False


def _with_identifier(statement: str, name: str) -> bytes:
    quoted = name.replace('"', '""')
    return statement.format(f'"{quoted}"').encode()
