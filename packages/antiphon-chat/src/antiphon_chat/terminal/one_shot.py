"""One message, one answer: `-p`, and piped input.

On a terminal the answer is drawn as in a chat; into a pipe goes only its text, or with `--json` every event as a line.
Exit codes: 0 answered, 1 not answered (the reason on standard error), 130 interrupted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from importlib.util import find_spec

from antiphon.cli.terminal import write_error
from antiphon.conversation import RunResult
from antiphon.errors import ConversationError
from antiphon.parts import Document, InputPart, Text
from antiphon_chat.language import format_choice, translate
from antiphon_chat.shared.session import ChatSession
from antiphon_chat.shared.uploads import file_part, parse_message
from antiphon_chat.terminal.turn_view import END_MESSAGES, JsonView, PlainView, View, run_turn


def read_message(prompt: str | None) -> list[InputPart]:
    """The message: the prompt with the files it mentions, and the piped input."""
    content = parse_message(prompt) if prompt and prompt.strip() else []
    if not sys.stdin.isatty():
        piped = sys.stdin.buffer.read()
        if piped.strip():
            part = file_part(piped, "standard input")
            is_message = not content and isinstance(part, Document) and part.text
            content.append(Text(part.text) if is_message and isinstance(part, Document) else part)
    if not content:
        raise ConversationError('empty message; use `antiphon chat -p "…"` or pipe text in')
    return content


async def one_shot(session: ChatSession, content: list[InputPart], *, as_json: bool) -> int:
    """Send one message, show the answer, and return the exit code."""
    if sys.stderr.isatty() and session.settings.model is None and not as_json:
        write_error(f"antiphon: {format_choice(session.choice)}")
    for server in session.mcp.problems():  # the answer comes without its tools
        write_error(f"antiphon: {server.error}")
    running = asyncio.get_running_loop()
    interrupting: list[asyncio.Task[bool]] = []

    def interrupt() -> None:
        # The second time the process ends at once. KeyboardInterrupt would be raised inside whichever task runs just then.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interrupting.append(asyncio.ensure_future(session.loop.interrupt()))

    # A background job of a script starts with SIGINT ignored: Ctrl-C is not meant for it.
    if handles_interrupt := signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        running.add_signal_handler(signal.SIGINT, interrupt)
    try:
        finished = await run_turn(session, _view(session, as_json=as_json), content)
    finally:
        if handles_interrupt and not interrupting:
            running.remove_signal_handler(signal.SIGINT)
    return _ended(session, finished)


def _ended(session: ChatSession, finished: RunResult) -> int:
    if finished.reason == "interrupted":
        return 130
    if finished.reason == "approval":
        waiting = ", ".join(call.tool_name for call in session.loop.pending)
        message = translate(
            "{tools} needs approval; decide with `antiphon chat --resume {id}`", tools=waiting, id=session.chat.id
        )
        write_error(f"antiphon: {message}")
        return 1
    if finished.reason == "failed":
        return 1  # the view has reported the error
    if not (session.chat.turn.refusal or session.chat.turn.answer).strip():
        reason = _explain_empty_answer(session, finished)
        write_error(f"antiphon: {translate('no answer: {reason}', reason=reason)}")
        return 1
    if finished.reason in END_MESSAGES:
        write_error(f"antiphon: {translate(END_MESSAGES[finished.reason])}")
    return 0


def _explain_empty_answer(session: ChatSession, finished: RunResult) -> str:
    """Why there is no text to print."""
    output = session.chat.turn.output
    others = (
        Counter(type(part).__name__.lower() for part in output.content if not hasattr(part, "text")) if output else {}
    )
    parts = ", ".join(f"{count} {name}" for name, count in others.items())
    has_reason = output is not None and output.stop_reason
    return translate(
        "the model's last response has no text{stop}{content}{end}; `antiphon history show {id}` shows it",
        stop=translate(" (stop reason: {reason})", reason=output.stop_reason) if output and has_reason else "",
        content=translate("; it has {parts}", parts=parts) if others else "",
        end=f"; {translate(END_MESSAGES[finished.reason])}" if finished.reason in END_MESSAGES else "",
        id=session.chat.id,
    )


def _view(session: ChatSession, *, as_json: bool) -> View:
    if as_json:
        return JsonView()
    is_drawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and find_spec("rich") is not None
    if not is_drawn:
        return PlainView()
    from antiphon_chat.terminal.render import Renderer
    from antiphon_chat.terminal.turn_view import TerminalScreen, TurnView

    screen = TerminalScreen()
    view = TurnView(Renderer(), screen)
    screen.live = view.live
    view.effective = lambda: session.history.effective
    return view
