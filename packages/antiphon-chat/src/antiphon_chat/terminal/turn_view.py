"""`TurnView`: a turn on a terminal that can move its cursor.

Finished blocks of the answer are committed to the surface, in order with the calls; what still changes (the open block, a
thought, running calls with their spinner and time) is `live`. Thoughts and results are committed collapsed, one line each, and
kept in `collapsed`, to be expanded later.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, Protocol, TextIO

from msgspec import Struct

from antiphon.cli.terminal import ellipsize, escape_control_chars, width_of, write_error, write_json_lines
from antiphon.conversation import (
    AgentSwitched,
    ApprovalNeeded,
    EntryAppended,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    RetryScheduled,
    RoundStarted,
    RunResult,
    TextDelta,
    ThinkingDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from antiphon.history import CompactionEntry, HistoryEntry, ShortenedResultsEntry
from antiphon.parts import InputPart, ToolCallRequest, ToolCallResult
from antiphon.tools.builtin import plan_of, plans_of
from antiphon.tools.builtin.plan_tools import text_without_data
from antiphon_chat.language import translate
from antiphon_chat.shared.in_a_line import call_words, compaction_line, format_error, format_retry
from antiphon_chat.shared.markdown import MarkdownBlocks
from antiphon_chat.shared.models import model_title
from antiphon_chat.shared.session import ChatSession
from antiphon_chat.shared.spending import Spending
from antiphon_chat.terminal.greeting import mark
from antiphon_chat.terminal.render import Renderer, spending_note, tail

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
END_MESSAGES = {
    "interrupted": "stopped; the partial answer is saved",
    "max_rounds": "stopped: round limit reached; the model answered with what it had",
    "failed_rounds": "stopped: tool calls kept failing; the model answered with what it had",
    "repeated_calls": "stopped: the model repeated the same calls and was asked to answer",
    "token_budget": "stopped: token budget used up",
    "time_budget": "stopped: time budget used up",
    "call_budget": "stopped: call budget used up",
    "max_hand_offs": "stopped: too many hand-offs between agents",
    "refused": "stopped: a hook refused to call the model",
    "context_limit": "stopped: the conversation is too large for the model, and nothing more can be left out",
}
_SHOWN_SECONDS = 0.1
_INPUT_ROWS = 6
"""Rows that are left to the input and what is below it."""


class CollapsedBlock(Struct, frozen=True):
    """A block that is shown as one line and can be expanded."""

    title: str
    body: str


class _Running(Struct):
    call: ToolCallRequest
    since: float
    message: str = ""


class TurnView:
    """Draws the events of turns on `screen`."""

    def __init__(self, renderer: Renderer, screen: Screen, collapsed: list[CollapsedBlock] | None = None) -> None:
        self.collapsed: list[CollapsedBlock] = [] if collapsed is None else collapsed
        self.queued: Sequence[str] = ()
        """The queued messages, shown below."""
        self.turn_spending: Callable[[], Spending | None] = lambda: None
        """What the turn that has just ended cost."""
        self.effective: Callable[[], Iterable[HistoryEntry]] = lambda: ()
        """The entries of the conversation that count."""
        self._renderer = renderer
        self._screen = screen
        self._blocks: MarkdownBlocks | None = None
        self._thoughts: list[str] = []
        self._thinking_since = self._waiting_since = self._turn_since = 0.0
        self._running: dict[str, _Running] = {}
        self._model = ""
        self._agent = ""
        self._speaker = ""
        self._retry = ""
        self._last_kind = ""
        self._drawn: tuple[Any, str] = ((), "")

    def handle(self, event: LoopEvent) -> None:
        match event:
            case TextDelta():
                self._end_thinking()
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
                self._show_agent(event.agent)
                self._model = event.model
                self._retry = ""
                self._waiting_since = monotonic()
                self._turn_since = self._turn_since or self._waiting_since
            case RetryScheduled():
                self._retry = format_retry(event)
            case ToolCallStarted():
                self._end_output()
                self._running[event.call.tool_call_id] = _Running(event.call, monotonic())
            case ToolCallProgress():
                if running := self._running.get(event.call.tool_call_id):
                    percent = "" if event.fraction is None else f"{event.fraction:.0%} "
                    running.message = percent + event.message
            case ToolCallFinished():
                self._end_call(
                    event.call,
                    event.result,
                    event.seconds,
                    "✓",
                    "green",
                    translate(" (cached)") if event.is_cached else "",
                )
            case ToolCallFailed():
                self._end_call(event.call, event.result, event.seconds, "✗", "red", "")
            case ModelSwitched():
                self._note(f"{event.before} → {event.after}")
            case AgentSwitched():
                self._note(f"{event.before or translate('the first agent')} → {event.after}")
            case EntryAppended(entry=CompactionEntry() | ShortenedResultsEntry() as entry):
                if line := compaction_line(self.effective(), entry):
                    self._note(line)
            case ApprovalNeeded():
                self._end_output()
            case LoopFinished():
                self._finished(event)
                self._agent = ""

    async def flush(self) -> None:
        """Commit what is finished and draw."""
        if self._blocks is not None:
            for block in self._blocks.finished():
                self._commit_text(block)
        await self._screen.flush()

    def live(self) -> str:
        """The lines that still change."""
        lines: list[str] = []
        if self._blocks is not None and (text := self._blocks.open).strip():
            lines += self._open_lines(text)
        lines += self._spinner_lines()
        lines += (self._renderer.one_line(translate("queued: {text}", text=text), "dim") for text in self.queued)
        return "\n".join(lines)

    def commit(self, text: str, kind: str = "") -> None:
        """Commit text, with an empty line between different kinds of output and between blocks of an answer."""
        if self._last_kind not in ("", "speaker") and (kind != self._last_kind or kind == "text"):
            self._screen.commit("")
        self._screen.commit(text)
        self._last_kind = kind

    def _show_agent(self, agent: str) -> None:
        """Say who speaks, where that changes."""
        if agent and agent != self._agent:
            self._end_output()
            self.commit(self._speaker_line(agent), "speaker")
            self._speaker = agent
        self._agent = agent

    def _speaker_line(self, name: str) -> str:
        return self._renderer.one_line(f"{mark('answered')} {name}", "bold")

    def _name_speaker(self) -> None:
        """Say once a turn which model answers."""
        if not self._speaker and self._model:
            self._speaker = model_title(self._model)
            self.commit(self._speaker_line(self._speaker), "speaker")

    def _open_lines(self, text: str) -> list[str]:
        room = max(3, self._renderer.rows - _INPUT_ROWS)
        state = (len(text), text[-40:], self._renderer.columns, room)
        if self._drawn[0] != state:
            self._drawn = (state, self._renderer.markdown(tail(text, room)))
        lines = self._drawn[1].split("\n")[-room:]
        if not self._speaker and self._model:
            lines = [self._speaker_line(model_title(self._model)), *lines]
        return ["", *lines] if self._last_kind not in ("", "speaker") else lines

    def _spinner_lines(self) -> Iterator[str]:
        now = monotonic()
        frame = FRAMES[int(now / FRAME_SECONDS) % len(FRAMES)]
        line = self._renderer.one_line
        if self._thinking_since:
            thinking = translate(
                "{frame} thinking {seconds:.0f} s  {text}",
                frame=frame,
                seconds=now - self._thinking_since,
                text="".join(self._thoughts)[-200:],
            )
            yield line(thinking, "dim")
        for running in self._running.values():
            words = f"{running.call.tool_name} {running.message}" if running.message else call_words(running.call)
            yield line(f"{frame} {words} · {now - running.since:.1f} s", "green")
        if self._waiting_since and self._retry:
            yield line(translate("{frame} {retry}  (Ctrl-C: stop)", frame=frame, retry=self._retry), "yellow")
        elif self._waiting_since:
            waiting = translate(
                "{frame} {model} {seconds:.0f} s  (Ctrl-C: stop)",
                frame=frame,
                model=model_title(self._model),
                seconds=now - self._waiting_since,
            )
            yield line(waiting, "dim")

    def _commit_text(self, text: str) -> None:
        if drawn := self._renderer.markdown(text):
            self._name_speaker()
            self.commit(drawn, "text")

    def _end_text(self) -> None:
        if self._blocks is not None:
            for block in (*self._blocks.finished(), self._blocks.rest()):
                self._commit_text(block)
            self._blocks = None

    def _end_thinking(self) -> None:
        if self._thoughts:
            text = "".join(self._thoughts)
            title = translate("thought for {seconds:.0f} s", seconds=monotonic() - self._thinking_since)
            self._fold(CollapsedBlock(title, text), f"∴ {title}", "dim")
            self._thoughts = []
        self._thinking_since = 0.0

    def _end_output(self) -> None:
        self._end_text()
        self._end_thinking()
        self._waiting_since = 0.0

    def _end_call(
        self, call: ToolCallRequest, result: ToolCallResult, seconds: float, sign: str, style: str, note: str
    ) -> None:
        self._end_output()
        self._running.pop(call.tool_call_id, None)
        text = text_without_data(result) if plans_of(result) else result.result_markdown
        words = call_words(call, result)
        plan = plan_of(result)
        is_told = sign != "✗" and not words.startswith(call.tool_name)  # what it did, not what it is called
        more = translate(" (Ctrl-O)") if is_told and not plan else ""
        took = f" · {seconds:.1f} s" if seconds >= _SHOWN_SECONDS else ""
        self._fold(
            CollapsedBlock(f"{call.tool_name} {call.arguments}", text), f"{sign} {words}{took}{note}{more}", style
        )
        if plan:
            self.commit(self._renderer.plan(plan), "call")
        elif text.strip() and not is_told:
            lines = text.strip().splitlines()
            more = translate(" [{count} lines, Ctrl-O]", count=len(lines)) if len(lines) > 1 else ""
            first = ellipsize(escape_control_chars(lines[0]), self._renderer.columns - width_of(more) - 4)
            self.commit(self._renderer.styled(f"→ {first}{more}", "dim"), "call")

    def _fold(self, collapsed: CollapsedBlock, line: str, style: str) -> None:
        self.collapsed.append(collapsed)
        del self.collapsed[:-200]
        self.commit(self._renderer.one_line(line, style), "call")

    def _note(self, text: str) -> None:
        self._end_output()
        self.commit(self._renderer.one_line(text, "dim"), "note")

    def _finished(self, event: LoopFinished) -> None:
        self._end_output()
        self._running.clear()
        seconds = monotonic() - self._turn_since if self._turn_since else 0.0
        self._turn_since = 0.0
        has_answered, self._speaker = bool(self._speaker), ""
        if event.reason == "failed" and event.error is not None:
            self.commit(self._renderer.line(format_error(event.error, self._model), "red"), "note")
        elif event.reason in END_MESSAGES:
            is_early = event.reason == "interrupted" and not has_answered
            words = translate("stopped") if is_early else translate(END_MESSAGES[event.reason])
            self.commit(self._renderer.line(f"({words})", "yellow"), "note")
        if event.reason != "approval" and event.usage.total:
            total = event.usage.total
            counted = (
                translate("1 round · {tokens:,} tokens · {seconds:.1f} s", tokens=total, seconds=seconds)
                if event.rounds == 1
                else translate(
                    "{rounds} rounds · {tokens:,} tokens · {seconds:.1f} s",
                    rounds=event.rounds,
                    tokens=total,
                    seconds=seconds,
                )
            )
            self._note(counted + spending_note(self.turn_spending()))


class View(Protocol):
    """Receives the events of a turn."""

    def handle(self, event: LoopEvent) -> None:
        """Receive an event."""

    async def flush(self) -> None:
        """Show what was received. Called at intervals, and at the end."""


class PlainView:
    """Writes only the text of the answer to standard output, and errors to standard error.

    With `shows_calls`, tool calls are printed too, one line each, for a terminal that can only print.
    """

    def __init__(self, *, shows_calls: bool = False) -> None:
        self._shows_calls = shows_calls
        self._has_written = False
        self._is_in_line = False
        self._model = ""
        self._agent = ""

    def handle(self, event: LoopEvent) -> None:
        match event:
            case TextDelta():
                # A pipe gets the text unchanged; for a terminal, control characters are escaped.
                self._write(escape_control_chars(event.text) if sys.stdout.isatty() else event.text)
            case RoundStarted():
                self._model = event.model
                self._end_line()
                if self._has_written and not self._shows_calls:
                    self._write("\n")
                if event.agent and event.agent != self._agent:
                    self._line(f"{event.agent}:")
                self._agent = event.agent
            case RetryScheduled() if retry := format_retry(event):
                sys.stdout.flush()
                write_error(f"antiphon: {retry}")
            case ToolCallStarted() if self._shows_calls:
                self._line(f"* {event.call.tool_name} {event.call.arguments}")
            case ToolCallFinished() if self._shows_calls:
                result = event.result.result_markdown
                self._line(translate("  done in {seconds:.1f} s: {result}", seconds=event.seconds, result=result))
            case ToolCallFailed() if self._shows_calls:
                self._line(translate("  failed: {result}", result=event.result.result_markdown))
            case LoopFinished():
                self._end_line()
                self._finished(event)

    async def flush(self) -> None:
        sys.stdout.flush()

    def _finished(self, event: LoopFinished) -> None:
        if event.reason == "failed" and event.error is not None:
            sys.stdout.flush()
            write_error(f"antiphon: {format_error(event.error, self._model, is_interactive=self._shows_calls)}")
        elif self._shows_calls and event.reason not in ("answered", "approval"):
            self._line(f"({translate(END_MESSAGES.get(event.reason, event.reason))})")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        self._has_written = True
        self._is_in_line = not text.endswith("\n") if text else self._is_in_line

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(ellipsize(escape_control_chars(text), 78) + "\n")

    def _end_line(self) -> None:
        if self._is_in_line:
            self._write("\n")


class JsonView:
    """Every event as a line of JSON, its `type` being the name of the event."""

    def handle(self, event: LoopEvent) -> None:
        write_json_lines([event])

    async def flush(self) -> None:
        sys.stdout.flush()


_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronized update: terminals without it ignore the sequence


class Screen(Protocol):
    """A place to draw on."""

    live: Callable[[], str]

    def commit(self, text: str) -> None:
        """Lines that stay, from the next flush on."""

    async def flush(self) -> None:
        """Draw."""


class TerminalScreen:
    """A screen on a plain terminal: live lines are at the bottom, below the committed text."""

    def __init__(self, output: TextIO | None = None) -> None:
        self.live: Callable[[], str] = str
        self._output = sys.stdout if output is None else output
        self._committed: list[str] = []
        self._drawn: list[str] = []

    def commit(self, text: str) -> None:
        self._committed.append(text)

    async def flush(self) -> None:
        columns, rows = shutil.get_terminal_size((80, 24))
        lines = self.live().split("\n")[-(rows - 1) :]
        if lines == [""]:
            lines = []
        if not self._committed and lines == self._drawn:
            return
        committed = "".join(f"{text}\n" for text in self._committed)
        self._output.write(f"{_BEGIN}{self._erase_live(columns)}{committed}{chr(10).join(lines)}{_END}")
        self._output.flush()
        self._committed.clear()
        self._drawn = lines

    def _erase_live(self, columns: int) -> str:
        """The escape sequences that erase the live lines."""
        rows = sum(_rows_of(_ESCAPE.sub("", line), columns) for line in self._drawn)
        if not rows:
            return ""
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J"


def _rows_of(line: str, columns: int) -> int:
    """How many rows a line takes; a wide character that does not fit into one begins the next."""
    rows, used = 1, 0
    for char in line:
        width = width_of(char)
        if used + width > columns:
            rows, used = rows + 1, 0
        used += width
    return rows


async def run_turn(session: ChatSession, view: View, content: Sequence[InputPart]) -> RunResult:
    """Send `content` (or continue the turn without any), show the events, and return how the turn ended."""

    def on_event(event: LoopEvent) -> None:
        session.partial_answer.on_event(event)
        view.handle(event)

    is_over = asyncio.Event()
    drawing = asyncio.create_task(_draw(view, is_over))
    try:
        return await session.loop.run(*content, on_event=on_event, check=False)
    finally:
        # Stopped by an event rather than cancelled: half a frame would stay on the screen.
        is_over.set()
        session.partial_answer.close()
        await drawing
        await view.flush()


async def _draw(view: View, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        await view.flush()
        try:
            await asyncio.wait_for(is_over.wait(), FRAME_SECONDS)
        except TimeoutError:
            continue
