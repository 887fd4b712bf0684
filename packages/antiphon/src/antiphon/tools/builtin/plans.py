"""Plans: their values and changes, and the tools a model uses on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, structs

from antiphon.errors import PlanError, StoreError, StoreLocked, ToolError
from antiphon.history.search_text import normalize
from antiphon.text import one_line
from antiphon.tools.builtin.plan_text import PLAN_WORDS, one_plan, several_plans
from antiphon.tools.builtin.plan_values import Plan, PlanStatus, PlanTask
from antiphon.tools.context import ToolContext
from antiphon.tools.tool import Tool, tool

if TYPE_CHECKING:
    from antiphon.tools.builtin.plan_store import PlanStore

TITLE_LENGTH = 200
GOAL_LENGTH = 2_000
NOTES_LENGTH = 1_000
TASKS = 100
SIZE = 30_000
"""How many characters a plan may have altogether: a model reads it whole, and more than once."""

_TASK_NUMBER = re.compile(r"(?:t|task)?[\s_#-]*(\d{1,9})", re.IGNORECASE | re.ASCII)
_DATE = re.compile(r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})\s*日?", re.ASCII)


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


_PlanId = Annotated[str, Meta(description="The plan's id, like plan-1; list_plans shows it")]
_Tasks = list[str | TaskDraft]


def plan_tools(store: PlanStore) -> list[Tool]:
    """The tools `create_plan`, `list_plans`, `get_plan`, `update_plan` and `delete_plan` over `store`."""
    here = token_hex(8)

    def key_of(context: ToolContext) -> str:
        if not context.idempotency_key or context.conversation_id:
            return context.idempotency_key
        return f"{here}:{context.idempotency_key}"

    @tool(effect="idempotent", lax=True)
    def create_plan(
        context: ToolContext,
        title: Annotated[str, Meta(description="A short name for the plan")],
        goal: Annotated[str, Meta(description="What shall be reached, and by when")] = "",
        tasks: Annotated[_Tasks | None, Meta(description="The tasks in order: titles, or objects with title")] = None,
    ) -> str:
        """Make a plan with a goal and tasks, and keep it for the user. Returns the plan with the ids of its tasks."""
        with _tool_errors():
            plan = store.create(title, goal, tasks or (), key=key_of(context))
        language = context.language(title, goal)
        return one_plan(PLAN_WORDS[language].created.format(id=plan.id), plan, language)

    @tool(effect="read", lax=True)
    def list_plans(
        context: ToolContext,
        status: Annotated[
            Literal["active", "done", "archived", "all"], Meta(description="Which plans to list")
        ] = "all",
    ) -> str:
        """List the user's plans with all their tasks, the oldest first."""
        with _tool_errors():
            plans = store.list(None if status == "all" else status)
        return several_plans(plans, context.language(*(plan.title for plan in plans)))

    @tool(effect="read", lax=True)
    def get_plan(context: ToolContext, plan_id: _PlanId) -> str:
        """Show one plan with all its tasks."""
        with _tool_errors():
            plan = store.get(plan_id)
        language = context.language(plan.title)
        return one_plan(PLAN_WORDS[language].this.format(id=plan.id), plan, language)

    @tool(effect="idempotent", lax=True)
    def update_plan(
        context: ToolContext,
        plan_id: _PlanId,
        title: Annotated[str | None, Meta(description="A new title")] = None,
        goal: Annotated[str | None, Meta(description="A new goal")] = None,
        status: Annotated[PlanStatus | None, Meta(description="A new status")] = None,
        task_updates: Annotated[
            list[TaskUpdate] | None, Meta(description='Changes of single tasks, like [{"id": "t1", "done": true}]')
        ] = None,
        add_tasks: Annotated[_Tasks | None, Meta(description="Tasks to add at the end")] = None,
        remove_tasks: Annotated[list[str] | None, Meta(description="Ids of tasks to remove")] = None,
        tasks: Annotated[
            _Tasks | None, Meta(description="The whole new list of tasks; those left out are removed")
        ] = None,
        version: Annotated[
            int | None, Meta(description="The version you read; if the plan changed since, nothing is done")
        ] = None,
    ) -> str:
        """Change a plan. Give only what changes. Returns the plan as it is then."""
        change = PlanChange(
            title=title,
            goal=goal,
            status=status,
            tasks=tasks,
            remove_tasks=remove_tasks or (),
            task_updates=task_updates or (),
            add_tasks=add_tasks or (),
        )
        with _tool_errors():
            plan = store.update(plan_id, change, expected_version=version, key=key_of(context))
        language = context.language(plan.title)
        return one_plan(PLAN_WORDS[language].updated.format(id=plan.id), plan, language)

    @tool(effect="idempotent", lax=True)
    def delete_plan(context: ToolContext, plan_id: _PlanId) -> str:
        """Delete a plan for good. To keep it out of sight instead, give it the status archived with update_plan."""
        with _tool_errors():
            plan = store.delete(plan_id, key=key_of(context))
        words = PLAN_WORDS[context.language(plan.title)]
        return words.deleted.format(id=plan.id, title=plan.title, count=len(plan.tasks))

    return [create_plan, list_plans, get_plan, update_plan, delete_plan]


@contextmanager
def _tool_errors() -> Iterator[None]:
    """What the store refuses in the block, for the model."""
    try:
        yield
    except StoreError as error:
        raise ToolError(str(error), retry=isinstance(error, StoreLocked)) from error
