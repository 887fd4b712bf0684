"""`antiphon import`: read sessions of other coding agents into the store. What could not be read goes to standard error."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from antiphon.cli.options import add_json, add_store
from antiphon.cli.terminal import write, write_error, write_json
from antiphon.errors import SessionError
from antiphon.history import HistoryStore
from antiphon.history.export import CopyResult
from antiphon.history.location import open_location, store_location
from antiphon_devtools.cli.sessions import list_sessions
from antiphon_devtools.sessions.imported import ImportedSession
from antiphon_devtools.sessions.programs import PROGRAMS, Program, find_session, find_sessions, load_program
from antiphon_devtools.sessions.storing import store_session

_SHOWN_PROBLEMS = 20

_STATUS_TEXT = {
    "copied": "imported",
    "grown": "brought up to date",
    "same": "already imported, the same",
    "ahead": "left alone: it was continued here",
    "differs": "left alone: it is not the same here; --as-new imports it as another conversation",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read a session of another coding agent into the store, with its calls, results, reasoning, images and branches. "
        "Importing it again adds what is new."
    )
    parser.add_argument("program", choices=tuple(PROGRAMS), metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="a session file, or the id of a session (default: the last changed one)"
    )
    parser.add_argument("--all", action="store_true", help="every session of the program on this machine")
    parser.add_argument("--list", action="store_true", help="list the sessions instead of reading one")
    parser.add_argument("--as-new", action="store_true", help="import under a new id, even if it was imported before")
    parser.add_argument("--quiet", action="store_true", help="report only how many problems there are")
    add_store(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Import the session; returns 1 if one of several could not be read."""
    if arguments.path and (arguments.all or arguments.list):
        write_error("antiphon import: give a PATH, or --all, or --list; not two of them")
        return 2
    program = load_program(arguments.program)
    home = Path.home()
    if arguments.list:
        found = find_sessions(home, [program.name])
        list_sessions(found, [program.name], total=len(found), as_json=arguments.json)
        return 0
    paths = _paths(program, home, arguments)
    failed = 0
    stored: list[dict[str, object]] = []
    with open_location(store_location(arguments.store), create=True) as store:
        for path in paths:
            try:
                stored += _import(store, program, path, arguments)
            except SessionError as error:
                if not arguments.all:
                    raise
                write_error(f"antiphon: {error}")
                failed += 1
    if arguments.json:
        write_json(stored)
    return 1 if failed else 0


def _paths(program: Program, home: Path, arguments: argparse.Namespace) -> Sequence[Path]:
    if arguments.path:
        path = Path(arguments.path)
        if path.is_file() or path.parent.is_file():  # a session in a database is named by the file and its id
            return [path]
        if path.is_dir():
            raise SessionError(f"{path} is a folder; give a session file or the id of a session")
        if len(path.parts) > 1:
            raise SessionError(f"there is no file {path}")
        return [Path(find_session(home, program.name, arguments.path).path)]
    found = find_sessions(home, [program.name])
    if not found:
        raise SessionError(f"no sessions of {program.title} below {home}; give the path of a session file")
    if arguments.all:
        return [Path(session.path) for session in reversed(found)]  # the oldest first, as they were written
    return [Path(found[0].path)]


def _import(
    store: HistoryStore, program: Program, path: Path, arguments: argparse.Namespace
) -> list[dict[str, object]]:
    imported = program.read(path)
    results = store_session(store, imported, as_new=arguments.as_new)
    _report(imported, program, quiet=arguments.quiet)
    rows: list[dict[str, object]] = []
    for result in results:
        info = store.info(result.conversation)
        if not arguments.json:
            write([_line(result, info.version, info.title, info.parent)])
        rows.append(
            {
                "session": imported.session,
                "conversation": info,
                "status": result.status,
                "unreadable": imported.unreadable if info.parent is None else (),
            }
        )
    return rows


def _line(result: CopyResult, version: int, title: str, parent: str | None) -> str:
    new = f", {result.entries} new entries" if result.status == "grown" else ""
    branch = f"  (a branch of {parent})" if parent else ""
    return f"{_STATUS_TEXT[result.status]}{new}: {result.conversation}  {version} entries  {title}{branch}"


def _report(imported: ImportedSession, program: Program, *, quiet: bool) -> None:
    """Print what could not be read, or how much."""
    problems = imported.unreadable
    if imported.own_context and not quiet:
        own = _count(imported.own_context, "message")
        write_error(f"left out: {own} that {program.title} adds to every session by itself")
    if quiet:
        if problems:
            write_error(f"{imported.session.path}: {_count(len(problems), 'problem')}")
        return
    write_error(*(str(one) for one in problems[:_SHOWN_PROBLEMS]))
    if len(problems) > _SHOWN_PROBLEMS:
        write_error(f"… {_count(len(problems) - _SHOWN_PROBLEMS, 'more problem')}; --json has all of them")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
