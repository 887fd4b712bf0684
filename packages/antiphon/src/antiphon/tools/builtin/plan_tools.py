"""The plan tools, and their results: text in the language of the conversation for a person and a model, data for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.errors import StoreError, StoreLocked, ToolError
from antiphon.json_text import NOT_JSON
from antiphon.parts import ToolCallResult, ToolExecutionStatus
from antiphon.tools.builtin.plans import Plan, PlanChange, PlanStatus, PlanStore, PlanTask, TaskDraft, TaskUpdate
from antiphon.tools.context import Language, ToolContext
from antiphon.tools.tool import Tool, tool

PLAN_TOOLS = frozenset({"create_plan", "list_plans", "get_plan", "update_plan", "delete_plan"})

_DATA = re.compile(r"(?:\A|\n)```json\n(\{[^\n]*\})\n```\s*\Z")
_LISTED_SIZE = 30_000


class PlanWords(Struct, frozen=True):
    """The words around plans."""

    created: str = "Created {id}."
    this: str = "This is {id}."
    updated: str = "{id} is now:"
    deleted: str = "Deleted {id} ({title}) with its {count} tasks."
    none: str = "There are no such plans. create_plan makes one."
    one: str = "1 plan:"
    several: str = "{count} plans:"
    too_long: str = "Too long to show here (get_plan shows one): "
    heading: str = "**{title}** ({id}, {status}, {progress}, version {version})"
    progress: str = "{done} of {count} tasks done"
    no_tasks: str = "no tasks yet"
    goal: str = "Goal: "
    due: str = " (due {date})"
    statuses: Mapping[str, str] = MappingProxyType({})


PLAN_WORDS: Mapping[Language, PlanWords] = MappingProxyType(
    {
        "en": PlanWords(),
        "zh": PlanWords(
            created="已创建 {id}。",
            this="这是 {id}。",
            updated="{id} 现在是：",
            deleted="已删除 {id}（{title}）及其 {count} 个任务。",
            none="还没有这样的计划，可以用 create_plan 创建。",
            one="1 个计划：",
            several="{count} 个计划：",
            too_long="太长，这里没有显示（用 get_plan 查看）：",
            heading="**{title}**（{id}，{status}，{progress}，版本 {version}）",
            progress="{count} 个任务完成了 {done} 个",
            no_tasks="还没有任务",
            goal="目标：",
            due="（截止 {date}）",
            statuses=MappingProxyType({"active": "进行中", "done": "已完成", "archived": "已归档"}),
        ),
    }
)


class _Data(Struct, omit_defaults=True):
    plan: Plan | None = None
    plans: tuple[Plan, ...] | None = None


def one_plan(words: str, plan: Plan, language: Language = "en") -> str:
    """The result for one plan."""
    return f"{words}\n\n{markdown(plan, language)}\n\n{_fence(_Data(plan=plan))}"


def several_plans(plans: Sequence[Plan], language: Language = "en") -> str:
    """The result that lists plans, with all their tasks as long as that can be read; the others by name."""
    words = PLAN_WORDS[language]
    if not plans:
        return f"{words.none}\n\n{_fence(_Data(plans=()))}"
    shown: list[str] = []
    size = 0
    for plan in plans:
        text = markdown(plan, language)
        size += len(text)
        if shown and size > _LISTED_SIZE:
            break
        shown.append(f"{len(shown) + 1}. {text}")
    heading = words.several.format(count=len(plans)) if len(plans) > 1 else words.one
    rest = plans[len(shown) :]
    if rest:
        shown.append(words.too_long + "; ".join(f"{p.id} {p.title}" for p in rest[:200]))
    return "\n\n".join([heading, *shown, _fence(_Data(plans=tuple(plans[: len(plans) - len(rest)])))])


def markdown(plan: Plan, language: Language = "en") -> str:
    """A plan as a heading line, its goal and a list of tasks to tick."""
    words = PLAN_WORDS[language]
    progress = words.progress.format(done=plan.tasks_done, count=len(plan.tasks)) if plan.tasks else words.no_tasks
    status = words.statuses.get(plan.status, plan.status)
    heading = words.heading.format(title=plan.title, id=plan.id, status=status, progress=progress, version=plan.version)
    goal = [words.goal + plan.goal] if plan.goal else []
    return "\n".join([heading, *goal, *(_task_lines(task, words) for task in plan.tasks)])


def _task_lines(task: PlanTask, words: PlanWords) -> str:
    due = words.due.format(date=task.due) if task.due else ""
    notes = "".join(f"\n  {line}" for line in task.notes.splitlines())
    return f"- [{'x' if task.done else ' '}] {task.id}: {task.title}{due}{notes}"


def _fence(data: _Data) -> str:
    return f"```json\n{msgspec.json.encode(data).decode()}\n```"


def plan_of(result: ToolCallResult) -> Plan | None:
    """The plan in a plan tool's result; `None` if it has none, or a list."""
    data = _data_of(result)
    return data.plan if data else None


def plans_of(result: ToolCallResult) -> tuple[Plan, ...]:
    """The plans a plan tool's result shows, be it one or a list."""
    data = _data_of(result)
    if data is None:
        return ()
    return data.plans if data.plans is not None else (data.plan,) if data.plan else ()


def text_without_data(result: ToolCallResult) -> str:
    """The text of a result, without the data that a plan tool adds for programs."""
    text = result.result_markdown
    return (_DATA.sub("", text) if _data_of(result) else text).strip()


def _data_of(result: ToolCallResult) -> _Data | None:
    if result.tool_name not in PLAN_TOOLS or result.status is not ToolExecutionStatus.SUCCESS:
        return None
    found = _DATA.search(result.result_markdown)
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[1], type=_Data)
    except NOT_JSON:  # a result that was cut or rewritten on its way: there is still its text to show
        return None


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
