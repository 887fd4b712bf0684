"""API handlers for the plans of the plan tools: list, show, change, delete."""

from __future__ import annotations

from msgspec import Struct

from antiphon.http.messages import Response
from antiphon.tools.builtin import PlanChange, PlanStore, TaskDraft, TaskUpdate
from antiphon.tools.builtin.plans import PlanStatus
from antiphon_chat.page.request import ChatRequest
from antiphon_chat.shared.toolbox import Toolboxes


class PlanChangeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a plan; with `version`, only if the plan is still at that version."""

    title: str | None = None
    goal: str | None = None
    status: PlanStatus | None = None
    task_updates: list[TaskUpdate] = []
    add_tasks: list[str | TaskDraft] = []
    remove_tasks: list[str] = []
    version: int | None = None


class PlanApi:
    """Handles requests about plans."""

    def __init__(self, toolboxes: Toolboxes) -> None:
        self._toolboxes = toolboxes

    async def list(self, request: ChatRequest) -> Response:
        """All plans, the oldest first."""
        return Response.json({"plans": self._plans(request).list()})

    async def show(self, request: ChatRequest) -> Response:
        """One plan."""
        return Response.json({"plan": self._plans(request).get(request.id)})

    async def change(self, request: ChatRequest) -> Response:
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
        return Response.json({"plan": self._plans(request).update(request.id, change, expected_version=wanted.version)})

    async def delete(self, request: ChatRequest) -> Response:
        """Delete a plan."""
        self._plans(request).delete(request.id)
        return Response.json({"deleted": True})

    def _plans(self, request: ChatRequest) -> PlanStore:
        return self._toolboxes.of(request.owner).plans
