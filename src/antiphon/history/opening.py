"""`open_store`: the store that a place names, be it a file or a server.

Whatever takes a store (`Conversation(store=…)`, `--store`, `$ANTIPHON_STORE`, a worker) takes such a place, so that moving from a
file to a server is another word in one setting.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from antiphon.history.sqlite import SqliteStore
from antiphon.history.store import HistoryStore

_SERVERS = ("postgresql://", "postgres://")


def is_server(place: str | os.PathLike[str]) -> bool:
    """Whether a place is the address of a server, and not a file."""
    return isinstance(place, str) and place.startswith(_SERVERS)


def shown(place: str | os.PathLike[str]) -> str:
    """A place as it may be shown: of an address nothing but that it is one, for it may hold a password (law L10)."""
    return "postgresql://…" if is_server(place) else os.fspath(place)


def folder_of(place: str | os.PathLike[str]) -> Path:
    """Where what goes with a store (plans, documents) is kept: beside its file; of a server, in the user's own folder."""
    return data_folder() if is_server(place) else Path(place).absolute().parent


def data_folder() -> Path:
    """The user's own folder, where a store is that nobody named."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "antiphon"


def open_store(place: str | os.PathLike[str], **how: Any) -> HistoryStore:
    """The store at a place: the path of an SQLite file, or `postgresql://user:password@host:port/database`.

    `how` is what the store's class takes beside the place; `create=False` and `read_only=True` mean the same to each.
    """
    if isinstance(place, str) and is_server(place):
        from antiphon.history.postgres import PostgresStore

        return PostgresStore(place, **how)
    return SqliteStore(place, **how)
