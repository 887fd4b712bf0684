"""`SqlInbox`: the inbox of a stored conversation, one row for each item."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.history.inbox import InboxItem
from antiphon.history.sql.dialect import Dialect

_PUT = """
INSERT INTO inbox (number, key, kind, body, at) SELECT number, :key, :kind, :body, :now FROM conversations WHERE number = :number
ON CONFLICT DO NOTHING RETURNING key
"""
_ITEMS = "SELECT key, kind, body FROM inbox WHERE number = :number ORDER BY at, key LIMIT 100"


class SqlInbox:
    """What waits for the conversation of that number."""

    def __init__(self, dialect: Dialect, number: int) -> None:
        self._dialect = dialect
        self._number = number

    def put(self, item: InboxItem) -> bool:
        with self._dialect.connection() as db:
            put = self._dialect.execute(db, _PUT, key=item.key, kind=item.kind, body=item.body, number=self._number)
        return bool(put)

    def items(self) -> Sequence[InboxItem]:
        if not self._dialect.has_inbox:
            return ()
        rows = self._dialect.rows(_ITEMS, number=self._number)
        return [InboxItem(key, kind, bytes(body)) for key, kind, body in rows] if rows else ()

    def remove(self, keys: Iterable[str]) -> None:
        statement = f"DELETE FROM inbox WHERE number = :number AND {self._dialect.one_of('key', 'keys')}"
        with self._dialect.connection() as db:
            self._dialect.execute(db, statement, number=self._number, keys=list(keys))
