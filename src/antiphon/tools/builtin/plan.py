"""`Plan`: a goal and the tasks that lead to it, and the only two ways to come by one: `new_plan` and `changed_plan`.

Both are plain functions from values to values, and everything a model may get wrong is checked here: all problems are found
before anything is refused, and each is said in words a model can correct itself by. Where what was meant is plain, it is
taken: `3`, `T3` and `task 3` are `t3`, `2026/3/1` and `2026年3月1日` are `2026-03-01`.

The number of a task is given once and never again (`tasks_numbered` counts them), so that a call about `t5` cannot hit another
task that came to stand in its place. A list of tasks that replaces the old one keeps the identity of what stayed: a task with
a known id, or without an id and with the title of one that is there, is that task, and what is left out of it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, structs

from antiphon.errors import PlanRefused
from antiphon.history.search_text import normalize

PlanStatus: TypeAlias = Literal["active", "done", "archived"]

TITLE_LENGTH = 200
GOAL_LENGTH = 2_000
NOTES_LENGTH = 1_000
TASKS = 100
SIZE = 30_000
"""How many characters a plan may have altogether: a model reads it whole, and more than once."""

_TASK_NUMBER = re.compile(r"(?:t|task)?[\s_#-]*(\d{1,9})", re.IGNORECASE | re.ASCII)
_DATE = re.compile(r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})\s*日?", re.ASCII)


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

    title: Annotated[str, Meta(description="What is to be done, in one line")]
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
    """A plan that was just made. Raises `PlanRefused`."""
    desk = _Desk(now)
    desk.add(tasks, "tasks")
    plan = Plan(
        id=plan_id,
        title=desk.line(title, "title", TITLE_LENGTH),
        goal=desk.text(goal, "goal", GOAL_LENGTH),
        status="active",
        tasks=tuple(desk.tasks.values()),
        created=now,
        updated=now,
        tasks_numbered=desk.numbered,
    )
    desk.close(plan)
    return plan


def changed_plan(plan: Plan, change: PlanChange, now: datetime) -> Plan:
    """The plan after the change; the same plan if nothing is different. Raises `PlanRefused`."""
    if change == PlanChange():
        raise PlanRefused(
            f"nothing was said to change about {plan.id}; give at least one of "
            f"{', '.join(structs.asdict(change))}, with what it shall be"
        )
    desk = _Desk(now, plan)
    if change.tasks is not None:
        desk.replace(change.tasks)
    desk.remove(change.remove_tasks)
    for position, update in enumerate(change.task_updates):
        desk.update(update, f"task_updates[{position}]")
    desk.add(change.add_tasks, "add_tasks")
    after = structs.replace(
        plan,
        title=plan.title if change.title is None else desk.line(change.title, "title", TITLE_LENGTH),
        goal=plan.goal if change.goal is None else desk.text(change.goal, "goal", GOAL_LENGTH),
        status=change.status or plan.status,
        tasks=tuple(desk.tasks.values()),
        tasks_numbered=desk.numbered,
    )
    desk.close(after)
    return plan if after == plan else structs.replace(after, version=plan.version + 1, updated=now)


class _Desk:
    """Where the tasks of a plan are worked on, and the problems met are noted."""

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
            raise PlanRefused("nothing was changed: " + "; ".join(self._problems))

    def add(self, drafts: Iterable[str | TaskDraft], where: str) -> None:
        """Put tasks behind those that are there. Numbers they bring along are not theirs to give."""
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
                kept = by_title.pop(_one_line(draft.title), None) or self._numbered_task()
            else:
                known = before.get(_task_id(draft.id))
                if known is None:
                    self._problems.append(f"{where}: {_unknown_task(draft.id, before)}, or leave out id for a new task")
                    continue
                if known.id in self.tasks:
                    self._problems.append(f"{where}: {known.id} stands in the list twice")
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
            self._problems.append(f"{where}: says nothing about {task.id}; give done, title, notes or due")
        else:
            self._write(task, update, where)

    def _numbered_task(self) -> PlanTask:
        self.numbered += 1
        return PlanTask(f"t{self.numbered}", "")

    def _write(self, task: PlanTask, said: TaskDraft | TaskUpdate, where: str) -> None:
        """The task with what is said about it, in the place it has."""
        self.tasks[task.id] = structs.replace(
            task,
            title=task.title if said.title is None else self.line(said.title, f"{where}.title", TITLE_LENGTH),
            notes=task.notes if said.notes is None else self.text(said.notes, f"{where}.notes", NOTES_LENGTH),
            due=task.due if said.due is None else self.day(said.due, f"{where}.due"),
            done=task.done if said.done is None else said.done,
        )

    def line(self, given: str, where: str, limit: int) -> str:
        line = self.text(_one_line(given), where, limit)
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
                f"{where}: {given[:40]!r} is no date; write it like 2026-03-01 (today is {self._now.date().isoformat()})"
            )
            return ""


def _as_draft(given: str | TaskDraft) -> TaskDraft:
    return TaskDraft(given) if isinstance(given, str) else given


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _task_id(given: str) -> str:
    number = _TASK_NUMBER.fullmatch(given.strip())
    return f"t{int(number[1])}" if number else given


def _unknown_task(given: str, tasks: Iterable[str]) -> str:
    known = ", ".join(tasks)
    return f"there is no task {given[:40]!r}; " + (f"the tasks are {known}" if known else "the plan has no tasks")


def now_in_seconds() -> datetime:
    """The time, as plans keep it."""
    return datetime.now(UTC).replace(microsecond=0)
