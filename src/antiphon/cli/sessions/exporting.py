"""`antiphon export`: a conversation as a session of another coding agent, as messages of a provider format, or as JSON Lines.

`antiphon history export` is the same command without the sessions; both use `export_lines` here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from antiphon.cli.bodies import atomic_write
from antiphon.cli.terminal import data_writer, write, write_error, write_json
from antiphon.conversation.interchange import STRATEGIES, write_messages
from antiphon.errors import SessionError, StoreError
from antiphon.history.location import open_location, store_location
from antiphon.history.private_files import make_private_folder
from antiphon.history.store import HistoryStore
from antiphon.sessions.programs import WRITABLE, load_program
from antiphon.sessions.written import SessionTarget, WrittenFile, WrittenSession
from antiphon.wire import FORMATS


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a conversation so that another coding agent resumes it, or as messages of a provider format. "
        "What the target cannot take goes to standard error."
    )
    configure_export(parser, (*WRITABLE, *FORMATS))
    parser.add_argument(
        "--folder", metavar="PROJECT", help="with a program: the project folder of the session (default: this folder)"
    )
    parser.add_argument("--json", action="store_true", help="with a program: print id, files and command as JSON")
    parser.add_argument(
        "--store", metavar="PLACE", help="the store (default: $ANTIPHON_STORE, or the one in your data folder)"
    )


def configure_export(parser: argparse.ArgumentParser, targets: Iterable[str]) -> None:
    """Add the arguments that every export has."""
    targets = tuple(targets)
    parser.add_argument("conversation", metavar="ID", help="an id, the beginning or end of one, or `last`")
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


def run(arguments: argparse.Namespace) -> int:
    """Export the conversation."""
    is_session = arguments.format in WRITABLE
    if not is_session and (arguments.folder or arguments.json):
        write_error(f"antiphon export: --folder and --json need --as {', '.join(WRITABLE)}")
        return 2
    with open_location(store_location(arguments.store), create=False) as store:
        if is_session:
            return _export_session(store, arguments)
        return export_lines(store, arguments)


def export_lines(store: HistoryStore, arguments: argparse.Namespace) -> int:
    """Write a conversation as JSON Lines or as messages, to a file or standard output."""
    if arguments.format is not None:
        written = write_messages(store.open(arguments.conversation), arguments.format, arguments.strategy)
        for note in (*written.repairs, *written.losses):
            write_error(f"{arguments.conversation}: {note}")
        lines: Iterable[bytes] = [msgspec.json.encode(written.body) + b"\n"]
    else:
        if arguments.strategy != "merged":
            raise StoreError(f"--strategy {arguments.strategy} needs --as openai-chat")
        lines = store.export_lines(arguments.conversation)
    if arguments.output is None:
        out = data_writer()
        for line in lines:
            out(line)
        return 0
    with atomic_write(Path(arguments.output)) as file:
        file.writelines(lines)
    return 0


def _export_session(store: HistoryStore, arguments: argparse.Namespace) -> int:
    program = load_program(arguments.format)
    assert program.write is not None, "WRITABLE lists the programs with a writer"
    history = store.open(arguments.conversation)
    folder = Path(arguments.folder or ".").resolve()
    if not folder.is_dir():
        raise SessionError(f"there is no folder {folder}; --folder names the project in which the session is continued")
    target = SessionTarget(home=Path.home(), folder=folder, title=store.info(history.id).title, time=datetime.now(UTC))
    session = program.write(history, target)
    for note in session.notes:
        write_error(f"{arguments.conversation}: {note}")
    files = session.files
    if arguments.output is not None:
        files = (WrittenFile(Path(arguments.output), files[0].data),)
    for file in files:
        _write_file(file)
    _print_result(session, files, folder, arguments)
    return 0


def _write_file(file: WrittenFile) -> None:
    try:
        make_private_folder(file.path.parent)
    except OSError as error:
        raise SessionError(f"cannot create {file.path.parent}: {error.strerror or error}") from error
    with atomic_write(file.path) as out:
        out.write(file.data)


def _print_result(
    session: WrittenSession, files: Iterable[WrittenFile], folder: Path, arguments: argparse.Namespace
) -> None:
    if arguments.json:
        paths = [str(file.path) for file in files]
        write_json({"id": session.id, "files": paths, "folder": str(folder), "command": session.command})
        return
    if arguments.output is not None:
        write([f"wrote {arguments.output}"])
        return
    write([*(f"wrote {file.path}" for file in files), f"continue it: cd {folder} && {session.command}"])
