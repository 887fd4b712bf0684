"""`antiphon export`: a conversation as a session of another coding agent, and all that `antiphon history export` writes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from antiphon.cli.exporting import configure_export, export_lines, problem_with
from antiphon.cli.formats.bodies import atomic_write
from antiphon.cli.options import add_store
from antiphon.cli.terminal import write, write_error, write_json
from antiphon.errors import SessionError
from antiphon.history import HistoryStore
from antiphon.history.location import open_location, store_location
from antiphon.private_files import make_private_folder
from antiphon.wire import FORMATS
from antiphon_devtools.sessions.programs import WRITABLE, load_program
from antiphon_devtools.sessions.written import SessionTarget, WrittenFile, WrittenSession


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a conversation as a session that another coding agent resumes, as messages of a provider format, or as training "
        "data. What the target cannot take goes to standard error."
    )
    configure_export(parser, (*WRITABLE, *FORMATS))
    parser.add_argument(
        "--folder", metavar="PROJECT", help="with a program: the project folder of the session (default: this folder)"
    )
    parser.add_argument("--json", action="store_true", help="with a program: print id, files and command as JSON")
    add_store(parser)


def run(arguments: argparse.Namespace) -> int:
    """Export the conversation."""
    is_session = arguments.format in WRITABLE
    if not is_session and (arguments.folder or arguments.json):
        write_error(f"antiphon export: --folder and --json need --as {', '.join(WRITABLE)}")
        return 2
    with open_location(store_location(arguments.store), create=False) as store:
        if is_session and not problem_with(arguments):
            return _export_session(store, arguments)
        return export_lines(store, arguments)


def _export_session(store: HistoryStore, arguments: argparse.Namespace) -> int:
    program = load_program(arguments.format)
    assert program.write is not None, "WRITABLE lists the programs with a writer"
    (conversation,) = arguments.conversations
    history = store.open(conversation)
    folder = Path(arguments.folder or ".").resolve()
    if not folder.is_dir():
        raise SessionError(f"there is no folder {folder}; --folder names the project in which the session is continued")
    target = SessionTarget(home=Path.home(), folder=folder, title=store.info(history.id).title, time=datetime.now(UTC))
    session = program.write(history, target)
    for note in session.notes:
        write_error(f"{conversation}: {note}")
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
