"""`PlanStore`: plans in an SQLite file, for any number of threads and processes.

A change is read, made and written in one transaction that holds SQLite's write lock from its first statement. So changes of
one plan are serialised and none is lost. A caller may pass the `version` that it read before, and is refused (`PlanChanged`) if
the plan has changed since. A process killed in a write leaves the file as it was before.

A call with a `key` happens once. Its result is kept beside the plans, under a digest of the key and the arguments; the same call
again gets the same result and changes nothing. Results are deleted after a week.

All access uses one connection under the file's lock: tools run in short-lived threads, and a connection for each would outlive
its thread.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from antiphon.closing import Closable
from antiphon.errors import PlanChanged, StoreDamaged, UnknownPlan
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon.tools.builtin.plan_values import Plan, PlanStatus
from antiphon.tools.builtin.plans import PlanChange, TaskDraft, apply_change, new_plan, now_in_seconds

_APPLICATION_ID = 0x414E5450 + 1
_SCHEMA = 1
_TABLES = """
CREATE TABLE plans (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, so an old call cannot hit a new plan
    body   BLOB NOT NULL                       -- the plan as JSON
);
CREATE TABLE answered (
    digest BLOB PRIMARY KEY,
    at     INTEGER NOT NULL,                   -- seconds since 1970
    body   BLOB NOT NULL                       -- the plan the call gave
) WITHOUT ROWID;
CREATE INDEX answered_at ON answered (at);
"""
_KEPT_SECONDS = 7 * 24 * 3600
_PLAN_NUMBER = re.compile(r"(?:plan)?[\s_#-]*(\d{1,18})", re.IGNORECASE | re.ASCII)


class PlanStore(Closable):
    """Plans, kept. `:memory:` keeps them until the store is closed."""

    def __init__(self, path: str | os.PathLike[str] = ":memory:", *, timeout: float = 10.0) -> None:
        """Open the file, or make it. `timeout`: how long to wait for another process's lock."""
        self.path = os.fspath(path)
        self._file = SqliteFile(
            self.path,
            tables=_TABLES,
            application_id=_APPLICATION_ID,
            schema=_SCHEMA,
            timeout=timeout,
            read_only=False,
            create=True,
        )

    def close(self) -> None:
        self._file.close()

    def create(self, title: str, goal: str = "", tasks: Sequence[str | TaskDraft] = (), *, key: str = "") -> Plan:
        """Make a plan and keep it. Raises `PlanError` for one that cannot be."""

        def insert(db: sqlite3.Connection) -> Plan:
            number = db.execute("INSERT INTO plans (body) VALUES ('')").lastrowid
            plan = new_plan(f"plan-{number}", title, goal, tasks, now_in_seconds())
            db.execute("UPDATE plans SET body = ? WHERE number = ?", (_encode(plan), number))
            return plan

        return self._run_once(key, ("create", title, goal, tasks), insert)

    def list(self, status: PlanStatus | None = None) -> Sequence[Plan]:
        """The plans in the order they were made."""
        with self._file.writing() as db:
            bodies = db.execute("SELECT body FROM plans ORDER BY number").fetchall()
        plans = [_decode(body) for (body,) in bodies]
        return [plan for plan in plans if status in (None, plan.status)]

    def get(self, plan_id: str) -> Plan:
        """The plan with that id. Raises `UnknownPlan`."""
        with self._file.writing() as db:
            return _find(db, plan_id)[1]

    def update(self, plan_id: str, change: PlanChange, *, expected_version: int | None = None, key: str = "") -> Plan:
        """Change a plan and return what it is then. Raises `PlanError`, `UnknownPlan` or `PlanChanged`."""

        def apply(db: sqlite3.Connection) -> Plan:
            number, plan = _find(db, plan_id)
            if expected_version not in (None, plan.version):
                raise PlanChanged(
                    f"nothing was changed: {plan.id} has version {plan.version} by now, not {expected_version}; "
                    "read it again with get_plan and decide again"
                )
            after = apply_change(plan, change, now_in_seconds())
            db.execute("UPDATE plans SET body = ? WHERE number = ?", (_encode(after), number))
            return after

        return self._run_once(key, ("update", plan_id, change, expected_version), apply)

    def delete(self, plan_id: str, *, key: str = "") -> Plan:
        """Forget a plan, and return what it was. Raises `UnknownPlan`."""

        def remove(db: sqlite3.Connection) -> Plan:
            number, plan = _find(db, plan_id)
            db.execute("DELETE FROM plans WHERE number = ?", (number,))
            return plan

        return self._run_once(key, ("delete", plan_id), remove)

    def _run_once(self, key: str, arguments: tuple[Any, ...], work: Callable[[sqlite3.Connection], Plan]) -> Plan:
        with self._file.transaction() as db:
            if not key:
                return work(db)
            digest = hashlib.sha256(msgspec.json.encode((key, arguments))).digest()
            known = db.execute("SELECT body FROM answered WHERE digest = ?", (digest,)).fetchone()
            if known:
                return _decode(known[0])
            plan = work(db)
            now = int(now_in_seconds().timestamp())
            db.execute("DELETE FROM answered WHERE at < ?", (now - _KEPT_SECONDS,))
            db.execute("INSERT INTO answered (digest, at, body) VALUES (?, ?, ?)", (digest, now, _encode(plan)))
            return plan


def _find(db: sqlite3.Connection, plan_id: str) -> tuple[int, Plan]:
    number = _PLAN_NUMBER.fullmatch(plan_id.strip())
    row = number and db.execute("SELECT number, body FROM plans WHERE number = ?", (int(number[1]),)).fetchone()
    if not row:
        raise UnknownPlan(_unknown_message(db, plan_id))
    return row[0], _decode(row[1])


def _unknown_message(db: sqlite3.Connection, plan_id: str) -> str:
    (count,) = db.execute("SELECT count(*) FROM plans").fetchone()
    newest = [
        _decode(body) for (body,) in db.execute("SELECT body FROM plans ORDER BY number DESC LIMIT 10").fetchall()
    ]
    if not newest:
        return f"there is no plan {plan_id[:40]!r}: there are no plans yet; create_plan makes one"
    known = ", ".join(f"{plan.id} ({plan.title})" for plan in reversed(newest))
    more = f" and {count - len(newest)} older ones; list_plans shows all" if count > len(newest) else ""
    return f"there is no plan {plan_id[:40]!r}; the plans are {known}{more}"


def _encode(plan: Plan) -> bytes:
    return msgspec.json.encode(plan)


def _decode(body: bytes) -> Plan:
    try:
        return msgspec.json.decode(body, type=Plan)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"a plan in the store cannot be read ({error}); restore a copy of the file") from error
