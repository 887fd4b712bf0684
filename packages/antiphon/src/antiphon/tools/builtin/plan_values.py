"""`Plan`: a goal and its tasks, as they are kept and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

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
