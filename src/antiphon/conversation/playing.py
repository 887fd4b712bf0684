"""`Playing`: a turn that is being played now. It belongs to the conversation, so that whoever speaks next can interrupt it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.conversation.events import LoopFinished

if TYPE_CHECKING:
    from antiphon.conversation.turn_runner import TurnRunner


class Playing:
    """The task that plays a turn, how it ended, and whether somebody interrupted it on purpose."""

    __slots__ = ("finished", "is_interrupted", "runner", "task")

    task: asyncio.Task[None]

    def __init__(self, runner: TurnRunner) -> None:
        self.runner = runner
        self.finished: LoopFinished | None = None
        self.is_interrupted = False

    @property
    def is_cut(self) -> bool:
        """Whether the task was interrupted before it could put anything in order."""
        return self.task.cancelled() and self.is_interrupted

    async def over(self) -> None:
        """Wait for the task, and raise what went wrong in it that is not an event."""
        if not self.is_cut:
            await self.task
