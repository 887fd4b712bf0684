"""The plan tools: a model makes plans, reads, changes and deletes them in a `PlanStore`.

All five may be run again after a crash. Two only read; the other three hand the call's idempotency key to the store, where the
same call happens once. Calls of a conversation that is not stored have no identity beyond this process: their ids
(`call_1`, …) come again in the next one, so their keys are made to count for this set of tools alone.

What the store refuses is told to the model in the store's own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Annotated, Literal

from msgspec import Meta

from antiphon.errors import StoreError, StoreLocked, ToolError
from antiphon.tools.builtin.plan import PlanChange, PlanStatus, TaskDraft, TaskUpdate
from antiphon.tools.builtin.plan_markdown import one_plan, several_plans
from antiphon.tools.builtin.plan_store import PlanStore
from antiphon.tools.context import ToolContext
from antiphon.tools.tool import Tool, tool

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
        with _told():
            plan = store.create(title, goal, tasks or (), key=key_of(context))
        return one_plan(f"Created {plan.id}.", plan)

    @tool(effect="read", lax=True)
    def list_plans(
        status: Annotated[
            Literal["active", "done", "archived", "all"], Meta(description="Which plans to list")
        ] = "all",
    ) -> str:
        """List the user's plans with all their tasks, the oldest first."""
        with _told():
            return several_plans(store.list(None if status == "all" else status))

    @tool(effect="read", lax=True)
    def get_plan(plan_id: _PlanId) -> str:
        """Show one plan with all its tasks."""
        with _told():
            plan = store.get(plan_id)
        return one_plan(f"This is {plan.id}.", plan)

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
        with _told():
            plan = store.update(plan_id, change, expected_version=version, key=key_of(context))
        return one_plan(f"{plan.id} is now:", plan)

    @tool(effect="idempotent", lax=True)
    def delete_plan(context: ToolContext, plan_id: _PlanId) -> str:
        """Delete a plan for good. To keep it out of sight instead, give it the status archived with update_plan."""
        with _told():
            plan = store.delete(plan_id, key=key_of(context))
        return f"Deleted {plan.id} ({plan.title}) with its {len(plan.tasks)} tasks."

    return [create_plan, list_plans, get_plan, update_plan, delete_plan]


@contextmanager
def _told() -> Iterator[None]:
    """What the store refuses in the block, for the model."""
    try:
        yield
    except StoreError as error:
        raise ToolError(str(error), retry=isinstance(error, StoreLocked)) from error
