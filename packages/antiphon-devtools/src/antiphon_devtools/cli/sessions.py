"""`antiphon sessions`: list the sessions of other coding agents on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from antiphon.cli.options import add_json, whole_number
from antiphon.cli.terminal import format_time, table, write, write_json
from antiphon_devtools.sessions.programs import PROGRAMS, find_sessions
from antiphon_devtools.sessions.session_file import SessionFile


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "program", nargs="?", choices=tuple(PROGRAMS), metavar="PROGRAM", help=f"only of: {', '.join(PROGRAMS)}"
    )
    parser.add_argument("--folder", metavar="PROJECT", help="only those that worked in this folder")
    parser.add_argument("--limit", type=whole_number(1), metavar="N", default=50, help="show this many (default 50)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List what is on this machine, the last changed first."""
    names = [arguments.program] if arguments.program else list(PROGRAMS)
    found = find_sessions(Path.home(), names)
    if arguments.folder:
        folder = str(Path(arguments.folder).absolute())
        found = [session for session in found if session.folder == folder]
    list_sessions(found[: arguments.limit], names, total=len(found), as_json=arguments.json)
    return 0


def list_sessions(found: Sequence[SessionFile], names: Sequence[str], *, total: int, as_json: bool) -> None:
    """Print sessions as a table, or as JSON."""
    if as_json:
        write_json(found)
        return
    if not found:
        write([f"no sessions of {', '.join(names)} below {Path.home()}"])
        return
    write(table(("PROGRAM", "CHANGED", "ID", "FOLDER", "TITLE"), [_row(session) for session in found]))
    if total > len(found):
        write([f"{len(found)} of {total}; --limit {total} for all"])


def _row(session: SessionFile) -> tuple[str, str, str, str, str]:
    return session.program, format_time(session.changed), session.id, _short_folder(session.folder), session.title


def _short_folder(folder: str) -> str:
    """A folder below the home folder, from `~` on."""
    home = str(Path.home())
    return f"~{folder.removeprefix(home)}" if folder == home or folder.startswith(home + "/") else folder
