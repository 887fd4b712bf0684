"""The tables in the database, and how they come there: numbered migrations, forward only.

Whoever opens a store brings its schema up to date. A lock lets one do it and the others wait, each migration is one transaction,
and one that cannot have a table at once gives way and tries again, so that nobody's appends queue up behind it.

The rule for whoever adds a migration: older workers go on while it runs and after it. So it only adds (tables, columns with a
constant default, indexes on new tables); what exists keeps its name and meaning. Its `needs` is the oldest schema whose code
may still use the database: as long as the rule is kept, that stays as it is. A program that knows less is refused.

The key of an entry is (conversation number, sequence number): a conversation is one stretch of one index, and two writers of it
meet there. No foreign keys: the append itself looks at the conversation's row, once, and locks it against deletes and claims.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.errors import StoreError, StoreLocked, StoreReadOnly
from antiphon.history.postgres.connections import Connections

if TYPE_CHECKING:
    from antiphon.history.postgres.connections import Database

LOCKS = 0x414E5450  # "ANTP": the first half of the key of every advisory lock of ours
_GIVES_WAY = "300ms"
_PATIENCE = 60.0


class Migration(Struct, frozen=True):
    """A step forward. `needs`: the number of the oldest code that may use a database after it."""

    number: int
    needs: int
    statements: str


MIGRATIONS = (
    Migration(
        1,
        1,
        """
CREATE TABLE conversations (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- never used again after a delete
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
    watched_until timestamptz NOT NULL DEFAULT 'epoch'              -- somebody listens: appends tell of themselves
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
    is_partial boolean NOT NULL,                                    -- more words than an index takes: it is read instead
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
    # What older workers make is not touched, and therefore always looked at; what they append to keeps its place in lists until
    # a newer one does. Appends wait for this one: two seconds for 100,000 conversations.
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
)

_LEDGER = "CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, needs integer NOT NULL, done timestamptz NOT NULL)"


def migrate(connections: Connections, migrations: Sequence[Migration] = MIGRATIONS, *, create: bool = True) -> None:
    """Bring the tables up to date. Raises `StoreError` if the database is of a newer Antiphon that shares it no more."""
    known = migrations[-1].number
    standing = _standing(connections, known)
    if standing >= known:
        return
    if not standing and not create:
        raise StoreError(f"there is no store at {connections.place}")
    deadline = time.monotonic() + _PATIENCE
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


def _standing(connections: Connections, known: int) -> int:
    """Up to which migration the database is."""
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


def _step(db: Database, schema: str, migrations: Sequence[Migration]) -> bool:
    """Do the next migration that is missing, and say whether there was one."""
    db.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, lock_number(schema, "migration")))
    db.execute("SELECT set_config('lock_timeout', %s, true)", (_GIVES_WAY,))
    # Asked first, for CREATE IF NOT EXISTS wants the right to create even where there is nothing to do.
    (is_there,) = db.execute("SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", (schema,)).fetchone() or (False,)
    if not is_there:
        db.execute(_named("CREATE SCHEMA {}", schema))
    db.execute(_LEDGER)
    (done,) = db.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone() or (0,)
    for migration in migrations:
        if migration.number > done:
            db.execute(migration.statements.encode())
            row = (migration.number, migration.needs)
            db.execute("INSERT INTO migrations VALUES (%s, %s, clock_timestamp())", row)
            return True
    return False


def _named(statement: str, name: str) -> bytes:
    quoted = name.replace('"', '""')
    return statement.format(f'"{quoted}"').encode()
