"""API handlers for the plans of the plan tools: list, show, change, delete."""

from __future__ import annotations

from msgspec import Struct

from antiphon.http.messages import Response
from antiphon.tools.builtin import PlanChange, PlanStore, TaskDraft, TaskUpdate
from antiphon.tools.builtin.plans import PlanStatus
from antiphon_chat.page.request import ChatRequest


class PlanChangeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a plan; with `version`, only if the plan is still at that version."""

    title: str | None = None
    goal: str | None = None
    status: PlanStatus | None = None
    task_updates: list[TaskUpdate] = []
    add_tasks: list[str | TaskDraft] = []
    remove_tasks: list[str] = []
    version: int | None = None


async def list_plans(request: ChatRequest) -> Response:
    """All plans, the oldest first."""
    return Response.json({"plans": _plans(request).list()})


async def show_plan(request: ChatRequest) -> Response:
    """One plan."""
    return Response.json({"plan": _plans(request).get(request.id)})


async def change_plan(request: ChatRequest) -> Response:
    """Change a plan."""
    wanted = request.read(PlanChangeRequest)
    change = PlanChange(
        title=wanted.title,
        goal=wanted.goal,
        status=wanted.status,
        task_updates=tuple(wanted.task_updates),
        add_tasks=tuple(wanted.add_tasks),
        remove_tasks=tuple(wanted.remove_tasks),
    )
    return Response.json({"plan": _plans(request).update(request.id, change, expected_version=wanted.version)})


async def delete_plan(request: ChatRequest) -> Response:
    """Delete a plan."""
    _plans(request).delete(request.id)
    return Response.json({"deleted": True})


def _plans(request: ChatRequest) -> PlanStore:
    return request.chat.toolboxes.of(request.owner).plans
