"""Playing a turn before a view: events are handed to it as they come, and it draws in a steady rhythm beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from antiphon.cli.chat.turn_view import FRAME_SECONDS
from antiphon.cli.chat.views import View
from antiphon.conversation import LoopFinished, ToolLoop
from antiphon.parts import InputPart


async def play(loop: ToolLoop, view: View, content: Sequence[InputPart]) -> LoopFinished:
    """Say `content` (or go on, with nothing to say), show what happens, and return how it ended."""
    is_over = asyncio.Event()
    drawing = asyncio.create_task(_draw(view, is_over))
    try:
        return await loop.run_to_end(*content, on_event=view.handle)
    finally:
        # Told to stop rather than cancelled: half a frame would stay on the screen.
        is_over.set()
        await drawing
        await view.flush()


async def _draw(view: View, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        await view.flush()
        try:
            await asyncio.wait_for(is_over.wait(), FRAME_SECONDS)
        except TimeoutError:
            continue
