"""`antiphon replay`: answer a stored conversation again with other models, and print them beside the original."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from pathlib import Path

from antiphon.cli.options import add_conversation, add_json, add_store, whole_number
from antiphon.cli.terminal import write, write_error, write_json
from antiphon.conversation import Decision
from antiphon.conversation.replay import Comparison, Replay, compare
from antiphon.conversation.replay.recorded_results import CALL_POLICIES
from antiphon.conversation.replay.replay_run import parse_step
from antiphon.errors import ConversationError
from antiphon.history.location import store_location
from antiphon.parts import ToolCallRequest
from antiphon.threads import TOOLS
from antiphon_chat.language import LANGUAGES, language_from_environment, translate, use_language
from antiphon_chat.shared.session import ChatSession, ChatSettings
from antiphon_chat.shared.setup.own_tools import own_tools
from antiphon_chat.terminal import add_turn_options, turn_settings
from antiphon_chat.terminal.comparison_table import comparison_lines

_COLUMNS = 80


def configure(parser: argparse.ArgumentParser) -> None:
    add_conversation(parser)
    parser.add_argument(
        "-m",
        "--model",
        action="append",
        required=True,
        dest="models",
        metavar="NAME",
        help="the model that answers again (repeatable)",
    )
    parser.add_argument(
        "--from",
        dest="step",
        type=_step,
        default="1",
        metavar="STEP",
        help="where to begin: a turn (2), a round of a turn (2.3) or an entry (entry:17); default: the first turn",
    )
    parser.add_argument(
        "--calls",
        choices=CALL_POLICIES,
        default="log",
        help="calls that the log does not have: log stops there, ask asks you, run runs them (approvals hold), "
        "skip reports to the model that there is no result (default log)",
    )
    parser.add_argument("--turns", type=whole_number(1), metavar="N", help="replay at most N turns (default: all)")
    add_store(parser)
    parser.add_argument("--no-tools", action="store_true", help="do not offer the built-in tools")
    parser.add_argument(
        "--tools", type=Path, action="append", default=[], metavar="FILE", help="your own tools (repeatable)"
    )
    parser.add_argument(
        "--mcp", action="append", default=[], metavar="COMMAND", help="tools of an MCP server (repeatable)"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="documents for the model to search")
    add_turn_options(parser)
    parser.add_argument("--full", action="store_true", help="print answers and arguments in full length")
    parser.add_argument("--language", choices=LANGUAGES, help="language of the table (default: that of the locale)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay the conversation; 1 if a model did not get to the end."""
    use_language(arguments.language or language_from_environment(os.environ))
    if arguments.calls == "ask" and not sys.stdin.isatty():
        write_error("antiphon: --calls ask needs a terminal to ask on; use --calls log, run or skip")
        return 2
    settings = ChatSettings(
        store=store_location(arguments.store),
        resume=arguments.conversation,
        has_tools=not arguments.no_tools,
        folder=arguments.folder,
        turns=turn_settings(arguments),
        tools=own_tools(arguments.tools, arguments.mcp).tools,
    )
    comparison = asyncio.run(_replayed(settings, arguments))
    if arguments.json:
        write_json(comparison)
    else:
        columns = shutil.get_terminal_size((_COLUMNS, 24)).columns
        write(comparison_lines(comparison, columns, is_full=arguments.full), paged=True)
    return 1 if any(branch.stopped for branch in comparison.branches[1:]) else 0


async def _replayed(settings: ChatSettings, arguments: argparse.Namespace) -> Comparison:
    session = ChatSession(settings)
    try:
        await session.open_tools()
        original = session.history
        models = [session.find_model(name) for name in arguments.models]
        replays = [Replay(original, arguments.step, calls=arguments.calls, max_turns=arguments.turns) for _ in models]
        for model, replay in zip(models, replays, strict=True):
            if sys.stderr.isatty():
                write_error(translate("Replaying with {model} …", model=model))
            session.start_replay(replay, model)
            await replay.run(session.loop, decide=_ask if arguments.calls in ("ask", "run") else None)
        return compare(original, *(replay.branch for replay in replays))
    finally:
        await session.aclose()


async def _ask(call: ToolCallRequest) -> Decision | None:
    """Ask on the terminal whether a call may run; without a terminal, or an answer, it waits."""
    if not sys.stdin.isatty():
        return None
    question = translate("Run {tool} {arguments}? [y/N] ", tool=call.tool_name, arguments=call.arguments)
    write_error(question)
    answer = await TOOLS.run(sys.stdin.readline)  # Ctrl-C need not wait for a line
    if not answer:
        return None
    is_allowed = answer.strip().lower() in ("y", "yes", "是")
    return Decision(tool_call_id=call.tool_call_id, decision="approve" if is_allowed else "deny")


def _step(text: str) -> str:
    try:
        parse_step(text)
    except ConversationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
