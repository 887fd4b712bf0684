"""Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl`, a log of changes to a list of messages.

The first line is the head. A line with an `id` adds a message, or replaces the one of that id (an answer is written again when
its calls have results); `$set` replaces fields, among them all `messages`; `$rewindTo` removes a message and those after it.
Earlier versions wrote the same as one JSON object, in `.json`. Answers hold their calls with the results in `toolCalls`; the
results are repeated as a message of the user. `projects.json` maps each PROJECT to its folder. Signatures of thoughts
are not kept by the program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.conversation.interchange import write_messages
from antiphon.errors import SessionError
from antiphon.history import HistoryEntry
from antiphon.history.agent_history import AgentHistory
from antiphon_devtools.sessions.imported import HistoryBuilder, ImportedSession, branches_in_order
from antiphon_devtools.sessions.programs import Program
from antiphon_devtools.sessions.session_file import (
    SessionFile,
    Unreadable,
    as_object,
    as_objects,
    changed_time,
    parse_time,
    read_head_lines,
    read_json_lines,
    read_json_object,
)
from antiphon_devtools.sessions.written import (
    SessionTarget,
    WrittenFile,
    WrittenSession,
    folder_of,
    json_lines,
    model_of,
    new_session_id,
    notes_of,
)

_OWN_TEXTS = ("<session_context>", "This is the Gemini CLI. We are setting up the context")
_NOTICES = ("info", "error", "warning")
"""Messages that are only shown on the screen."""


class _Message(Struct, frozen=True):
    """A message and the line it was written in last."""

    line: int
    data: dict[str, Any]

    @property
    def is_own_context(self) -> bool:
        return self.data.get("type") in _NOTICES or (
            self.data.get("type") == "user" and _text_of(self.data.get("content")).startswith(_OWN_TEXTS)
        )

    @property
    def time(self) -> datetime | None:
        return parse_time(self.data.get("timestamp"))


class _Chat:
    """The messages of a file after all its changes, and those that were removed by going back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self.messages: dict[str, _Message] = {}
        self.abandoned: list[list[_Message]] = []
        self.unreadable: list[Unreadable] = []

    def read(self) -> None:
        if self.path.suffix == ".json":
            data = read_json_object(self.path)
            self.head = {name: value for name, value in data.items() if name != "messages"}
            self._set_messages(1, data.get("messages"))
            return
        for line, data in read_json_lines(self.path, self.unreadable):
            if isinstance(data.get("$set"), dict):
                changed = dict(data["$set"])
                if "messages" in changed:
                    self._set_messages(line, changed.pop("messages"))
                self.head |= changed
            elif isinstance(data.get("$rewindTo"), str):
                self._rewind(data["$rewindTo"])
            elif isinstance(data.get("id"), str) and "type" in data:
                self.messages[data["id"]] = _Message(line, data)
            elif "sessionId" in data:
                self.head |= data
            else:
                self.unreadable.append(Unreadable(str(self.path), line, "neither a message nor a change of one"))

    def _set_messages(self, line: int, messages: object) -> None:
        self.messages = {}
        for number, message in enumerate(messages if isinstance(messages, list) else ()):
            if isinstance(message, dict):
                self.messages[str(message.get("id") or f"{line}.{number}")] = _Message(line, message)
            else:
                self.unreadable.append(Unreadable(str(self.path), line, f"messages[{number}] is not an object"))

    def _rewind(self, message_id: str) -> None:
        ids = list(self.messages)
        if message_id not in ids:
            return
        self.abandoned.append(list(self.messages.values()))
        for removed in ids[ids.index(message_id) :]:
            del self.messages[removed]


def find(home: Path) -> Iterator[SessionFile]:
    """The sessions of every project."""
    for folder in _root(home).glob("tmp/*/chats"):
        project = _project_of(folder.parent)
        for path in (*folder.glob("session-*.jsonl"), *folder.glob("session-*.json")):
            session = _head_of(path, project)
            if session is not None:
                yield session


def _head_of(path: Path, project: str) -> SessionFile | None:
    session_id = title = ""
    lines = read_head_lines(path) if path.suffix == ".jsonl" else _lines_of_object(path)
    for data in lines:
        if data.get("kind") == "subagent":
            return None
        session_id = session_id or str(data.get("sessionId") or "")
        if data.get("type") == "user" and not _Message(0, data).is_own_context:
            title = _text_of(data.get("displayContent") or data.get("content"))
        if session_id and title:
            return SessionFile.at(path, "gemini-cli", session_id, title, project)
    return None


def _lines_of_object(path: Path) -> Iterator[dict[str, Any]]:
    """A session in one object as if its head and its messages were lines."""
    try:
        data = read_json_object(path)
    except SessionError:
        return
    messages = data.pop("messages", None)
    yield data
    yield from as_objects(messages)


def read(path: Path) -> ImportedSession:
    """The session in a file; what the user went back from is a branch. Raises `SessionError`."""
    chat = _Chat(path)
    chat.read()
    messages = list(chat.messages.values())
    session_id = str(chat.head.get("sessionId") or "")
    if not session_id or not (messages or chat.abandoned):
        raise SessionError(
            f"{path} has no conversation of Gemini CLI; its sessions are in ~/.gemini/tmp/PROJECT/chats/session-….jsonl"
        )
    created = parse_time(chat.head.get("startTime")) or changed_time(path)
    branches = branches_in_order(
        (*chat.abandoned, messages),
        lambda message: str(message.data.get("id")),
        lambda path, report: _entries(chat, path, created, report),
        chat.unreadable,
    )
    prompts = (m.data for m in messages if m.data.get("type") == "user" and not m.is_own_context)
    titles = (_text_of(data.get("displayContent") or data.get("content")) for data in prompts)
    title = str(chat.head.get("summary") or next(filter(None, titles), ""))
    project = _project_of(path.parent.parent)
    session = SessionFile.at(path, "gemini-cli", session_id, title, project, len(messages))
    own_context = sum(message.is_own_context for message in messages)
    return ImportedSession.of(session, created, branches, chat.unreadable, own_context)


def _entries(
    chat: _Chat, messages: Sequence[_Message], created: datetime, unreadable: list[Unreadable]
) -> tuple[HistoryEntry, ...]:
    builder = HistoryBuilder(str(chat.path), "gemini", unreadable, created)
    answered: set[str] = set()
    for message in messages:
        if message.is_own_context:
            continue
        kind = message.data.get("type")
        if kind == "user":
            _add_user(builder, message, answered)
        elif kind == "gemini":
            _add_answer(builder, message, answered)
        else:
            builder.report(message.line, f"a message of the unknown type {kind!r}; left out")
    return builder.entries()


def _add_user(builder: HistoryBuilder, message: _Message, answered: set[str]) -> None:
    """Add a prompt. Results were added with their calls, and what came with them too."""
    parts = _parts_of(message.data.get("content"))
    responses = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
    if responses and all(str(response.get("id")) in answered for response in responses):
        parts = [part for part in parts if "functionResponse" not in part and "inlineData" not in part]
    if parts:
        builder.add({"role": "user", "parts": parts}, line=message.line, time=message.time)


def _add_answer(builder: HistoryBuilder, message: _Message, answered: set[str]) -> None:
    data = message.data
    thought = _thoughts_of(data.get("thoughts"))
    parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought else []
    parts += _parts_of(data.get("content"))
    calls = [call for call in as_objects(data.get("toolCalls")) if isinstance(call.get("name"), str)]
    for call in calls:
        named = {"id": call["id"]} if call.get("id") else {}
        parts.append({"functionCall": {**named, "name": call["name"], "args": call.get("args") or {}}})
    if not parts:
        builder.report(message.line, "an empty answer; left out")
        return
    model = str(data.get("model") or "")
    model = f"gemini/{model}" if model.startswith("gemini-") else model  # others may come from any host
    builder.add({"role": "model", "parts": parts}, line=message.line, time=message.time, model=model)
    results = [part for call in calls for part in _results_of(call)]
    answered.update(str(call.get("id")) for call in calls if _results_of(call))
    if results:
        time = parse_time(calls[-1].get("timestamp")) or message.time
        builder.add({"role": "user", "parts": results}, line=message.line, time=time)


def _results_of(call: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The result of a call, with the media that the program keeps beside it put into it."""
    parts = _parts_of(call.get("result"))
    media = [part for part in parts if "inlineData" in part]
    for part in parts:
        response = part.get("functionResponse")
        if isinstance(response, dict):
            inside = {"parts": [*(response.get("parts") or ()), *media]} if media else {}
            return [{"functionResponse": {**response, **inside}}]
    return []


def _thoughts_of(thoughts: object) -> str:
    """The summaries of thoughts. One without a subject continues the one before it."""
    text = ""
    for thought in as_objects(thoughts):
        subject, words = str(thought.get("subject") or ""), str(thought.get("description") or "")
        if subject:
            text += ("\n\n" if text else "") + f"**{subject}**\n{words}"
        else:
            text += words
    return text


def _parts_of(content: object) -> list[dict[str, Any]]:
    """Content as a list of parts: the program writes text, a part, or a list of both."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    if isinstance(content, dict):
        return [content]
    parts: list[dict[str, Any]] = []
    for part in content if isinstance(content, list) else ():
        parts += _parts_of(part) if not isinstance(part, list) else []
    return parts


def _text_of(content: object) -> str:
    return "\n".join(str(part["text"]) for part in _parts_of(content) if part.get("text"))


def _root(home: Path) -> Path:
    return folder_of(home, "GEMINI_CLI_HOME", "") / ".gemini"


def _project_of(folder: Path) -> str:
    """The project folder of a folder of `tmp`; empty if that is not recorded."""
    try:
        return (folder / ".project_root").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def write(history: AgentHistory, target: SessionTarget) -> WrittenSession:
    """The history as a session for `gemini --resume ID` in the folder."""
    written = write_messages(history, "gemini")
    notes = list(notes_of(written))
    if written.body.get("systemInstruction"):
        notes.append("the system instruction: Gemini CLI has its own, and a session has no place for one; left out")
    session_id = new_session_id()
    head = {
        "sessionId": session_id,
        "projectHash": hashlib.sha256(str(target.folder).encode()).hexdigest(),
        "startTime": target.time_of(0),
        "lastUpdated": target.time_of(len(written.messages)),
        "kind": "main",
    }
    messages = _written_messages(written.messages, model_of(history), target, notes)
    root = _root(target.home)
    project, indexes = _project_files(root, target.folder)
    path = root / "tmp" / project / "chats" / f"session-{target.time:%Y-%m-%dT%H-%M}-{session_id[:8]}.jsonl"
    return WrittenSession(
        id=session_id,
        files=(WrittenFile(path, json_lines((head, *messages))), *indexes),
        command=f"gemini --resume {session_id}",
        notes=tuple(notes),
    )


def _written_messages(
    contents: list[dict[str, Any]], model: str, target: SessionTarget, notes: list[str]
) -> Iterator[dict[str, Any]]:
    """The messages of a session, each answer with the results that follow it."""
    for position, content in enumerate(contents):
        shared = {"id": new_session_id(), "timestamp": target.time_of(position)}
        parts = content.get("parts") or []
        if content.get("role") != "model":
            # Results are written with their calls only: the program would send those of a message of the user once more.
            if prompt := [part for part in parts if "functionResponse" not in part]:
                yield {**shared, "type": "user", "content": prompt}
            continue
        following = contents[position + 1].get("parts") or [] if position + 1 < len(contents) else []
        results = {part["functionResponse"].get("id"): part for part in following if "functionResponse" in part}
        texts = [part for part in parts if "text" in part and not part.get("thought")]
        thoughts = [part["text"] for part in parts if part.get("thought") and part.get("text")]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        others = [part for part in parts if not {"text", "functionCall"} & part.keys()]
        if others:
            notes.append(f"messages[{position}]: {len(others)} parts that are neither text nor calls; left out")
        if any(part.get("thoughtSignature") for part in parts):
            notes.append(f"messages[{position}]: signatures of thoughts: Gemini CLI does not keep them; left out")
        answer: dict[str, Any] = {
            **shared,
            "type": "gemini",
            "content": "".join(part["text"] for part in texts),
            "thoughts": [
                {"subject": "", "description": text, "timestamp": target.time_of(position)} for text in thoughts
            ],
        }
        if model:
            answer["model"] = model
        if calls:
            answer["toolCalls"] = [_written_call(call, results.get(call.get("id")), target, position) for call in calls]
        yield answer


def _written_call(
    call: Mapping[str, Any], result: Mapping[str, Any] | None, target: SessionTarget, position: int
) -> dict[str, Any]:
    response = (result or {}).get("functionResponse") or {}
    failed = "error" in (response.get("response") or {})
    return {
        "id": call.get("id"),
        "name": call["name"],
        "args": call.get("args") or {},
        "result": _beside(result) if result is not None else [],
        "status": "error" if failed else "success",
        "timestamp": target.time_of(position),
        "resultDisplay": "",
        "description": "",
        "displayName": call["name"],
    }


def _beside(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A part, with the media of a result beside it, as the program keeps them."""
    response = part.get("functionResponse")
    if not isinstance(response, dict) or not response.get("parts"):
        return [dict(part)]
    plain = {name: value for name, value in response.items() if name != "parts"}
    return [{"functionResponse": plain}, *response["parts"]]


def _project_files(root: Path, folder: Path) -> tuple[str, tuple[WrittenFile, ...]]:
    """The name of a project folder, and the files that make it known if it is new."""
    index = root / "projects.json"
    known = read_json_object(index) if index.exists() else {}
    projects = dict(as_object(known.get("projects")))
    if isinstance(name := projects.get(str(folder)), str):
        return name, ()
    wanted = "".join(c if c.isalnum() else "-" for c in folder.name.lower()).strip("-") or "project"
    taken = {*projects.values(), *(path.name for path in root.glob("tmp/*"))}
    name = next(name for n in range(len(taken) + 2) if (name := f"{wanted}-{n}" if n else wanted) not in taken)
    projects[str(folder)] = name
    listed = msgspec.json.format(msgspec.json.encode({**known, "projects": projects}), indent=2)
    return name, (
        WrittenFile(index, listed),
        WrittenFile(root / "tmp" / name / ".project_root", str(folder).encode()),
        WrittenFile(root / "history" / name / ".project_root", str(folder).encode()),
    )


PROGRAM = Program(name="gemini-cli", title="Gemini CLI", find=find, read=read, write=write)
