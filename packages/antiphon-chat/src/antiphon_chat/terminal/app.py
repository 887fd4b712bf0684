"""`TerminalChat`: a chat at a terminal.

Two tasks run concurrently. The line editor always reads lines; a worker executes them one by one, as a command or a turn.
So a message sent while a turn runs is queued until the turn ends. Ctrl-C interrupts the worker and returns the queued lines to
the input. A question of the chat itself (approve this call?) takes the next line.

On a terminal that can only print, lines are read while the worker is idle.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from antiphon.cli.program import runnable
from antiphon.cli.terminal import escape_control_chars, wrapped
from antiphon.conversation import RunResult
from antiphon.errors import AntiphonError, StoreError, WriterConflict
from antiphon.history import ModelInputEntry, ModelOutputEntry
from antiphon.model_name import ModelName
from antiphon.parts import InputPart, ToolCallRequest, text_of
from antiphon.providers.default_model import OFFLINE
from antiphon.tools.builtin import Plan
from antiphon.tools.builtin.plans import TaskDraft, new_plan
from antiphon_chat.language import choice_reason, translate
from antiphon_chat.shared.in_a_line import arguments_of
from antiphon_chat.shared.models import model_title
from antiphon_chat.shared.permissions import allow_always
from antiphon_chat.shared.session import ChatSession
from antiphon_chat.shared.spending import Spending, spending_of
from antiphon_chat.shared.uploads import parse_message
from antiphon_chat.terminal.commands import COMMANDS, Commands
from antiphon_chat.terminal.greeting import greeting, mark
from antiphon_chat.terminal.input import PROMPT, LineEditor, PlainInput
from antiphon_chat.terminal.mcp_command import SUBCOMMANDS
from antiphon_chat.terminal.model_list import model_list
from antiphon_chat.terminal.render import Renderer
from antiphon_chat.terminal.turn_view import CollapsedBlock, PlainView, TurnView, View, run_turn

_APPROVAL_ROWS = 8
"""Lines around the arguments of a call that is asked about: the question, the status, the prompt, the menu."""
_SHORT_JSON = 40
_KEY_COMMAND = re.compile(r"(?s)\A(/key +(?!forget)\S+) +(?!forget\b)\S.*")
_APPROVE = "y yes · n no [reason] · e change · t always · l all › "


class DecisionSkipped(Exception):
    """The user did not answer a question of the chat."""


class TerminalChat:
    """The chat of one terminal."""

    def __init__(self, session: ChatSession) -> None:
        self.session = session
        self.renderer = Renderer()
        self.collapsed: list[CollapsedBlock] = []
        self._lines: deque[str] = deque()
        self._has_lines = asyncio.Event()
        self._is_free = asyncio.Event()
        self._is_leaving = False
        self._answer: asyncio.Future[str] | None = None
        self._job: asyncio.Task[None] | None = None
        self._commands = Commands(self)
        self._tasks: set[asyncio.Task[object]] = set()
        is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")
        self.editor: LineEditor | PlainInput = PlainInput(self._is_free) if is_dumb else self._line_editor()
        self._turn_view = TurnView(self.renderer, self.editor, self.collapsed)
        self._turn_view.turn_spending = self._turn_spending
        self._turn_view.effective = lambda: self.session.history.effective
        if not is_dumb:
            self.editor.live = self._turn_view.live

    async def run(self) -> int:
        """Run the chat until the user quits."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.interrupt)
        self._print_greeting()
        working = asyncio.create_task(self._process_queue())
        try:
            await self.editor.run(self._submit)
        finally:
            await self.session.loop.interrupt()
            working.cancel()
            await asyncio.wait([working])
            await self.editor.flush()
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        self._print_resume_hint()
        await self.editor.flush()
        return 0

    # What commands use.

    def say(self, text: str, style: str = "", /, **values: object) -> None:
        """Show a message of the chat itself, in the language in use."""
        self.show(self.renderer.line(runnable(translate(text, **values)), style))

    def show(self, drawn: str) -> None:
        """Show rendered text."""
        self._turn_view.commit(drawn, "said")

    def leave(self) -> None:
        """End the chat."""
        self._is_leaving = True
        self.editor.stop()

    async def ask(self, prompt: str, default: str = "", /, **values: object) -> str:
        """Wait for the next line as an answer. Raises `DecisionSkipped` if the user interrupts."""
        kept = self.editor.take()
        self.editor.prompt = translate(prompt, **values)
        if default:
            self.editor.prefill(default)
        self._answer = asyncio.get_running_loop().create_future()
        await self.editor.flush()
        self._is_free.set()
        try:
            return await self._answer
        finally:
            self._is_free.clear()
            self._answer = None
            self.editor.prompt = PROMPT
            if kept:
                self.editor.prefill(kept)

    async def ask_secret(self, prompt: str, /, **values: object) -> str:
        """Wait for a line that is neither shown nor kept among the typed lines. Raises `DecisionSkipped`."""
        self.editor.is_secret = True
        try:
            return await self.ask(prompt, **values)
        finally:
            self.editor.is_secret = False

    async def show_models(self, *, is_long: bool) -> None:
        """Show the sources of models; with `is_long`, the models too."""
        session = self.session
        sources = await session.setup.sources()
        names = session.models if is_long else ()
        hosts = {ModelName.parse(name).provider for name in session.setup.listed}
        # Never a model that its host does not list, but for the one in use.
        named = [name for name in names if name == session.chat.model or ModelName.parse(name).provider not in hosts]
        self.show(model_list(self.renderer, sources, session.chat.model, named, is_long=is_long))

    async def play(self, content: Sequence[InputPart] = ()) -> None:
        """Run a turn, asking for approval where needed."""
        self.session.setup.retry_rejected_keys()
        finished = await self._run_turn(content)
        while finished.reason == "approval":
            try:
                await self._decide()
            except DecisionSkipped:
                self.say("Approval still pending. /retry to decide, or send a new message.", "yellow")
                return
            finished = await self._run_turn(())

    def expand(self, back: int = 1) -> None:
        """Expand a collapsed block, counted from the last."""
        if not 1 <= back <= len(self.collapsed):
            self.say(
                translate("There are {count} collapsed blocks.", count=len(self.collapsed))
                if self.collapsed
                else translate("Nothing is collapsed."),
                "dim",
            )
            return
        collapsed = self.collapsed[-back]
        self.show(self.renderer.one_line(collapsed.title, "bold"))
        self.show(self.renderer.markdown(collapsed.body))

    def show_last(self) -> None:
        """Show the last message and the last answer, as a reminder."""
        effective = list(self.session.history.effective)
        question = next((each for each in reversed(effective) if isinstance(each, ModelInputEntry)), None)
        answer = next((each for each in reversed(effective) if isinstance(each, ModelOutputEntry)), None)
        if question is not None:
            self._echo(text_of(question.content))
        if answer is not None and question is not None and answer.sequence_number > question.sequence_number:
            self._turn_view.commit(self.renderer.markdown(answer.response_markdown), "text")
        turn = self.session.chat.turn
        if pending := self.session.loop.pending:
            heading = translate("Pending approvals; /retry to decide:")
            self._turn_view.commit(self.renderer.line(heading, "yellow"), "note")
            for call in pending:
                self.show(self.renderer.one_line(f"{call.tool_name} {call.arguments}", "yellow", indent="  "))
        elif turn.open_calls or turn.needs_model:
            self.say("The last turn is unfinished; /retry to resume it.", "yellow")

    # Ctrl-C, and the lines.

    def interrupt(self) -> None:
        """Ctrl-C: interrupt the running turn or command; if there is none, clear the line."""
        if self._answer is not None:
            if not self._answer.done():  # a second Ctrl-C, or one right after Enter, comes before the answer is read
                self._answer.set_exception(DecisionSkipped())
        elif self.session.chat.active_turn is not None:
            self._restore_queue()
            self._in_background(self.session.loop.interrupt())
        elif self._job is not None:
            self._restore_queue()
            self._job.cancel()
        elif not self.editor.take():
            self.say("Ctrl-D: quit", "dim")
            self._in_background(self.editor.flush())

    def _restore_queue(self) -> None:
        """Return queued messages to the input."""
        if self._lines:
            self.editor.prefill("\n".join(self._lines))
            self._lines.clear()
            self._show_queue()

    def _submit(self, text: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._is_free.clear()  # at once: the next line is read when it is known what the answer leads to
            self._answer.set_result(text)
        elif text.strip():
            self._lines.append(text)
            self._is_free.clear()
            self._has_lines.set()
            self._show_queue()

    def _show_queue(self) -> None:
        self._turn_view.queued = tuple(self._lines) if self._job is not None else ()

    async def _process_queue(self) -> None:
        await self.editor.flush()
        while not self._is_leaving:
            if not self._lines:
                self._is_free.set()
                self._has_lines.clear()
                await self._has_lines.wait()
            text = self._lines.popleft()
            asked = self.session.chat.turn.input
            self._job = asyncio.create_task(self._handle_line(text))
            self._show_queue()
            try:
                await asyncio.wait([self._job])
                if self._job.cancelled():
                    self.say("(interrupted)", "yellow")
                elif error := self._job.exception():
                    self._failed(error)
                    self._restore_input(text, asked)
            except asyncio.CancelledError:
                self._job.cancel()
                await asyncio.wait([self._job])
                raise
            finally:
                self._job = None
            await self.editor.flush()
        self._is_free.set()

    async def _handle_line(self, text: str) -> None:
        self._echo(_KEY_COMMAND.sub(r"\1 …", text))
        await self.editor.flush()
        if text.startswith("/") and not text.startswith("//"):
            await self._commands.run(text)
        else:
            await self.play(parse_message(text.removeprefix("/") if text.startswith("//") else text))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, WriterConflict):
            count = len(self.session.history.refresh())
            self.say(
                "Another process added {count} entries to this conversation. Review them and send your message again.",
                "red",
                count=count,
            )
        elif isinstance(error, AntiphonError):
            self.say(str(error), "red")
        else:
            self.say("internal error: {kind}: {error}; please report it", "red", kind=type(error).__name__, error=error)

    def _restore_input(self, text: str, asked_before: ModelInputEntry | None) -> None:
        """Return a message that is not in the log to the input, as it is stored nowhere else."""
        asked = self.session.chat.turn.input
        is_kept = asked is not None and asked is not asked_before and text_of(asked.content) == text
        if not is_kept and not text.startswith("/"):
            self.editor.prefill(text)

    # Turns.

    async def _run_turn(self, content: Sequence[InputPart]) -> RunResult:
        view: View = PlainView(shows_calls=True) if isinstance(self.editor, PlainInput) else self._turn_view
        return await run_turn(self.session, view, content)

    async def _decide(self) -> None:
        loop = self.session.loop
        everything = False
        for call in loop.pending:
            if everything:
                loop.approve(call.tool_call_id)
                continue
            self._show_call(call)
            everything = await self._decide_one(call)

    def _show_call(self, call: ToolCallRequest) -> None:
        """What will happen: the plan, or one argument after the other. Long ones are cut to the terminal; Ctrl-O shows all."""
        text = escape_control_chars(readable_arguments(call)) or translate("(no arguments)")
        if plan := planned(call):
            self.say("Create this plan?", "green")
            lines = self.renderer.plan(plan, is_proposed=True).split("\n")
        else:
            self.say("Approve {tool}?", "green", tool=call.tool_name)
            lines = [f"  {line}" for line in wrapped(text, self.renderer.columns - 3)]
        room = max(3, self.renderer.rows - _APPROVAL_ROWS)
        for line in lines[:room]:
            self.show(line)
        if len(lines) > room:
            self.collapsed.append(CollapsedBlock(call.tool_name, f"```\n{text}\n```"))
            rest = translate("… {count} more lines; Ctrl-O shows all of it", count=len(lines) - room)
            self.say(f"  {rest}", "yellow")

    async def _decide_one(self, call: ToolCallRequest) -> bool:
        """Ask about one call until there is a decision; whether it counts for all that follow."""
        loop = self.session.loop
        while True:
            word, _, reason = (await self.ask(_APPROVE)).strip().partition(" ")
            match word.lower():
                case "a" | "y" | "yes" | "approve" | "l" | "all":
                    loop.approve(call.tool_call_id)
                    return word.lower() in ("l", "all")
                case "t" | "always":
                    loop.approve(call.tool_call_id)
                    allow_always(self.session.history, call.tool_name)
                    return False
                case "d" | "n" | "no" | "deny":
                    loop.deny(call.tool_call_id, reason)
                    return False
                case "e" | "edit":
                    with suppress(DecisionSkipped):
                        try:
                            loop.edit(call.tool_call_id, await self.ask("arguments › ", call.arguments))
                        except AntiphonError as error:
                            self.say(str(error), "red")
                            continue
                        return False
                case _:
                    self.say("Enter y, n, e, t or l; Ctrl-C to decide later.", "dim")

    # Messages of the chat itself.

    def _echo(self, text: str) -> None:
        if isinstance(self.editor, LineEditor):
            shown = text
            if len(text) >= 4_000:
                shown = translate("{text}… ({count:,} characters)", text=text[:4_000], count=len(text))
            self._turn_view.commit(self.renderer.styled(f"{mark('asked')} {shown}", "bold"), "asked")

    def _print_greeting(self) -> None:
        session = self.session
        model, is_chosen = (
            session.chat.model,
            session.settings.model is None and session.chat.model == session.choice.model,
        )
        name = model_title(model) if model == OFFLINE else model
        shown = f"{name}: {choice_reason(session.choice)}" if is_chosen else name
        about = translate("{model}; change it with /model.", model=shown)
        for line in greeting(self.renderer, model, "" if is_chosen and session.choice.kind == "offline" else about):
            self.show(line)
        self.say("Enter: send · Alt-Enter: new line · Ctrl-C: stop · Ctrl-D: quit · /help", "dim")
        for server in session.mcp.problems():
            self.say(server.error, "yellow")
        if session.has_messages:
            self.show_last()
        elif session.settings.model is None and model == OFFLINE:
            self._in_background(self._show_found())

    async def _show_found(self) -> None:
        """Servers of this machine are looked for, for a person who has no model yet."""
        for source in await self.session.setup.sources():
            if source.kind == "server":
                self.say("Found on this machine: /model {model}", "green", model=source.model)
        await self.editor.flush()

    def _turn_spending(self) -> Spending:
        """What the last turn used and cost."""
        entries = self.session.history.effective
        begins = max((at for at, entry in enumerate(entries) if isinstance(entry, ModelInputEntry)), default=0)
        return spending_of(entries[begins:])

    def _print_resume_hint(self) -> None:
        with suppress(StoreError):  # a busy store must not prevent quitting
            if not self.session.is_unused:
                hint = translate("Saved as {id}. Resume with `antiphon chat --resume`.", id=self.session.chat.id)
                self.say(hint, "dim")

    def _status(self) -> str:
        chat = self.session.chat
        title = model_title(chat.model)
        if not self.session.has_messages:
            return title
        return translate("{model} · {tokens:,} tokens", model=title, tokens=chat.tokens)

    def _placeholder(self) -> str:
        """What the empty line invites to."""
        if self._answer is not None or self._job is not None:
            return ""
        is_tour = self.session.chat.model == OFFLINE and not self.session.has_messages
        return translate("Write, or send 1, 2, 3 or 4") if is_tour else ""

    def _line_editor(self) -> LineEditor:
        return LineEditor(
            self.renderer,
            {f"/{name}": translate(command.about) for name, command in COMMANDS.items()},
            words=lambda: {
                "/model": self.session.models,
                "/resume": ("last",),
                "/memory": ("edit", "add ", "clear"),
                "/mcp": SUBCOMMANDS,
            },
            status=self._status,
            placeholder=self._placeholder,
            interrupt=self.interrupt,
            expand=self._expand_last,
            history=self.session.folder / "input.history",
        )

    def _expand_last(self) -> None:
        self.expand()
        self._in_background(self.editor.flush())

    def _in_background(self, work: object) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def planned(call: ToolCallRequest) -> Plan | None:
    """The plan that a call would create, if it is one that can be drawn."""
    if call.tool_name != "create_plan":
        return None
    arguments = arguments_of(call)
    with suppress(msgspec.ValidationError, AntiphonError, TypeError):
        drafts = msgspec.convert(arguments.get("tasks") or [], list[str | TaskDraft])
        return new_plan("", str(arguments["title"]), str(arguments.get("goal") or ""), drafts, datetime.now(UTC))
    return None


def readable_arguments(call: ToolCallRequest) -> str:
    """The arguments of a call for a person: one per line, texts as they are, everything else as JSON."""
    arguments = arguments_of(call)
    if not arguments:
        return "" if call.arguments.strip() == "{}" else call.arguments
    return "\n".join(f"{name}: {_readable(value)}" for name, value in arguments.items())


def _readable(value: object) -> str:
    if isinstance(value, str):
        return "".join(f"\n  {line}" for line in value.splitlines()) if "\n" in value else value
    written = msgspec.json.encode(value)
    if len(written) <= _SHORT_JSON:
        return written.decode()
    return "".join(f"\n  {line}" for line in msgspec.json.format(written, indent=2).decode().splitlines())
