"""Histories in a PostgreSQL database, for many machines."""

from antiphon.history.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
