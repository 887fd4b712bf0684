"""`TerminalChat`: a chat at a terminal.

Two things run side by side. The composer reads lines, always; a worker takes them one after the other and does what they say, a
command or a turn. So what is typed while a turn runs is queued and said when the turn is over. Ctrl-C interrupts what the worker
does, and gives the queued lines back to be edited; a question of the chat's own (approve this call?) takes the next line that
is sent.

On a terminal that can only print, the lines are read when the worker is free.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from antiphon.cli.chat.attachment import content_of
from antiphon.cli.chat.commands import COMMANDS, Commands
from antiphon.cli.chat.composer import PROMPT, Composer, PlainReader
from antiphon.cli.chat.painter import Painter
from antiphon.cli.chat.player import play
from antiphon.cli.chat.session import ChatSession
from antiphon.cli.chat.turn_view import Folded, TurnView
from antiphon.cli.chat.views import PlainView, View
from antiphon.cli.terminal import escape_control_chars
from antiphon.conversation import LoopFinished
from antiphon.errors import AntiphonError, StoreError, WriterConflict
from antiphon.history import ModelInputEntry, ModelOutputEntry
from antiphon.parts import InputPart, ToolCallRequest, text_of

_APPROVE = "a approve · l approve all · d deny [reason] · e edit › "


class Undecided(Exception):
    """A question of the chat was left without an answer."""


class TerminalChat:
    """The chat of one terminal."""

    def __init__(self, session: ChatSession) -> None:
        self.session = session
        self.painter = Painter()
        self.folded: list[Folded] = []
        self._lines: deque[str] = deque()
        self._has_lines = asyncio.Event()
        self._is_free = asyncio.Event()
        self._is_leaving = False
        self._answer: asyncio.Future[str] | None = None
        self._job: asyncio.Task[None] | None = None
        self._commands = Commands(self)
        self._tasks: set[asyncio.Task[object]] = set()
        is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")
        self.composer: Composer | PlainReader = PlainReader(self._is_free) if is_dumb else self._composer()
        self._turn_view = TurnView(self.painter, self.composer, self.folded)
        if not is_dumb:
            self.composer.live = self._turn_view.live

    async def run(self) -> int:
        """Talk until the user leaves."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.interrupt)
        self._welcome()
        working = asyncio.create_task(self._work())
        try:
            await self.composer.run(self._take)
        finally:
            await self.session.loop.interrupt()
            working.cancel()
            await asyncio.wait([working])
            await self.composer.flush()
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        self._farewell()
        await self.composer.flush()
        return 0

    # What commands use.

    def say(self, text: str, style: str = "") -> None:
        """Show words of the chat's own."""
        self.show(self.painter.line(text, style))

    def show(self, drawn: str) -> None:
        """Show what is drawn already."""
        self._turn_view.commit(drawn, "said")

    def leave(self) -> None:
        """End the chat."""
        self._is_leaving = True
        self.composer.stop()

    async def ask(self, prompt: str, default: str = "") -> str:
        """Have the next line as an answer. Raises `Undecided` if the user interrupts."""
        kept = self.composer.take()
        self.composer.prompt = prompt
        if default:
            self.composer.prefill(default)
        self._answer = asyncio.get_running_loop().create_future()
        await self.composer.flush()
        self._is_free.set()
        try:
            return await self._answer
        finally:
            self._is_free.clear()
            self._answer = None
            self.composer.prompt = PROMPT
            if kept:
                self.composer.prefill(kept)

    async def play(self, content: Sequence[InputPart] = ()) -> None:
        """Play a turn, asking for approval where it is needed."""
        finished = await self._played(content)
        while finished.reason == "approval":
            try:
                await self._decide()
            except Undecided:
                self.say("Left undecided. /retry asks again; or say something else.", "yellow")
                return
            finished = await self._played(())

    def expand(self, back: int = 1) -> None:
        """Open something that was folded, counted from the last."""
        if not 1 <= back <= len(self.folded):
            self.say("Nothing is folded." if not self.folded else f"There are {len(self.folded)} folded things.", "dim")
            return
        folded = self.folded[-back]
        self.show(self.painter.one_line(folded.title, "bold"))
        self.show(self.painter.markdown(folded.body))

    def show_last(self) -> None:
        """The last question and the last answer, so that one knows where one is."""
        effective = list(self.session.history.effective)
        question = next((each for each in reversed(effective) if isinstance(each, ModelInputEntry)), None)
        answer = next((each for each in reversed(effective) if isinstance(each, ModelOutputEntry)), None)
        if question is not None:
            self._echo(text_of(question.content))
        if answer is not None and question is not None and answer.sequence_number > question.sequence_number:
            self._turn_view.commit(self.painter.markdown(answer.response_markdown), "text")
        turn = self.session.chat.turn
        if pending := self.session.loop.pending:
            self._turn_view.commit(
                self.painter.line("These calls wait for your approval; /retry asks you:", "yellow"), "note"
            )
            for call in pending:
                self.show(self.painter.one_line(f"{call.tool_name} {call.arguments}", "yellow", indent="  "))
        elif turn.open_calls or turn.needs_model:
            self.say("The last turn is not finished; /retry goes on with it.", "yellow")

    # Ctrl-C, and the lines.

    def interrupt(self) -> None:
        """Ctrl-C: interrupt what is going on; if nothing is, clear the line."""
        if self._answer is not None:
            if not self._answer.done():  # a second Ctrl-C, or one right after Enter, comes before the answer is read
                self._answer.set_exception(Undecided())
        elif self.session.chat.active_turn is not None:
            self._give_back()
            self._in_background(self.session.loop.interrupt())
        elif self._job is not None:
            self._give_back()
            self._job.cancel()
        elif not self.composer.take():
            self.say("Ctrl-D leaves.", "dim")
            self._in_background(self.composer.flush())

    def _give_back(self) -> None:
        """What was queued goes back into the line: it was meant for another moment."""
        if self._lines:
            self.composer.prefill("\n".join(self._lines))
            self._lines.clear()
            self._show_queue()

    def _take(self, text: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)
        elif text.strip():
            self._lines.append(text)
            self._is_free.clear()
            self._has_lines.set()
            self._show_queue()

    def _show_queue(self) -> None:
        self._turn_view.queued = tuple(self._lines) if self._job is not None else ()

    async def _work(self) -> None:
        await self.composer.flush()
        while not self._is_leaving:
            if not self._lines:
                self._is_free.set()
                self._has_lines.clear()
                await self._has_lines.wait()
            text = self._lines.popleft()
            asked = self.session.chat.turn.input
            self._job = asyncio.create_task(self._do(text))
            self._show_queue()
            try:
                await asyncio.wait([self._job])
                if self._job.cancelled():
                    self.say("(interrupted)", "yellow")
                elif error := self._job.exception():
                    self._failed(error)
                    self._keep(text, asked)
            except asyncio.CancelledError:
                self._job.cancel()
                await asyncio.wait([self._job])
                raise
            finally:
                self._job = None
            await self.composer.flush()
        self._is_free.set()

    async def _do(self, text: str) -> None:
        self._echo(text)
        await self.composer.flush()
        if text.startswith("/") and not text.startswith("//"):
            await self._commands.run(text)
        else:
            await self.play(content_of(text.removeprefix("/") if text.startswith("//") else text))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, WriterConflict):
            count = len(self.session.history.refresh())
            self.say(
                f"Somebody else wrote to this conversation: {count} new entries. Look, and send yours again.", "red"
            )
        elif isinstance(error, AntiphonError):
            self.say(str(error), "red")
        else:
            self.say(f"something went wrong that should not: {type(error).__name__}: {error}", "red")

    def _keep(self, text: str, asked_before: ModelInputEntry | None) -> None:
        """Give a message back that did not get into the log: it is nowhere else."""
        asked = self.session.chat.turn.input
        is_kept = asked is not None and asked is not asked_before and text_of(asked.content) == text
        if not is_kept and not text.startswith("/"):
            self.composer.prefill(text)

    # Turns.

    async def _played(self, content: Sequence[InputPart]) -> LoopFinished:
        view: View = PlainView(tells_calls=True) if isinstance(self.composer, PlainReader) else self._turn_view
        return await play(self.session.loop, view, content)

    async def _decide(self) -> None:
        loop = self.session.loop
        everything = False
        for call in loop.pending:
            if everything:
                loop.approve(call.tool_call_id)
                continue
            self.say(f"{call.tool_name} wants to run:", "yellow")
            self.show(escape_control_chars(_pretty(call)))
            everything = await self._decide_one(call)

    async def _decide_one(self, call: ToolCallRequest) -> bool:
        """Ask about one call until there is a decision; whether it counts for all that follow."""
        loop = self.session.loop
        while True:
            word, _, reason = (await self.ask(_APPROVE)).strip().partition(" ")
            match word.lower():
                case "a" | "y" | "yes" | "approve" | "l" | "all":
                    loop.approve(call.tool_call_id)
                    return word.lower() in ("l", "all")
                case "d" | "n" | "no" | "deny":
                    loop.deny(call.tool_call_id, reason)
                    return False
                case "e" | "edit":
                    with suppress(Undecided):
                        try:
                            loop.edit(call.tool_call_id, await self.ask("arguments › ", call.arguments))
                        except AntiphonError as error:
                            self.say(str(error), "red")
                            continue
                        return False
                case _:
                    self.say("a, l, d or e; Ctrl-C leaves it undecided.", "dim")

    # Words of its own.

    def _echo(self, text: str) -> None:
        if isinstance(self.composer, Composer):
            shown = text if len(text) < 4_000 else f"{text[:4_000]}… ({len(text):,} characters)"
            self._turn_view.commit(self.painter.styled(f"{PROMPT}{shown}", "bold"), "asked")

    def _welcome(self) -> None:
        session = self.session
        if session.settings.model is None and session.chat.model == session.choice.model:
            self.say(str(session.choice), "cyan")
        else:
            self.say(f"{session.chat.model}; /model switches to another.", "cyan")
        self.say("Enter sends, Alt-Enter breaks the line, Ctrl-C interrupts, Ctrl-D leaves, /help says more.", "dim")
        if session.is_said:
            self.show_last()

    def _farewell(self) -> None:
        with suppress(StoreError):  # a busy store must not keep anybody from leaving
            if not self.session.is_unused:
                self.say(f"Kept as {self.session.chat.id}; `antiphon chat --resume` goes on with it.", "dim")

    def _status(self) -> str:
        chat = self.session.chat
        return f"{chat.model} · {chat.tokens:,} tokens · version {chat.history.version}"

    def _composer(self) -> Composer:
        return Composer(
            self.painter,
            {f"/{name}": command.about for name, command in COMMANDS.items()},
            words=lambda: {"/model": self.session.models, "/resume": ("last",), "/memory": ("edit", "add ", "clear")},
            status=self._status,
            interrupt=self.interrupt,
            expand=self._expand_now,
            history=self.session.folder / "input.history",
        )

    def _expand_now(self) -> None:
        self.expand()
        self._in_background(self.composer.flush())

    def _in_background(self, work: object) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _pretty(call: ToolCallRequest) -> str:
    if call.freeform:
        return call.arguments
    try:
        return msgspec.json.format(call.arguments, indent=2)
    except msgspec.DecodeError:
        return call.arguments
