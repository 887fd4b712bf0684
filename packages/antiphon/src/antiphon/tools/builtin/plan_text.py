"""The results of the plan tools: text for a person and a model in the language of the conversation, then data for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec import Struct

from antiphon.parts import ToolCallResult, ToolExecutionStatus
from antiphon.tools.builtin.plan_values import Plan, PlanTask
from antiphon.tools.context import Language

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
    except msgspec.DecodeError:  # a result that was cut or rewritten on its way: there is still its text to show
        return None
