"""Plans as a model reads them, and as a front end finds them again.

The result of a plan tool is Markdown for the model, and behind it, as its last lines, the same plans as one line of JSON in a
fence: `{"plan": {…}}` for one, `{"plans": […]}` for several. The structure is in the text because the text is what every
store, export and wire format carries unharmed; a side channel would be lost at the first of them. A line of JSON cannot hold a
fence of its own, so whatever a title says, what is read back is what was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from antiphon.parts import ToolCallResult, ToolExecutionStatus
from antiphon.tools.builtin.plan import Plan, PlanTask

PLAN_TOOLS = frozenset({"create_plan", "list_plans", "get_plan", "update_plan", "delete_plan"})

_DATA = re.compile(r"(?:\A|\n)```json\n(\{[^\n]*\})\n```\s*\Z")
_LISTED_SIZE = 30_000


class _Data(Struct, omit_defaults=True):
    plan: Plan | None = None
    plans: tuple[Plan, ...] | None = None


def one_plan(words: str, plan: Plan) -> str:
    """The result that tells of one plan."""
    return f"{words}\n\n{markdown(plan)}\n\n{_fenced(_Data(plan=plan))}"


def several_plans(plans: Sequence[Plan]) -> str:
    """The result that lists plans, with all their tasks as long as that can be read; the others by name."""
    if not plans:
        return f"There are no such plans. create_plan makes one.\n\n{_fenced(_Data(plans=()))}"
    shown: list[str] = []
    size = 0
    for plan in plans:
        text = markdown(plan)
        size += len(text)
        if shown and size > _LISTED_SIZE:
            break
        shown.append(f"{len(shown) + 1}. {text}")
    told = f"{len(plans)} plans:" if len(plans) > 1 else "1 plan:"
    rest = plans[len(shown) :]
    if rest:
        shown.append(
            "Too long to show here (get_plan shows one): " + "; ".join(f"{p.id} {p.title}" for p in rest[:200])
        )
    return "\n\n".join([told, *shown, _fenced(_Data(plans=tuple(plans[: len(plans) - len(rest)])))])


def markdown(plan: Plan) -> str:
    """A plan as a heading line, its goal and a list of tasks to tick."""
    progress = f"{plan.tasks_done} of {len(plan.tasks)} tasks done" if plan.tasks else "no tasks yet"
    lines = [f"**{plan.title}** ({plan.id}, {plan.status}, {progress}, version {plan.version})"]
    if plan.goal:
        lines.append(f"Goal: {plan.goal}")
    return "\n".join([*lines, *map(_task_lines, plan.tasks)])


def _task_lines(task: PlanTask) -> str:
    due = f" (due {task.due})" if task.due else ""
    notes = "".join(f"\n  {line}" for line in task.notes.splitlines())
    return f"- [{'x' if task.done else ' '}] {task.id}: {task.title}{due}{notes}"


def _fenced(data: _Data) -> str:
    return f"```json\n{msgspec.json.encode(data).decode()}\n```"


def plan_of(result: ToolCallResult) -> Plan | None:
    """The plan a plan tool's result tells of; `None` if it tells of none, or of a list."""
    data = _data_of(result)
    return data.plan if data else None


def plans_of(result: ToolCallResult) -> tuple[Plan, ...]:
    """The plans a plan tool's result shows, be it one or a list."""
    data = _data_of(result)
    if data is None:
        return ()
    return data.plans if data.plans is not None else (data.plan,) if data.plan else ()


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
