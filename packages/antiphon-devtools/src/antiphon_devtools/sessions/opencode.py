"""opencode: every session in one SQLite file, `~/.local/share/opencode/opencode.db`; messages and their parts are rows of JSON.

A session is named by the file and its id (`…/opencode.db/ses_…`); the file alone means the one that was changed last. Sessions
of subagents have a parent and become branches. After an undo, `revert` names the first message that no longer counts: what is
before it is the session, and all of it a branch. The report counts messages, for a database has no lines.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import SessionError
from antiphon.json_text import NOT_JSON
from antiphon.parts import (
    OutputPart,
    Part,
    ResultPart,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
    media_part,
)
from antiphon.wire.media import inline_base64, is_web_url
from antiphon.wire.request import Message
from antiphon_devtools.sessions.imported import Branch, HistoryBuilder, ImportedSession, with_forks
from antiphon_devtools.sessions.programs import Program
from antiphon_devtools.sessions.session_file import (
    SessionFile,
    Unreadable,
    as_object,
    as_objects,
    changed_time,
    parse_time,
    short_title,
)

_OWN_PARTS = frozenset({"step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction", "subtask"})
"""Parts with which the program keeps its own records. What they mean to the model is in other parts."""


class _Message(Struct, frozen=True):
    number: int
    """Its position in the session, from 1."""
    id: str
    info: dict[str, Any]
    parts: list[dict[str, Any]]

    @property
    def role(self) -> str:
        return str(self.info.get("role") or "")

    @property
    def model(self) -> str:
        named = (self.info.get("providerID"), self.info.get("modelID"))
        return "/".join(str(name) for name in named if name)


class _Row(Struct, frozen=True):
    id: str
    parent: str | None
    title: str
    folder: str
    revert: str | None
    created: int
    changed: int


def find(home: Path) -> Iterator[SessionFile]:
    """The sessions in the program's database, without those of subagents."""
    path = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode" / "opencode.db"
    if not path.is_file():
        return
    try:
        rows = _sessions(path)
    except SessionError:
        return  # another version of the program; reading the file says why
    yield from (_session_file(path, row) for row in rows if row.parent is None)


def read(path: Path) -> ImportedSession:
    """The session that a path names: the database and an id, or the database for the last one. Raises `SessionError`."""
    database, wanted = (path, "") if path.is_file() else (path.parent, path.name)
    if not database.is_file():
        raise SessionError(
            f"there is no file {database}; opencode keeps its sessions in ~/.local/share/opencode/opencode.db"
        )
    rows = _sessions(database)
    roots = [row for row in rows if (row.id == wanted if wanted else row.parent is None)]
    if not roots:
        raise SessionError(f"{database} has no session{f' {wanted}' if wanted else 's'}")
    row = roots[0]
    unreadable: list[Unreadable] = []
    branches = _branches(database, row, unreadable)
    for child in reversed([child for child in rows if child.parent == row.id]):
        branches += [
            msgspec.structs.replace(branch, name=child.id + branch.name, title=f"subagent: {short_title(child.title)}")
            for branch in _branches(database, child, unreadable)[:1]
        ]
    if not any(branch.entries for branch in branches):
        raise SessionError(f"session {row.id} in {database} has no messages")
    return ImportedSession(
        session=_session_file(database, row),
        created=parse_time(row.created) or changed_time(database),
        branches=with_forks(branches),
        unreadable=tuple(unreadable),
    )


def _branches(database: Path, row: _Row, unreadable: list[Unreadable]) -> list[Branch]:
    place = f"{database}/{row.id}"
    messages = _messages(database, row.id, place, unreadable)
    end = next((index for index, message in enumerate(messages) if message.id == row.revert), len(messages))
    branches = [_branch(row, "", messages[:end], place, unreadable)]
    if end < len(messages):
        later: list[Unreadable] = []
        branches.append(_branch(row, str(row.revert), messages, place, later))
        unreadable += (problem for problem in later if problem not in unreadable)  # what both share is reported once
    return branches


def _branch(row: _Row, name: str, messages: Sequence[_Message], place: str, unreadable: list[Unreadable]) -> Branch:
    signed = any("anthropic" in _metadata(part) for message in messages for part in message.parts)
    created = parse_time(row.created)
    builder = HistoryBuilder(
        place, "anthropic" if signed else "openai-chat", unreadable, created or changed_time(Path(place))
    )
    for message in messages:
        _add(builder, message)
    return Branch(name=name, title=short_title(row.title), entries=builder.entries())


def _add(builder: HistoryBuilder, message: _Message) -> None:
    time = parse_time(as_object(message.info.get("time")).get("created"))
    parts: list[Part] = []
    results: list[ToolCallResult] = []
    for part in message.parts:
        kind = part.get("type")
        if kind == "text" and not part.get("ignored"):
            parts += [Text(str(part["text"]))] if part.get("text") else []
        elif kind == "reasoning":
            parts.append(_thinking(part))
        elif kind == "tool":
            call, result = _call(builder, message.number, part)
            parts.append(call)
            results += [result] if result is not None else []
        elif kind == "file":
            parts += _file(builder, message.number, part)
        elif kind not in _OWN_PARTS and kind != "text":
            builder.report(message.number, f"a part of type {kind}; left out")
    if isinstance(message.info.get("error"), dict):
        builder.report(message.number, f"the answer ended with an error: {message.info['error'].get('name')}")
    if message.info.get("summary") is True:
        builder.compact("".join(part.text for part in parts if isinstance(part, Text)), time=time)
        return
    if parts:
        builder.add_message(Message(message.role, tuple(parts)), line=message.number, time=time, model=message.model)
    if results:
        builder.add_message(Message("tool", tuple(results)), line=message.number, time=time)


def _thinking(part: dict[str, Any]) -> OutputPart:
    signed = as_object(_metadata(part).get("anthropic")).get("signature")
    return Thinking(str(part.get("text") or ""), native={"anthropic": {"signature": signed}} if signed else None)


def _call(builder: HistoryBuilder, number: int, part: dict[str, Any]) -> tuple[ToolCallRequest, ToolCallResult | None]:
    state = as_object(part.get("state"))
    arguments = state.get("input")
    call = ToolCallRequest(
        str(part.get("tool") or ""),
        str(part.get("callID") or ""),
        str(state.get("raw")) if not arguments and state.get("raw") else msgspec.json.encode(arguments or {}).decode(),
    )
    if state.get("status") == "error":
        return call, ToolCallResult.of(call, str(state.get("error") or ""), status=ToolExecutionStatus.FAILED)
    if state.get("status") != "completed":
        return call, None
    content: list[ResultPart] = [Text(str(state.get("output") or ""))]
    for attachment in as_objects(state.get("attachments")):
        content += _file(builder, number, attachment)
    return call, ToolCallResult.of(call, *content)


def _file(builder: HistoryBuilder, number: int, part: dict[str, Any]) -> list[Any]:
    url, media_type, name = (str(part.get(field) or "") for field in ("url", "mime", "filename"))
    if (inline := inline_base64(url)) is not None:
        return [media_part(inline.media_type, inline.data, name=name)]
    if is_web_url(url):
        return [media_part(media_type, url=url, name=name)]
    if not media_type.startswith(("text/", "application/x-directory")):  # the text of those is in a part of its own
        builder.report(number, f"file {name or url[:80]}: its content is not in the session")
    return []


def _metadata(part: dict[str, Any]) -> dict[str, Any]:
    return as_object(part.get("metadata")) if part.get("type") == "reasoning" else {}


def _sessions(path: Path) -> list[_Row]:
    """The sessions in a database, the last changed first."""
    columns = "id, parent_id, title, directory, revert, time_created, time_updated"
    rows = _query(path, f"SELECT {columns} FROM session ORDER BY time_updated DESC, id DESC")
    return [
        _Row(
            str(id_),
            parent or None,
            str(title or ""),
            str(folder or ""),
            _reverted_to(revert),
            int(created),
            int(changed),
        )
        for id_, parent, title, folder, revert, created, changed in rows
    ]


def _messages(path: Path, session: str, place: str, unreadable: list[Unreadable]) -> list[_Message]:
    parts: dict[str, list[dict[str, Any]]] = {}
    numbers: dict[str, int] = {}
    found: list[_Message] = []
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for number, (message, data) in enumerate(_query(path, query, session), 1):
        info = _decode(data)
        numbers[message] = number
        if info is None or info.get("role") not in ("user", "assistant"):
            unreadable.append(Unreadable(place, number, "not a message: invalid JSON, or a role that is not known"))
            continue
        found.append(_Message(number, message, info, parts.setdefault(message, [])))
    query = "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
    for message, data in _query(path, query, session):
        part = _decode(data)
        if part is None:
            unreadable.append(Unreadable(place, numbers.get(message, 0), "a part that is not valid JSON"))
        elif message in parts:
            parts[message].append(part)
    return found


def _query(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise SessionError(
            f"cannot read {path}: {error}; expected the database of opencode 1 (1.2 or later)"
        ) from error


def _decode(data: Any) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(data)
    except (*NOT_JSON, TypeError):
        return None
    return value if isinstance(value, dict) else None


def _reverted_to(revert: Any) -> str | None:
    value = _decode(revert) if revert else None
    return str(value["messageID"]) if value and value.get("messageID") else None


def _session_file(path: Path, row: _Row) -> SessionFile:
    return SessionFile(
        program="opencode",
        path=f"{path}/{row.id}",
        id=row.id,
        title=short_title(row.title),
        folder=row.folder,
        changed=parse_time(row.changed) or changed_time(path),
    )


PROGRAM = Program(name="opencode", title="opencode", find=find, read=read)
