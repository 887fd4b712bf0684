"""Codex: `~/.codex/sessions/YEAR/MONTH/DAY/rollout-TIME-SESSION.jsonl`, the items of the OpenAI Responses API, one a line.

A line has a `timestamp`, a `type` and a `payload`. `session_meta` comes first; `response_item` is part of the conversation,
`turn_context` names the model of what follows, `compacted` has the items that replaced those before it. The rest repeats the
items for the screen. Items that Codex adds by itself (its instructions, the environment) have the role `developer` or the
provenance `harness`. A turn that the user went back from is followed by a `thread_rolled_back` event: its items become a branch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from antiphon.conversation.interchange import write_messages
from antiphon.errors import SessionError
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
    text_of_content,
)
from antiphon_devtools.sessions.written import (
    SessionTarget,
    WrittenFile,
    WrittenSession,
    folder_of,
    json_lines,
    new_session_id,
    notes_of,
)

_VERSION = "0.166.0"
"""What written lines give as the version of the program: the one they were tried with."""
_BOOKKEEPING = ("internal_chat_message_metadata_passthrough", "metadata", "id", "status")
"""Fields of an item that say nothing to a model; ids name items that only the server of the answer has."""
_OWN_TEXTS = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<skills_instructions>",
    "# AGENTS.md instructions",
)
"""How the texts begin that Codex adds by itself. Versions before provenance was recorded are recognised by these."""
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_tool_call_output")


class _Item(Struct, frozen=True):
    """An item of the conversation, or the summary that replaced everything before it."""

    line: int
    body: dict[str, Any]
    time: datetime | None
    model: str
    summary: str | None = None

    @property
    def is_of_the_model(self) -> bool:
        """Whether it is part of an answer."""
        return self.body.get("role") == "assistant" or (
            "role" not in self.body and self.body.get("type") not in _RESULTS and self.summary is None
        )

    @property
    def is_prompt(self) -> bool:
        return self.body.get("role") == "user"


class _Rollout:
    """What one pass over a file finds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = ""
        self.folder = ""
        self.created: datetime | None = None
        self.unreadable: list[Unreadable] = []
        self.items: list[_Item] = []
        self.abandoned: list[list[_Item]] = []
        """The whole items of branches that were left by going back."""
        self.own_context = 0
        self._provider = ""
        self._model = ""

    def read(self) -> None:
        for line, data in read_json_lines(self.path, self.unreadable):
            payload = data.get("payload")
            kind = data.get("type")
            time = parse_time(data.get("timestamp"))
            if not isinstance(payload, dict):
                self.unreadable.append(Unreadable(str(self.path), line, f"a line of type {kind} without a payload"))
            elif kind == "session_meta":
                self._read_meta(payload, time)
            elif kind == "turn_context":
                self._model = str(payload.get("model") or self._model)
            elif kind == "response_item" and not _is_compaction_output(data):
                self._add(line, payload, time)
            elif kind == "compacted":
                self._compact(line, payload, time)
            elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
                self._roll_back(payload.get("num_turns"))

    def _read_meta(self, payload: dict[str, Any], time: datetime | None) -> None:
        if self.id:  # a fork repeats the meta line of its origin
            return
        self.id = str(payload.get("id") or payload.get("session_id") or "")
        self.folder = str(payload.get("cwd") or "")
        self.created = parse_time(payload.get("timestamp")) or time
        self._provider = str(payload.get("model_provider") or "")

    def _add(self, line: int, payload: dict[str, Any], time: datetime | None) -> None:
        if _is_own_context(payload):
            self.own_context += 1
            return
        body = {name: value for name, value in payload.items() if name not in _BOOKKEEPING and value is not None}
        if body.get("type") == "ghost_snapshot":  # a commit that undoes changes of files
            return
        model = f"{self._provider}/{self._model}" if self._provider else self._model
        self.items.append(_Item(line, body, time, model))

    def _compact(self, line: int, payload: dict[str, Any], time: datetime | None) -> None:
        summary = payload.get("message")
        if isinstance(summary, str) and summary:
            self.items.append(_Item(line, {}, time, "", summary))
        else:
            self.unreadable.append(
                Unreadable(str(self.path), line, "a compaction without a readable summary; the earlier items are kept")
            )

    def _roll_back(self, turns: object) -> None:
        prompts = [position for position, item in enumerate(self.items) if item.is_prompt]
        if not isinstance(turns, int) or turns < 1 or not prompts:
            return
        self.abandoned.append(list(self.items))
        del self.items[prompts[max(0, len(prompts) - turns)] :]


def find(home: Path) -> Iterator[SessionFile]:
    """The sessions of every day, and the archived ones."""
    root = folder_of(home, "CODEX_HOME", ".codex")
    for path in (*root.glob("sessions/*/*/*/rollout-*.jsonl"), *root.glob("archived_sessions/rollout-*.jsonl")):
        session_id = folder = title = ""
        for data in read_head_lines(path):
            payload = data.get("payload")
            if not isinstance(payload, dict):
                continue
            if data.get("type") == "session_meta":
                session_id = session_id or str(payload.get("id") or payload.get("session_id") or "")
                folder = folder or str(payload.get("cwd") or "")
            elif data.get("type") == "response_item":
                title = "" if _is_own_context(payload) else _prompt_of(payload)
            if title and session_id:
                break
        if session_id and title:
            yield SessionFile.at(path, "codex", session_id, title, folder)


def read(path: Path) -> ImportedSession:
    """The session in a file; turns that the user went back from are branches. Raises `SessionError`."""
    rollout = _Rollout(path)
    rollout.read()
    if not rollout.id or not (rollout.items or rollout.abandoned):
        raise SessionError(
            f"{path} has no conversation of Codex; its sessions are in ~/.codex/sessions/YEAR/MONTH/DAY/rollout-….jsonl"
        )
    created = rollout.created or changed_time(path)
    branches = branches_in_order(
        (*rollout.abandoned, rollout.items),
        lambda item: str(item.line),
        lambda items, report: _entries(rollout, items, created, report),
        rollout.unreadable,
    )
    prompts = (_prompt_of(item.body) for item in itertools.chain(rollout.items, *rollout.abandoned))
    title = next(filter(None, prompts), "")
    session = SessionFile.at(path, "codex", rollout.id, title, rollout.folder, len(rollout.items))
    return ImportedSession.of(session, created, branches, rollout.unreadable, rollout.own_context)


def _entries(
    rollout: _Rollout, items: Sequence[_Item], created: datetime, unreadable: list[Unreadable]
) -> tuple[Any, ...]:
    builder = HistoryBuilder(str(rollout.path), "openai-responses", unreadable, created)
    answer: list[_Item] = []
    for item in items:
        if item.is_of_the_model:
            answer.append(item)
            continue
        _add_answer(builder, answer)
        answer = []
        if item.summary is not None:
            builder.compact(item.summary, time=item.time)
        else:
            builder.add(item.body, line=item.line, time=item.time)
    _add_answer(builder, answer)
    return builder.entries()


def _add_answer(builder: HistoryBuilder, answer: Sequence[_Item]) -> None:
    if answer:
        builder.add_items([(item.line, item.body) for item in answer], time=answer[0].time, model=answer[0].model)


def _is_own_context(item: dict[str, Any]) -> bool:
    """Whether Codex added an item by itself. That a turn was interrupted is worth keeping."""
    if item.get("type") != "message" or item.get("role") == "assistant":
        return False
    if item.get("role") in ("developer", "system"):
        return True
    text = text_of_content(item.get("content"))
    return text.startswith(_OWN_TEXTS) or (_provenance(item) == {"harness"} and not text.startswith("<turn_aborted>"))


def _is_compaction_output(data: dict[str, Any]) -> bool:
    """Whether a line has the summary as the model wrote it; the `compacted` line has it again."""
    return bool(as_object(data.get("metadata")).get("compaction_output"))


def _provenance(item: dict[str, Any]) -> set[str]:
    noted = as_object(item.get("internal_chat_message_metadata_passthrough"))
    return {
        str(kind["provenance"].get("type"))
        for kind in as_objects(noted.get("content_item_metadata"))
        if isinstance(kind.get("provenance"), dict)
    }


def _prompt_of(item: dict[str, Any]) -> str:
    if item.get("role") != "user":
        return ""
    content = item.get("content")
    blocks = as_objects(content) if isinstance(content, list) else [{"text": content}]
    texts = [str(block.get("text") or "") for block in blocks]
    return " ".join(text for text in texts if text and not text.startswith(("<", "</")))


def write(history: AgentHistory, target: SessionTarget) -> WrittenSession:
    """The history as a session for `codex resume ID`."""
    written = write_messages(history, "openai-responses")
    notes = list(notes_of(written))
    if written.body.get("instructions"):
        notes.append("the system instruction: Codex has its own; left out")
    session_id = new_session_id(target.time)
    meta = {
        "id": session_id,
        "timestamp": target.time_of(0),
        "cwd": str(target.folder),
        "originator": "antiphon",
        "cli_version": _VERSION,
        "source": "cli",
    }
    lines: list[dict[str, Any]] = [{"timestamp": target.time_of(0), "type": "session_meta", "payload": meta}]
    for position, item in enumerate(written.messages, 1):
        time = target.time_of(position)
        if item.get("role") in ("system", "developer") and position == 1:
            notes.append("the system instruction: Codex has its own; left out")
            continue
        lines.append({"timestamp": time, "type": "response_item", "payload": _full_item(item)})
        text = text_of_content(item.get("content"))
        if text and item.get("role") in ("user", "assistant"):  # what the screen and the list of sessions show
            event = {"type": "user_message" if item["role"] == "user" else "agent_message", "message": text}
            lines.append({"timestamp": time, "type": "event_msg", "payload": event})
    stamp = f"{target.time:%Y-%m-%dT%H-%M-%S}"
    root = folder_of(target.home, "CODEX_HOME", ".codex")
    path = root / "sessions" / f"{target.time:%Y/%m/%d}" / f"rollout-{stamp}-{session_id}.jsonl"
    return WrittenSession(
        id=session_id,
        files=(WrittenFile(path, json_lines(lines)),),
        command=f"codex resume {session_id}",
        notes=tuple(notes),
    )


def _full_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item with the type and the list of blocks that the API fills in, and that Codex does not read without."""
    if "role" not in item:
        return item
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {**item, "type": "message", "content": content}


PROGRAM = Program(name="codex", title="Codex", find=find, read=read, write=write)
