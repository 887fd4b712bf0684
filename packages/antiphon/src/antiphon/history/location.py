"""Where a store is: its address parsed, the store opened, and its folder created for its owner alone.

An address is the path of an SQLite file or `postgresql://user:password@host:port/database`. Everything that takes a store
(`Conversation(store=…)`, `--store`, `$ANTIPHON_STORE`, a worker) takes one, so moving to a server is a change of one setting.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from antiphon.errors import ConversationError, StoreError, StoreReadOnly
from antiphon.history.agent_history import AgentHistory
from antiphon.history.sql.sqlite import SqliteStore
from antiphon.history.sql.store import HistoryStore
from antiphon.private_files import make_private_folder

_SERVERS = ("postgresql://", "postgres://")


def is_postgres_url(address: str | os.PathLike[str]) -> bool:
    """Whether an address is that of a server, and not a file."""
    return isinstance(address, str) and address.startswith(_SERVERS)


def store_location(given: str | None = None) -> str | Path:
    """The address to use: the given one, that of the environment, or the user's own file."""
    address = given or os.environ.get("ANTIPHON_STORE", "")
    if is_postgres_url(address):
        return address
    return Path(address) if address else data_folder() / "history.db"


def display_location(address: str | os.PathLike[str]) -> str:
    """An address that may be shown. That of a server may hold a password, so nothing of it is repeated (law L10)."""
    return "postgresql://…" if is_postgres_url(address) else os.fspath(address)


def data_folder_for(address: str | os.PathLike[str]) -> Path:
    """The folder for data that belongs to a store (plans, documents): beside its file; for a server, the user's own."""
    return data_folder() if is_postgres_url(address) else Path(address).absolute().parent


def data_folder() -> Path:
    """The user's own folder, for stores without an address."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "antiphon"


def open_store(
    address: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    timeout: float | None = None,
    schema: str | None = None,
    max_connections: int | None = None,
    statement_timeout: float | None = None,
) -> HistoryStore:
    """Open the store at an address: the path of an SQLite file, or `postgresql://user:password@host:port/database`.

    With `create`, a missing file or missing tables are created. `timeout` is how many seconds to wait for another process's lock
    or for the server. `schema`, `max_connections` and `statement_timeout` are those of `PostgresStore`, for a server only.
    """
    _check_address(address)
    waiting: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    given = {"schema": schema, "max_connections": max_connections, "statement_timeout": statement_timeout}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if isinstance(address, str) and is_postgres_url(address):
        from antiphon.history.sql.postgres import PostgresStore

        return PostgresStore(address, create=create, read_only=read_only, **waiting, **options)
    if options:
        raise StoreError(f"{', '.join(options)}: only a store in PostgreSQL has that, and {address!s} is a file")
    return SqliteStore(address, create=create, read_only=read_only, **waiting)


def _check_address(address: object) -> None:
    """Raise `StoreError` if this is not the address of a store. Of another kind only the scheme is repeated (law L10)."""
    if not isinstance(address, str | os.PathLike) or not os.fspath(address):
        raise StoreError(f"invalid store {address!r}: expected the path of an SQLite file, or postgresql://…")
    if isinstance(address, str) and "://" in address and not is_postgres_url(address):
        scheme = address.partition("://")[0]
        raise StoreError(f"unknown kind of store {scheme}://…; give the path of an SQLite file, or postgresql://…")


def open_location(address: str | os.PathLike[str], *, create: bool = True) -> HistoryStore:
    """Open the store at an address as the commands and the chat do.

    With `create`, the folder of a file is created, for its owner alone. A file without write permission is opened read-only.
    """
    _check_address(address)
    if is_postgres_url(address):
        return open_store(address, create=create)
    path = Path(address)
    if create:
        ensure_private_folder(path.absolute().parent)
    read_only = path.exists() and not (os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK))
    return open_store(path, create=create, read_only=read_only)


def ensure_private_folder(folder: Path) -> None:
    """Create a folder for its owner alone unless it exists. Raises `StoreReadOnly`."""
    try:
        make_private_folder(folder)
    except OSError as error:
        raise StoreReadOnly(f"cannot create the folder {folder}: {error.strerror or error}") from error


def open_history(
    history: AgentHistory | None, store: str | Path | HistoryStore | None, resume: str | None, title: str
) -> tuple[AgentHistory, HistoryStore | None]:
    """The history of a conversation: `history`, or a new or resumed one; and the store, if it was opened here for it."""
    if history is not None:
        if store is not None or resume is not None:
            raise ConversationError("give a history, or a store with a conversation to resume, not both")
        return history, None
    if store is None:
        if resume is not None:
            raise ConversationError(f"resume={resume!r} needs a store: Conversation(store=…, resume=…)")
        return AgentHistory(), None
    if not isinstance(resume, str | None):
        raise ConversationError(f"resume={resume!r}: expected the id of a conversation, or 'last'")
    if isinstance(store, HistoryStore):
        return store.open(resume) if resume is not None else store.create(title), None
    own = open_store(store)
    try:
        return own.open(resume) if resume is not None else own.create(title), own
    except BaseException:
        own.close()
        raise
