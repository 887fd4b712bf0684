"""The documented path of `PostgresStore`."""

from antiphon.history.sql.postgres import PostgresStore

__all__ = ["PostgresStore"]
