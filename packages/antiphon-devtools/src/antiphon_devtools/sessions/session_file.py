"""`SessionFile`: a session of another program, found on this machine, and the reading of JSON Lines, which most programs write.

Finding is cheap: it looks at the first lines of a file only. Reading does not stop at a bad line: it reports the line and
reads on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import SessionError
from antiphon.json_text import NOT_JSON, decode_json
from antiphon.text import one_line, shorten

_TITLE_LENGTH = 80
_HEAD_BYTES = 256 * 1024
"""How much of a file is read to find its title."""


class Unreadable(Struct, frozen=True):
    """Something in a session file that is not in the history, or not as it was. Line 0 means the whole file."""

    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}" if self.line else f"{self.path}: {self.why}"


class SessionFile(Struct, frozen=True, kw_only=True):
    """A session of a program. `id` is the one the program resumes it by; `folder` is the project it worked in."""

    program: str
    path: str
    id: str
    title: str = ""
    folder: str = ""
    changed: datetime
    messages: int | None = None
    """How many messages it has, where that is known without reading all of it."""

    @classmethod
    def at(
        cls, path: Path, program: str, session_id: str, title: str, folder: str, messages: int | None = None
    ) -> SessionFile:
        """The session in a file of its own. The title may be a whole prompt."""
        return cls(
            program=program,
            path=str(path),
            id=session_id,
            title=short_title(title),
            folder=folder,
            changed=changed_time(path),
            messages=messages,
        )


def read_json_lines(path: Path, unreadable: list[Unreadable]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file with their line numbers; what is not an object is reported."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                value = _decode(line)
                if isinstance(value, dict):
                    yield number, value
                elif isinstance(value, str):
                    cut = "" if line.endswith(b"\n") else "; the line is cut off"
                    unreadable.append(Unreadable(str(path), number, f"not valid JSON: {value}{cut}"))
                else:
                    unreadable.append(Unreadable(str(path), number, "not a JSON object"))
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror or error}") from error


def read_head_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in the first lines of a file, for finding its title; a file that cannot be read has none."""
    try:
        with path.open("rb") as file:
            while file.tell() < _HEAD_BYTES and (line := file.readline(_HEAD_BYTES)):
                value = _decode(line)
                if isinstance(value, dict):
                    yield value
    except OSError:
        return


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `SessionError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror or error}") from error
    value = _decode(data)
    if not isinstance(value, dict):
        raise SessionError(
            f"{path}: {f'not valid JSON: {value}' if isinstance(value, str) else 'expected a JSON object'}"
        )
    return value


def as_object(value: object) -> dict[str, Any]:
    """A JSON value as an object; empty if it is not one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """The objects of a JSON list; none if it is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_of_content(content: object) -> str:
    """The text of a message whose content is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in as_objects(content) if block.get("text"))


def parse_time(value: object) -> datetime | None:
    """The time in a field: ISO 8601, or seconds or milliseconds since 1970. None if it is neither."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def changed_time(path: Path) -> datetime:
    """When a file was changed last; long ago if it is gone."""
    try:
        return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
    except OSError:
        return datetime.fromtimestamp(0, UTC)


def short_title(text: str) -> str:
    """The first words of a prompt, on one line."""
    return shorten(one_line(text), _TITLE_LENGTH)


def _decode(data: bytes) -> Any:
    """The value of JSON text, or a string that says what is wrong with it."""
    try:
        return decode_json(data)
    except NOT_JSON as error:
        why = str(error)
    try:
        # Lone surrogates are legal in JSON text and not in ours; each becomes a question mark.
        text = json.dumps(json.loads(data.decode("utf-8")), ensure_ascii=False)
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return why
