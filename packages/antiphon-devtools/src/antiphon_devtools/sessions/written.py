"""What writing a history for another program gives: the files, where they belong, and the command that resumes the session.

Nothing is written to the disk here; `antiphon export` does that. Files that exist are only replaced where the program keeps a
list of its projects, which is read first and written back with one line more.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.conversation.interchange import MessagesWritten
from antiphon.history.agent_history import AgentHistory
from antiphon.history.entries import ModelOutputEntry


class WrittenFile(Struct, frozen=True):
    """A file to write."""

    path: Path
    data: bytes


class WrittenSession(Struct, frozen=True, kw_only=True):
    """A session for another program. The first file holds the conversation."""

    id: str
    files: tuple[WrittenFile, ...]
    command: str
    """The command that continues it, to be run in the project folder."""
    notes: tuple[str, ...] = ()
    """What the program cannot take, and the repairs of the sequence."""


class SessionTarget(Struct, frozen=True, kw_only=True):
    """Where a session is written to: the user's home and the project folder, and what the conversation is called."""

    home: Path
    folder: Path
    title: str = ""
    time: datetime = datetime.fromtimestamp(0, UTC)

    def time_of(self, position: int) -> str:
        """The time of a line: a millisecond after the line before it, in the notation of JavaScript."""
        time = self.time + timedelta(milliseconds=position)
        return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


def json_lines(lines: Iterable[object]) -> bytes:
    """Values as the lines of a JSON Lines file."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def notes_of(written: MessagesWritten) -> tuple[str, ...]:
    """The repairs and losses of messages that were written, as lines; the same loss in many messages is one line."""
    places: dict[tuple[str, str], list[str]] = {}
    for loss in written.losses:
        places.setdefault((loss.what, loss.why), []).append(loss.path)
    return (
        *map(str, written.repairs),
        *(
            f"{paths[0] or '(body)'}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: {what}: {why}"
            for (what, why), paths in places.items()
        ),
    )


def model_of(history: AgentHistory) -> str:
    """The model that wrote the last answer; empty if none did."""
    for entry in reversed(history.effective):
        if isinstance(entry, ModelOutputEntry) and entry.origin is not None and entry.origin.model:
            return entry.origin.model
    return ""


def new_session_id(time: datetime | None = None) -> str:
    """A new id as the programs make them: a random UUID, or, with a time, one of version 7, which sorts by time."""
    if time is None:
        return str(uuid.uuid4())
    milliseconds = int(time.timestamp() * 1000)
    value = (milliseconds << 80 | uuid.uuid4().int & ((1 << 80) - 1)) & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62))


def folder_of(home: Path, variable: str, name: str) -> Path:
    """The folder in which a program keeps its files: the one its variable names, or `name` in the home folder."""
    return Path(os.environ.get(variable) or home / name)


def slug_of(folder: Path) -> str:
    """A folder's path as one name: everything but letters and digits becomes a dash."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(folder))
