"""Plans: their values and changes, and `PlanStore`, which keeps them in an SQLite file for any number of threads and processes.

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
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from antiphon.closing import Closable
from antiphon.errors import PlanChanged, PlanError, StoreDamaged, UnknownPlan
from antiphon.history.search_text import normalize
from antiphon.history.sql.sqlite_file import SqliteFile
from antiphon.text import one_line

TITLE_LENGTH = 200
GOAL_LENGTH = 2_000
NOTES_LENGTH = 1_000
TASKS = 100
SIZE = 30_000
"""How many characters a plan may have altogether: a model reads it whole, and more than once."""

_TASK_NUMBER = re.compile(r"(?:t|task)?[\s_#-]*(\d{1,9})", re.IGNORECASE | re.ASCII)
_DATE = re.compile(r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})\s*日?", re.ASCII)

PlanStatus: TypeAlias = Literal["active", "done", "archived"]


class PlanTask(Struct, frozen=True, omit_defaults=True):
    """One thing to do."""

    id: str
    title: str
    notes: str = ""
    due: str = ""
    """A date (`2026-03-01`) or a date and time; empty for none."""
    done: bool = False


class Plan(Struct, frozen=True):
    """A goal and its tasks. `version` grows by one with every change."""

    id: str
    title: str
    goal: str
    status: PlanStatus
    tasks: tuple[PlanTask, ...]
    created: datetime
    updated: datetime
    version: int = 1
    tasks_numbered: int = 0

    @property
    def tasks_done(self) -> int:
        return sum(task.done for task in self.tasks)


class TaskDraft(Struct, frozen=True, forbid_unknown_fields=True):
    """A task as a model writes it down."""

    title: Annotated[str, Meta(description="What to do, in one line")]
    notes: Annotated[str | None, Meta(description="Details, if any")] = None
    due: Annotated[str | None, Meta(description="When it is due, like 2026-03-01")] = None
    done: Annotated[bool | None, Meta(description="Whether it is done already")] = None
    id: Annotated[str | None, Meta(description="Only for a task that is already in the plan: its id, like t1")] = None


class TaskUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """What changes about one task; what is left out stays."""

    id: Annotated[str, Meta(description="The task's id, like t1")]
    done: Annotated[bool | None, Meta(description="true to tick it off, false to open it again")] = None
    title: Annotated[str | None, Meta(description="A new title")] = None
    notes: Annotated[str | None, Meta(description="New notes; empty to remove them")] = None
    due: Annotated[str | None, Meta(description="A new date, like 2026-03-01; empty to remove it")] = None


class PlanChange(Struct, frozen=True):
    """What changes about a plan; `None` stays. Applied from top to bottom."""

    title: str | None = None
    goal: str | None = None
    status: PlanStatus | None = None
    tasks: Sequence[str | TaskDraft] | None = None
    remove_tasks: Sequence[str] = ()
    task_updates: Sequence[TaskUpdate] = ()
    add_tasks: Sequence[str | TaskDraft] = ()


def new_plan(plan_id: str, title: str, goal: str, tasks: Iterable[str | TaskDraft], now: datetime) -> Plan:
    """A plan that was just made. Raises `PlanError`."""
    editor = _PlanEditor(now)
    editor.add(tasks, "tasks")
    plan = Plan(
        id=plan_id,
        title=editor.line(title, "title", TITLE_LENGTH),
        goal=editor.text(goal, "goal", GOAL_LENGTH),
        status="active",
        tasks=tuple(editor.tasks.values()),
        created=now,
        updated=now,
        tasks_numbered=editor.numbered,
    )
    editor.close(plan)
    return plan


def apply_change(plan: Plan, change: PlanChange, now: datetime) -> Plan:
    """The plan after the change; the same plan if nothing is different. Raises `PlanError`."""
    if change == PlanChange():
        raise PlanError(
            f"nothing to change in {plan.id}; give at least one of "
            f"{', '.join(structs.asdict(change))}, with what it shall be"
        )
    editor = _PlanEditor(now, plan)
    if change.tasks is not None:
        editor.replace(change.tasks)
    editor.remove(change.remove_tasks)
    for position, update in enumerate(change.task_updates):
        editor.update(update, f"task_updates[{position}]")
    editor.add(change.add_tasks, "add_tasks")
    after = structs.replace(
        plan,
        title=plan.title if change.title is None else editor.line(change.title, "title", TITLE_LENGTH),
        goal=plan.goal if change.goal is None else editor.text(change.goal, "goal", GOAL_LENGTH),
        status=change.status or plan.status,
        tasks=tuple(editor.tasks.values()),
        tasks_numbered=editor.numbered,
    )
    editor.close(after)
    return plan if after == plan else structs.replace(after, version=plan.version + 1, updated=now)


class _PlanEditor:
    """Changes the tasks of a plan and collects the problems."""

    def __init__(self, now: datetime, plan: Plan | None = None) -> None:
        self.tasks = {task.id: task for task in plan.tasks} if plan else {}
        self.numbered = plan.tasks_numbered if plan else 0
        self._now = now
        self._problems: list[str] = []

    def close(self, plan: Plan) -> None:
        """Refuse the plan if anything was wrong."""
        if len(plan.tasks) > TASKS:
            self._problems.append(
                f"that would be {len(plan.tasks)} tasks, and a plan has at most {TASKS}: join some, or make two plans"
            )
        size = len(plan.goal) + sum(len(task.title) + len(task.notes) for task in plan.tasks)
        if size > SIZE:
            self._problems.append(
                f"the texts of the plan have {size} characters together, and at most {SIZE} are kept: shorten the notes"
            )
        if self._problems:
            raise PlanError("nothing was changed: " + "; ".join(self._problems))

    def add(self, drafts: Iterable[str | TaskDraft], where: str) -> None:
        """Append tasks. Ids in the drafts are ignored: the plan assigns them."""
        for position, draft in enumerate(drafts):
            self._write(self._numbered_task(), _as_draft(draft), f"{where}[{position}]")

    def replace(self, drafts: Iterable[str | TaskDraft]) -> None:
        """Let these be the tasks. Those that were there before keep their ids."""
        before, self.tasks = self.tasks, {}
        given = [_as_draft(draft) for draft in drafts]
        if before and not given:  # models that fill in every argument fill in an empty list
            self._problems.append(
                f"tasks is an empty list, and there are {len(before)} tasks: leave it out to keep them, "
                "or name those that shall go in remove_tasks"
            )
        named = {_task_id(draft.id) for draft in given if draft.id}
        by_title = {task.title: task for task in reversed(before.values()) if task.id not in named}
        for position, draft in enumerate(given):
            where = f"tasks[{position}]"
            if not draft.id:
                kept = by_title.pop(one_line(draft.title), None) or self._numbered_task()
            else:
                known = before.get(_task_id(draft.id))
                if known is None:
                    self._problems.append(f"{where}: {_unknown_task(draft.id, before)}, or leave out id for a new task")
                    continue
                if known.id in self.tasks:
                    self._problems.append(f"{where}: {known.id} is in the list twice")
                    continue
                kept = known
            self._write(kept, draft, where)

    def remove(self, ids: Iterable[str]) -> None:
        for position, given in enumerate(ids):
            if self.tasks.pop(_task_id(given), None) is None:
                self._problems.append(f"remove_tasks[{position}]: {_unknown_task(given, self.tasks)}")

    def update(self, update: TaskUpdate, where: str) -> None:
        task = self.tasks.get(_task_id(update.id))
        if task is None:
            self._problems.append(f"{where}: {_unknown_task(update.id, self.tasks)}")
        elif (update.title, update.notes, update.due, update.done) == (None, None, None, None):
            self._problems.append(f"{where}: changes nothing of {task.id}; give done, title, notes or due")
        else:
            self._write(task, update, where)

    def _numbered_task(self) -> PlanTask:
        self.numbered += 1
        return PlanTask(f"t{self.numbered}", "")

    def _write(self, task: PlanTask, change: TaskDraft | TaskUpdate, where: str) -> None:
        """Apply a draft or an update to a task, which keeps its place."""
        self.tasks[task.id] = structs.replace(
            task,
            title=task.title if change.title is None else self.line(change.title, f"{where}.title", TITLE_LENGTH),
            notes=task.notes if change.notes is None else self.text(change.notes, f"{where}.notes", NOTES_LENGTH),
            due=task.due if change.due is None else self.day(change.due, f"{where}.due"),
            done=task.done if change.done is None else change.done,
        )

    def line(self, given: str, where: str, limit: int) -> str:
        line = self.text(one_line(given), where, limit)
        if not line:
            self._problems.append(f"{where} is empty; say in a few words what it is about")
        return line

    def text(self, given: str, where: str, limit: int) -> str:
        text = given.strip()
        if len(text) > limit:
            self._problems.append(f"{where} has {len(text)} characters, and at most {limit} are kept: shorten it")
        return text

    def day(self, given: str, where: str) -> str:
        text = normalize(given).strip()
        try:
            if not text:
                return ""
            if found := _DATE.fullmatch(text):
                year, month, day = map(int, found.groups())
                return date(year, month, day).isoformat()
            return datetime.fromisoformat(text).isoformat(timespec="minutes")
        except ValueError:
            self._problems.append(
                f"{where}: {given[:40]!r} is not a date; write it like 2026-03-01 (today is {self._now.date().isoformat()})"
            )
            return ""


def _as_draft(given: str | TaskDraft) -> TaskDraft:
    return TaskDraft(given) if isinstance(given, str) else given


def _task_id(given: str) -> str:
    number = _TASK_NUMBER.fullmatch(given.strip())
    return f"t{int(number[1])}" if number else given


def _unknown_task(given: str, tasks: Iterable[str]) -> str:
    known = ", ".join(tasks)
    return f"there is no task {given[:40]!r}; " + (f"the tasks are {known}" if known else "the plan has no tasks")


def now_in_seconds() -> datetime:
    """The time, as plans keep it."""
    return datetime.now(UTC).replace(microsecond=0)


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
