"""The text of a streaming answer as drawn blocks: the page gets finished blocks once, and the open block as it grows.

Every chunk of text is reported at once; the blocks are drawn at most every `INTERVAL` seconds, and less often while the open
block is long, so that the work for an answer stays proportional to its length. A chunk without blocks is followed by a drawing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from antiphon_chat.shared.markdown import Node, StreamedMarkdown

INTERVAL = 0.04
_CHARS_PER_INTERVAL = 2_000


class RenderedText(Struct, frozen=True, tag="TextDelta", omit_defaults=True):
    """The event `TextDelta` of the page: a chunk of text and, if it was drawn, the finished blocks and the open ones."""

    text: str
    settled: list[Node] | None = None
    open: list[Node] | None = None

    def followed_by(self, later: RenderedText) -> RenderedText:
        """Both as one."""
        if later.open is None:
            return RenderedText(self.text + later.text, self.settled, self.open)
        return RenderedText(self.text + later.text, [*(self.settled or ()), *(later.settled or ())], later.open)


class TextRendering:
    """Draws the text of one round after the other; `on_drawn` gets the events."""

    def __init__(self, on_drawn: Callable[[RenderedText], None]) -> None:
        self._on_drawn = on_drawn
        self._markdown: StreamedMarkdown | None = None
        self._waiting: list[str] = []
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, text: str) -> None:
        """Report a chunk of text, with the blocks if it is time to draw."""
        self._waiting.append(text)
        now = time.monotonic()
        if now >= self._next and self._timer is None:
            self._draw(text)
            return
        self._on_drawn(RenderedText(text))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._next - now, self._draw_later)

    def reset(self) -> None:
        """The text is complete: the entry of the log has it, or the next round begins."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._next = 0.0
        self._waiting = []
        self._markdown = None

    def _draw_later(self) -> None:
        self._timer = None
        self._draw("")

    def _draw(self, text: str) -> None:
        if self._markdown is None:
            self._markdown = StreamedMarkdown()
        self._markdown.feed("".join(self._waiting))
        self._waiting = []
        settled, unfinished = self._markdown.draw()
        self._next = time.monotonic() + INTERVAL * (1 + len(self._markdown.open) / _CHARS_PER_INTERVAL)
        self._on_drawn(RenderedText(text, settled, unfinished))
