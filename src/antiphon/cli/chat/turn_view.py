"""`TurnView`: a turn on a terminal that can move its cursor.

Finished blocks of the answer are committed to the surface, in order with the calls; what is still moving (the open block, a
thought, running calls with their spinner and time) is `live`. Thoughts and results are committed folded, a line each, and kept in
`folded`, from where they can be opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from msgspec import Struct

from antiphon.cli.chat.advice import told
from antiphon.cli.chat.markdown_blocks import MarkdownBlocks, tail
from antiphon.cli.chat.painter import Painter
from antiphon.cli.chat.surface import Surface
from antiphon.cli.terminal import cut, escape_control_chars
from antiphon.conversation import (
    AgentSwitched,
    ApprovalNeeded,
    CompactionNeeded,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    RoundStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.providers.offline.results import without_data
from antiphon.tools.builtin import plan_of, plans_of

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
ENDS = {
    "interrupted": "interrupted; what was said is kept",
    "max_rounds": "the most rounds a turn may have; the model answered with what it had",
    "failed_rounds": "no call succeeded in several rounds; the model answered with what it had",
    "repeated_calls": "the model made the same calls again and again, and was asked to answer",
    "token_budget": "the token budget of the turn is used",
    "time_budget": "the time of the turn is used",
    "call_budget": "the calls of the turn are used",
    "max_hand_overs": "the agents handed over too often",
}
_ROOM_BELOW = 6
"""Rows that are left to the input and what is below it."""


class Folded(Struct, frozen=True):
    """Something that is shown in a line and can be opened."""

    title: str
    body: str
    is_markdown: bool = True


class _Running(Struct):
    call: ToolCallRequest
    since: float
    message: str = ""


class TurnView:
    """Draws the events of turns on `surface`."""

    def __init__(self, painter: Painter, surface: Surface, folded: list[Folded] | None = None) -> None:
        self.folded: list[Folded] = [] if folded is None else folded
        self.queued: Sequence[str] = ()
        """What is to be said next, shown below."""
        self._painter = painter
        self._surface = surface
        self._blocks: MarkdownBlocks | None = None
        self._thoughts: list[str] = []
        self._thinking_since = self._waiting_since = self._turn_since = 0.0
        self._running: dict[str, _Running] = {}
        self._model = ""
        self._last_kind = ""
        self._drawn: tuple[Any, str] = ((), "")

    def handle(self, event: LoopEvent) -> None:
        match event:
            case TextDelta():
                self._end_thought()
                self._waiting_since = 0.0
                if self._blocks is None:
                    self._blocks = MarkdownBlocks()
                self._blocks.feed(event.text)
            case ThinkingDelta():
                self._end_text()
                self._waiting_since = 0.0
                self._thinking_since = self._thinking_since or monotonic()
                self._thoughts.append(event.text)
            case RoundStarted():
                self._model = event.model
                self._waiting_since = monotonic()
                self._turn_since = self._turn_since or self._waiting_since
            case ToolCallStarted():
                self._end_words()
                self._running[event.call.tool_call_id] = _Running(event.call, monotonic())
            case ToolCallProgress():
                if running := self._running.get(event.call.tool_call_id):
                    percent = "" if event.fraction is None else f"{event.fraction:.0%} "
                    running.message = percent + event.message
            case ToolCallFinished():
                self._end_call(event.call, event.result, event.seconds, "✓", "green", " (remembered)" * event.is_cached)
            case ToolCallFailed():
                self._end_call(event.call, event.result, event.seconds, "✗", "red", "")
            case ModelSwitched():
                self._note(f"{event.before} → {event.after}")
            case AgentSwitched():
                self._note(f"{event.before or 'the first agent'} → {event.after}")
            case CompactionNeeded():
                self._note(f"{event.tokens:,} tokens, over the limit of {event.limit:,}; /compact makes it shorter")
            case ApprovalNeeded():
                self._end_words()
            case LoopFinished():
                self._finished(event)

    async def flush(self) -> None:
        """Commit what is finished and draw."""
        if self._blocks is not None:
            for block in self._blocks.finished():
                self._commit_text(block)
        await self._surface.flush()

    def live(self) -> str:
        """What is still moving."""
        lines: list[str] = []
        if self._blocks is not None and (text := self._blocks.open).strip():
            lines += self._open_lines(text)
        lines += self._moving()
        lines += (self._painter.one_line(f"queued: {text}", "dim") for text in self.queued)
        return "\n".join(lines)

    def commit(self, text: str, kind: str = "") -> None:
        """Text that stays; an empty line stands between things of different kinds, and between blocks of an answer."""
        if self._last_kind and (kind != self._last_kind or kind == "text"):
            self._surface.commit("")
        self._surface.commit(text)
        self._last_kind = kind

    def _open_lines(self, text: str) -> list[str]:
        room = max(3, self._painter.rows - _ROOM_BELOW)
        state = (len(text), text[-40:], self._painter.columns, room)
        if self._drawn[0] != state:
            self._drawn = (state, self._painter.markdown(tail(text, room)))
        lines = self._drawn[1].split("\n")[-room:]
        return ["", *lines] if self._last_kind else lines

    def _moving(self) -> Iterator[str]:
        now = monotonic()
        frame = FRAMES[int(now / FRAME_SECONDS) % len(FRAMES)]
        line = self._painter.one_line
        if self._thinking_since:
            yield line(f"{frame} thinking {now - self._thinking_since:.0f} s  {''.join(self._thoughts)[-200:]}", "dim")
        for running in self._running.values():
            told = running.message or running.call.arguments
            yield line(f"{frame} {running.call.tool_name} {now - running.since:.1f} s  {told}", "yellow")
        if self._waiting_since:
            yield line(f"{frame} {self._model} {now - self._waiting_since:.0f} s  (Ctrl-C interrupts)", "dim")

    def _commit_text(self, text: str) -> None:
        if drawn := self._painter.markdown(text):
            self.commit(drawn, "text")

    def _end_text(self) -> None:
        if self._blocks is not None:
            for block in (*self._blocks.finished(), self._blocks.rest()):
                self._commit_text(block)
            self._blocks = None

    def _end_thought(self) -> None:
        if self._thoughts:
            text = "".join(self._thoughts)
            title = f"thought for {monotonic() - self._thinking_since:.0f} s"
            self._fold(Folded(title, text), f"∴ {title}", "dim")
            self._thoughts = []
        self._thinking_since = 0.0

    def _end_words(self) -> None:
        self._end_text()
        self._end_thought()
        self._waiting_since = 0.0

    def _end_call(
        self, call: ToolCallRequest, result: ToolCallResult, seconds: float, mark: str, style: str, note: str
    ) -> None:
        self._end_words()
        self._running.pop(call.tool_call_id, None)
        said = without_data(result.result_markdown) if plans_of(result) else result.result_markdown
        title = f"{call.tool_name} {call.arguments}"
        self._fold(Folded(title, said), f"{mark} {call.tool_name} {seconds:.1f} s{note} {call.arguments}", style)
        if plan := plan_of(result):
            self.commit(self._painter.plan(plan), "call")
        elif said.strip():
            lines = said.strip().splitlines()
            more = f" [{len(lines)} lines, Ctrl-O]" if len(lines) > 1 else ""
            first = cut(escape_control_chars(lines[0]), self._painter.columns - len(more) - 4)
            self.commit(self._painter.styled(f"→ {first}{more}", "dim"), "call")

    def _fold(self, folded: Folded, line: str, style: str) -> None:
        self.folded.append(folded)
        del self.folded[:-200]
        self.commit(self._painter.one_line(line, style), "call")

    def _note(self, text: str) -> None:
        self._end_words()
        self.commit(self._painter.one_line(text, "dim"), "note")

    def _finished(self, event: LoopFinished) -> None:
        self._end_words()
        self._running.clear()
        seconds = monotonic() - self._turn_since if self._turn_since else 0.0
        self._turn_since = 0.0
        if event.reason == "failed" and event.error is not None:
            self.commit(self._painter.line(told(event.error, self._model), "red"), "note")
        elif event.reason in ENDS:
            self.commit(self._painter.line(f"({ENDS[event.reason]})", "yellow"), "note")
        if event.reason != "approval" and event.usage.total:
            rounds = f"{event.rounds} round{'s' * (event.rounds != 1)}"
            self._note(f"{rounds} · {event.usage.total:,} tokens · {seconds:.1f} s")
