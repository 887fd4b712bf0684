"""The rows of conversations and entries, as they are read."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from antiphon.history.export import ExportHead
from antiphon.history.store import ConversationInfo

CONVERSATIONS = """
SELECT c.number, c.id, c.title, c.created, c.parent, c.forked_at, c.tags, c.indexed, last.sequence, last.at
FROM conversations c LEFT JOIN LATERAL (
    SELECT sequence, at FROM entries WHERE entries.number = c.number ORDER BY sequence DESC LIMIT 1) last ON true
"""

LATEST_FIRST = "ORDER BY coalesce(last.at, c.created) DESC, c.number DESC"
LAST_SEQUENCE = (1 << 31) - 1


class ConversationRow(Struct, frozen=True):
    """A row of `CONVERSATIONS`."""

    number: int
    id: str
    title: str
    created: datetime
    parent: str | None
    forked_at: int | None
    tags: list[str]
    indexed: int
    last: int | None
    updated: datetime | None

    @property
    def version(self) -> int:
        return self.last or 0

    @property
    def info(self) -> ConversationInfo:
        return ConversationInfo(
            id=self.id,
            title=self.title,
            created=self.created,
            updated=max(self.updated or self.created, self.created),
            version=self.version,
            parent=self.parent,
            forked_at=self.forked_at,
            tags=tuple(self.tags),
        )

    @property
    def head(self) -> ExportHead:
        return ExportHead.of(self.info)


def plain(text: str) -> str:
    """A text as PostgreSQL can keep it: it knows neither NUL nor half a character. Entries need no such care, they are bytes."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def aware(at: datetime | None) -> datetime | None:
    """A time with its zone; one without is UTC."""
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
