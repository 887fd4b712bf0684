"""`antiphon chat`: chat with a model in the terminal, a pipe or the browser.

It needs no setup: without a key the guided tour answers, and the first line explains how to choose another model. Conversations
are stored, and `--resume` continues one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import structs

from antiphon.cli.options import add_store, whole_number
from antiphon.conversation import RunLimits
from antiphon.errors import ConversationError
from antiphon.history.location import store_location
from antiphon.tools.embedded import parse_setting
from antiphon_chat.language import LANGUAGES, language_from_environment, use_language
from antiphon_chat.shared.session import ChatSession, ChatSettings, TurnSettings
from antiphon_chat.shared.setup.own_tools import own_tools


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p", "--prompt", metavar="TEXT", help="send one message, print the answer and exit; @file attaches a file"
    )
    parser.add_argument(
        "-m", "--model", metavar="NAME", help="provider/model (default: first provider whose API key is set)"
    )
    add_store(parser)
    parser.add_argument(
        "--resume", nargs="?", const="last", metavar="ID", help="resume a conversation by id (default: last)"
    )
    parser.add_argument("--system", metavar="TEXT", help="the system instruction")
    parser.add_argument("--no-tools", action="store_true", help="disable tools")
    parser.add_argument("--ask", action="store_true", help="require approval for every tool that is not read-only")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="documents for the model to search")
    parser.add_argument(
        "--tools",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="your own tools and agents: a Python file (repeatable)",
    )
    parser.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="COMMAND",
        help="tools of an MCP server: its command or address (repeatable)",
    )
    add_turn_options(parser)
    parser.add_argument(
        "--language",
        choices=LANGUAGES,
        help="language of the terminal chat (default: $ANTIPHON_LANGUAGE, or the locale)",
    )
    parser.add_argument("--json", action="store_true", help="with -p or a pipe: print every event as a line of JSON")
    parser.add_argument("--web", action="store_true", help="serve the chat page on localhost")
    parser.add_argument(
        "--port", type=whole_number(0, 65_535), metavar="N", help="with --web: the port (default 8765; 0 for any)"
    )
    parser.add_argument("--open", action="store_true", help="with --web: open the page in your browser")


def run(arguments: argparse.Namespace) -> int:
    """Chat in the terminal, through a pipe or in the browser."""
    own = own_tools(arguments.tools, arguments.mcp)
    settings = ChatSettings(
        store=store_location(arguments.store),
        model=arguments.model,
        resume=arguments.resume,
        system=arguments.system,
        has_tools=not arguments.no_tools,
        asks_before_changes=arguments.ask,
        folder=arguments.folder,
        turns=structs.replace(turn_settings(arguments), agents=own.agents),
        tools=own.tools,
    )
    if arguments.web:
        if arguments.prompt is not None or arguments.json:
            raise ConversationError("-p and --json are for the terminal; leave them out with --web")
        return _served(settings, arguments)
    use_language(arguments.language or language_from_environment(os.environ))
    if arguments.prompt is not None or not sys.stdin.isatty():
        from antiphon_chat.terminal.one_shot import one_shot, read_message

        content = read_message(arguments.prompt)
        work = partial(one_shot, content=content, as_json=arguments.json)
        return asyncio.run(_closing(settings, work, wait_seconds=30.0))
    if arguments.json or not sys.stdout.isatty():
        what = "--json prints no chat" if arguments.json else "stdout is not a terminal"
        raise ConversationError(f'{what}; use -p "…" or pipe the message in')
    from antiphon_chat.terminal.input import require_extra

    require_extra()
    return asyncio.run(_closing(settings, _talk, wait_seconds=5.0))


async def _talk(session: ChatSession) -> int:
    from antiphon_chat.terminal.app import TerminalChat

    return await TerminalChat(session).run()


async def _closing(
    settings: ChatSettings, work: Callable[[ChatSession], Awaitable[int]], *, wait_seconds: float
) -> int:
    session = ChatSession(settings)
    try:
        await session.open_tools(wait_seconds)
        return await work(session)
    finally:
        await session.aclose()


def _served(settings: ChatSettings, arguments: argparse.Namespace) -> int:
    from antiphon_chat.page.server import PORT, serve_chat

    return serve_chat(settings, port=PORT if arguments.port is None else arguments.port, opens_browser=arguments.open)


def add_turn_options(parser: argparse.ArgumentParser) -> None:
    """The limits of a turn, and what happens to long conversations and to calls in text."""
    limits = RunLimits()
    parser.add_argument(
        "--max-rounds", type=int, metavar="N", help=f"rounds of tool calls in a turn (default {limits.max_rounds})"
    )
    parser.add_argument(
        "--max-errors",
        type=int,
        metavar="N",
        help=f"rounds in a row in which no tool call succeeds (default {limits.max_failed_rounds})",
    )
    parser.add_argument("--max-seconds", type=float, metavar="S", help="time limit of a turn (default: none)")
    parser.add_argument(
        "--embedded-calls",
        metavar="MODE",
        help="tool calls in the model's text: off, on, prompt, or auto: closed tags are calls (default auto); "
        "by model: 'ollama/*=prompt'",
    )
    parser.add_argument(
        "--token-limit",
        metavar="N",
        help="summarise what is older above N tokens, within a long turn too; 'off' for never "
        "(default: 80%% of the model's context window)",
    )
    parser.add_argument("--memory", action="store_true", help="let the model read and edit its notebook")


def turn_settings(arguments: argparse.Namespace) -> TurnSettings:
    """The settings these options make. Raises `ConversationError`."""
    limits = RunLimits.of(
        None,
        {
            "max_rounds": arguments.max_rounds,
            "max_failed_rounds": arguments.max_errors,
            "max_seconds": arguments.max_seconds,
        },
    )
    embedded = parse_setting(arguments.embedded_calls) if arguments.embedded_calls is not None else "auto"
    return TurnSettings(
        limits=limits,
        embedded_calls=embedded,
        token_limit=_token_limit(arguments.token_limit),
        has_memory_tool=arguments.memory,
    )


def _token_limit(text: str | None) -> int | Literal["auto"] | None:
    if text is None or text == "auto":
        return "auto"
    if text == "off":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConversationError(f"invalid --token-limit {text!r}: expected a number, 'auto' or 'off'")
    return int(text)
