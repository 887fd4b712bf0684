"""The audit log: who changed what, when and from where. Rows are only ever added, and contain no secret."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.history.sql.database import Database
from antiphon.http.messages import ClientRequest
from antiphon_gateway.access.client_keys import ClientKey, forwarded_addresses
from antiphon_gateway.utc_time import now_microseconds, time_at

LOCAL = "local"
"""The operator of a gateway without keys."""
_LONGEST = 200
_INSERT = """
INSERT INTO audit (at, operator, peer, action, target, details)
VALUES (:at, :operator, :peer, :action, :target, :details)
"""
_LIST = """
SELECT id, at, operator, peer, action, target, details FROM audit WHERE id < :before ORDER BY id DESC LIMIT :most
"""
_NEWEST = 1 << 62


class Change(Struct, frozen=True, kw_only=True):
    """A change that an operator asks for. `operator` is the name of the admin key."""

    operator: str
    peer: str
    action: str
    target: str
    details: Mapping[str, Any] = {}

    @classmethod
    def of(cls, request: ClientRequest, operator: ClientKey, action: str, target: str, **details: Any) -> Change:
        """A change that a request asks for. A proxy's client is named after the address of the proxy."""
        forwarded = forwarded_addresses(request.headers)
        peer = " for ".join([request.peer, ", ".join(forwarded)[:_LONGEST]] if forwarded else [request.peer])
        return cls(operator=operator.name or LOCAL, peer=peer, action=action, target=target, details=details)


class AuditRow(Struct, frozen=True):
    """A row of the log."""

    id: int
    at: datetime
    operator: str
    peer: str
    action: str
    target: str
    details: dict[str, Any]


def write_audit(database: Database, db: Any, change: Change) -> None:
    """Add a row, in the transaction of the change."""
    values = {**structs.asdict(change), "details": msgspec.json.encode(change.details).decode()}
    database.execute(db, _INSERT, at=now_microseconds(), **values)


def record_change(database: Database, change: Change) -> None:
    """Add a row for a change that is not in the database."""
    with database.transaction() as db:
        write_audit(database, db, change)


def read_audit(database: Database, *, before: int | None = None, limit: int) -> list[AuditRow]:
    """The newest rows, from before the row with that id."""
    found = database.rows(_LIST, before=_NEWEST if before is None else before, most=limit)
    return [
        AuditRow(number, time_at(at), operator, peer, action, target, msgspec.json.decode(details))
        for number, at, operator, peer, action, target, details in found
    ]
