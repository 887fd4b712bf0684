"""`Playing`: a turn that is being played now. It belongs to the conversation, so that whoever speaks next can interrupt it."""

from __future__ import annotations

import asyncio


class Playing:
    """The task that plays a turn, and whether somebody interrupted it on purpose."""

    __slots__ = ("is_interrupted", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.is_interrupted = False
