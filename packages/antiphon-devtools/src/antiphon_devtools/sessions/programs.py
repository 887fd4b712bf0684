"""The programs whose sessions can be moved. Each is a module with a `PROGRAM`; only the one that is named is imported.

To add one, write a module with `find` and `read` (and `write`, if the program can resume a file that it did not write), and put
its name here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from antiphon.errors import SessionError
from antiphon.history.agent_history import AgentHistory
from antiphon_devtools.sessions.imported import ImportedSession
from antiphon_devtools.sessions.session_file import SessionFile
from antiphon_devtools.sessions.written import SessionTarget, WrittenSession


class Program(Struct, frozen=True, kw_only=True):
    """A program that keeps its sessions in files."""

    name: str
    """As it is named on the command line."""
    title: str
    """As its makers call it."""
    find: Callable[[Path], Iterable[SessionFile]]
    """The sessions in its usual places below a home folder, in any order."""
    read: Callable[[Path], ImportedSession]
    """The session in a file. Raises `SessionError` if the file is not one."""
    write: Callable[[AgentHistory, SessionTarget], WrittenSession] | None = None
    """A history as a session that the program resumes."""


PROGRAMS: dict[str, str] = {
    "claude-code": "antiphon_devtools.sessions.claude_code",
    "codex": "antiphon_devtools.sessions.codex",
    "gemini-cli": "antiphon_devtools.sessions.gemini_cli",
    "copilot": "antiphon_devtools.sessions.copilot",
    "opencode": "antiphon_devtools.sessions.opencode",
    "aider": "antiphon_devtools.sessions.aider",
}
"""The module of each program."""
WRITABLE: tuple[str, ...] = ("claude-code", "codex", "gemini-cli")
"""The programs that resume what `write` makes; a list, so that help texts need no imports."""


def load_program(name: str) -> Program:
    """The program of that name. Raises `SessionError` for a name that is not in the table."""
    if name not in PROGRAMS:
        raise SessionError(f"unknown program {name!r}; expected one of: {', '.join(PROGRAMS)}")
    program: Program = import_module(PROGRAMS[name]).PROGRAM
    return program


def find_sessions(home: Path, names: Iterable[str] = PROGRAMS) -> list[SessionFile]:
    """The sessions of these programs on this machine, the last changed first."""
    found: Iterator[SessionFile] = (session for name in names for session in load_program(name).find(home))
    return sorted(found, key=lambda session: (session.changed, session.path), reverse=True)


def find_session(home: Path, name: str, wanted: str) -> SessionFile:
    """The session of a program by its id or the beginning of it. Raises `SessionError` if there is none or several."""
    matching = [session for session in find_sessions(home, [name]) if session.id.startswith(wanted)]
    exact = [session for session in matching if session.id == wanted]
    found = exact or matching
    if not found:
        raise SessionError(
            f"{load_program(name).title} has no session {wanted!r} on this machine, and there is no such file; "
            f"`antiphon import {name} --list` lists them"
        )
    if len({session.id for session in found}) > 1:
        raise SessionError(f"several sessions begin with {wanted!r}; give more of the id")
    return found[0]
