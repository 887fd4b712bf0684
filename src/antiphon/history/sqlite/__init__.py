"""Histories in one SQLite file: the default store."""

from antiphon.history.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
