"""Export of conversations on the command line: JSON Lines, messages of a provider format, or trajectories for training.

Trajectories are written by antiphon-devtools. Its formats are named here too, so that they are refused with what to install.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import msgspec

from antiphon.cli.formats.bodies import atomic_write
from antiphon.cli.terminal import data_writer, write_error
from antiphon.conversation.interchange import STRATEGIES, write_messages
from antiphon.errors import StoreError
from antiphon.extensions import EXTENSIONS, find_part, load_part
from antiphon.history import HistoryStore

TRAJECTORY_FORMATS = ("openai-finetune", "sharegpt", "atif")


def configure_export(parser: argparse.ArgumentParser, targets: Iterable[str]) -> None:
    """Add the arguments that every export has."""
    targets = (*targets, *TRAJECTORY_FORMATS)
    parser.add_argument(
        "conversations",
        nargs="*",
        metavar="ID",
        help="an id, the beginning or end of one, or `last`; several only for trajectories",
    )
    parser.add_argument(
        "--as", dest="format", choices=targets, metavar="FORMAT", help=f"{', '.join(targets)} (default: JSON Lines)"
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="merged",
        help="messages of a round with --as openai-chat: merged, one per part, or tagged by iteration (default merged)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to (default: standard output)")
    if (trajectories := find_part(EXTENSIONS, "trajectories")) is not None:
        trajectories.configure_trajectories(parser)


def problem_with(arguments: argparse.Namespace) -> str:
    """What is wrong with the conversations and options of an export; empty if nothing is."""
    if arguments.format in TRAJECTORY_FORMATS:
        load_part(EXTENSIONS, "trajectories", f"--as {arguments.format}")
        if not (arguments.conversations or arguments.all or arguments.tag):
            return "give the ID of a conversation, or --all, or --tag TAG"
        return ""
    trajectories = find_part(EXTENSIONS, "trajectories")
    if trajectories is not None and (option := trajectories.misplaced_option(arguments)):
        return f"{option} needs --as {', '.join(TRAJECTORY_FORMATS)}"
    if len(arguments.conversations) != 1:
        few = not arguments.conversations
        return (
            "give the ID of a conversation"
            if few
            else f"only {', '.join(TRAJECTORY_FORMATS)} take several conversations"
        )
    return ""


def export_lines(store: HistoryStore, arguments: argparse.Namespace) -> int:
    """Write conversations as JSON Lines, messages or trajectories, to a file or standard output."""
    if problem := problem_with(arguments):
        write_error(f"antiphon: {problem}")
        return 2
    lines: Iterable[bytes]
    if arguments.format in TRAJECTORY_FORMATS:
        lines = load_part(EXTENSIONS, "trajectories", "").trajectory_lines(store, arguments)
    elif arguments.format is not None:
        (conversation,) = arguments.conversations
        written = write_messages(store.open(conversation), arguments.format, arguments.strategy)
        for note in (*written.repairs, *written.losses):
            write_error(f"{conversation}: {note}")
        lines = [msgspec.json.encode(written.body) + b"\n"]
    else:
        if arguments.strategy != "merged":
            raise StoreError(f"--strategy {arguments.strategy} needs --as openai-chat")
        lines = store.export_lines(arguments.conversations[0])
    if arguments.output is None:
        out = data_writer()
        for line in lines:
            out(line)
        return 0
    with atomic_write(Path(arguments.output)) as file:
        file.writelines(lines)
    return 0
