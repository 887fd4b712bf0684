"""Trajectories on the command line: the options that `export --as openai-finetune|sharegpt|atif` has, and the export itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from antiphon.cli.terminal import write_error
from antiphon.history import ConversationInfo, HistoryStore
from antiphon.wire.request import ToolDefinition
from antiphon_devtools.trajectories import BRANCHES, TRAJECTORY_FORMATS, TrajectoryExport, TurnFilter
from antiphon_devtools.trajectories import read_atif as read_atif

_CONDITIONS = {
    "finished": "only turns that ended with a complete answer",
    "approved": "only turns in which a person approved or edited a call, and denied none",
    "with_tools": "only turns with tool calls",
    "without_errors": "only turns in which no tool call failed",
}


def configure_trajectories(parser: argparse.ArgumentParser) -> None:
    """Add the options of trajectories to the parser of an export."""
    group = parser.add_argument_group(
        "trajectories", f"Options of --as {', '.join(TRAJECTORY_FORMATS)}. One line of JSON per branch."
    )
    group.add_argument("--all", action="store_true", help="every conversation of the store")
    group.add_argument("--tag", help="every conversation with this tag")
    group.add_argument("--forks", action="store_true", help="also the conversations that were forked from these")
    group.add_argument(
        "--branch",
        metavar="WHICH",
        default="current",
        help=f"{', '.join(BRANCHES)}, or the number of a version (default: current); abandoned is what rollbacks left",
    )
    for name, text in _CONDITIONS.items():
        group.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    group.add_argument(
        "--model", metavar="PATTERN", default="", help="only turns that such a model answered: 'anthropic/*', 'gpt-*'"
    )
    group.add_argument(
        "--tools",
        metavar="FILE",
        type=Path,
        help="definitions of the tools: a JSON list, a request body, or a Python file with @antiphon.tool",
    )
    group.add_argument("--media", metavar="FOLDER", type=Path, help="write images and audio to this folder")


def misplaced_option(arguments: argparse.Namespace) -> str:
    """The first option of trajectories that was given for another format; empty if there is none."""
    if arguments.format in TRAJECTORY_FORMATS:
        return ""
    given = ("all", "tag", "forks", *_CONDITIONS, "model", "tools", "media")
    name = next((name for name in given if getattr(arguments, name)), "branch" if arguments.branch != "current" else "")
    return f"--{name.replace('_', '-')}" if name else ""


def trajectory_lines(store: HistoryStore, arguments: argparse.Namespace) -> Iterator[bytes]:
    """The lines of the export. What a line could not carry goes to standard error before the next line."""
    export = TrajectoryExport(
        arguments.format,
        branch=arguments.branch,
        keep=TurnFilter(model=arguments.model, **{name: getattr(arguments, name) for name in _CONDITIONS}),
        tools=_definitions(arguments.tools),
        media=arguments.media,
    )
    for info in _conversations(store, arguments):
        for written in export.write(store.open(info.id), title=info.title, parent=info.parent):
            where = info.id if written.trajectory.is_current else written.trajectory.id
            for note in written.notes:
                write_error(f"{where}: {note}")
            if written.body is None:
                write_error(f"{where}: nothing to export")
            yield written.line


def _conversations(store: HistoryStore, arguments: argparse.Namespace) -> list[ConversationInfo]:
    chosen = [store.info(name) for name in arguments.conversations]
    if not (arguments.all or arguments.tag or arguments.forks):
        return _unique(chosen)
    known = store.list(limit=max(1, store.count()))
    if arguments.all or arguments.tag:
        chosen += (info for info in reversed(known) if not arguments.tag or arguments.tag in info.tags)
    if arguments.forks:
        for info in chosen:  # grows while it is read: forks have forks
            chosen += (fork for fork in reversed(known) if fork.parent == info.id and fork not in chosen)
    return _unique(chosen)


def _unique(found: Sequence[ConversationInfo]) -> list[ConversationInfo]:
    return list({info.id: info for info in found}.values())


def _definitions(path: Path | None) -> tuple[ToolDefinition, ...]:
    from antiphon_devtools.trajectories.tool_definitions import read_definitions

    if path is None:
        return ()
    if path.suffix != ".py":
        return read_definitions(path)
    from antiphon_chat.shared.setup.own_tools import load_tools

    return tuple(tool.definition for tool in load_tools(path))
