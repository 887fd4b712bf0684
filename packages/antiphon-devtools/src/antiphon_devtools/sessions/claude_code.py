"""Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`, one line per block of a message, in the words of the Anthropic API.

Lines form a tree by `parentUuid`: a prompt that was changed starts a branch, and each result hangs on the call it answers, so
the results of parallel calls lie beside the path from the last line to the first. Lines with one `message.id` are one answer. A
compaction starts a new tree whose `logicalParentUuid` names the line before it. Lines with `isSidechain` belong to subagents,
which have files of their own in `SESSION/subagents/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from antiphon.conversation.interchange import write_messages
from antiphon.errors import SessionError
from antiphon.history.agent_history import AgentHistory
from antiphon.parts import InputPart, Text, media_part
from antiphon.wire.request import Message
from antiphon.wire.rules import name_set
from antiphon_devtools.sessions.imported import Branch, HistoryBuilder, ImportedSession
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
    short_title,
    text_of_content,
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
    slug_of,
)

_VERSION = "2.1.0"
"""What written lines give as the version of the program: the first with these fields."""
_OWN_CONTEXT = name_set(
    "environment model session_context date prompt_snapshot remote_session_change output_style deferred_tools_delta "
    "agent_listing_delta skill_listing mcp_instructions_delta todo_reminder task_reminder nested_memory hook_success "
    "hook_additional_context diagnostics total_tokens_reminder"
)
"""Attachments that the program makes by itself in each session. It makes them again; no other program needs them."""


class _Line(Struct, frozen=True):
    """A line that is part of the tree."""

    number: int
    id: str
    parent: str | None
    kind: str
    data: dict[str, Any]

    @property
    def message(self) -> dict[str, Any]:
        return as_object(self.data.get("message"))

    @property
    def blocks(self) -> list[dict[str, Any]]:
        return as_objects(self.message.get("content"))

    @property
    def answered(self) -> list[str]:
        """The calls that the line has results of."""
        return [str(block.get("tool_use_id")) for block in self.blocks if block.get("type") == "tool_result"]

    @property
    def calls(self) -> list[str]:
        return [str(block.get("id")) for block in self.blocks if block.get("type") == "tool_use"]

    @property
    def answer_id(self) -> str:
        """What the lines of one answer have in common; empty if the line is not of an answer."""
        found = self.message.get("id")
        return found if self.kind == "assistant" and isinstance(found, str) else ""

    @property
    def is_message(self) -> bool:
        return self.kind in ("user", "assistant") and not self.data.get("isApiErrorMessage") and not self.is_synthetic

    @property
    def is_synthetic(self) -> bool:
        """Whether the program wrote an answer by itself, to fill a turn that has none."""
        return self.message.get("model") == "<synthetic>"

    @property
    def attachment(self) -> dict[str, Any]:
        return as_object(self.data.get("attachment")) if self.kind == "attachment" else {}

    @property
    def is_own_context(self) -> bool:
        return str(self.attachment.get("type")) in _OWN_CONTEXT or (
            self.is_synthetic and not self.data.get("isApiErrorMessage")
        )

    @property
    def is_content(self) -> bool:
        """Whether it is part of the conversation: a message, or what the user attached to one."""
        return self.is_message or (bool(self.attachment) and not self.is_own_context)

    @property
    def is_summary(self) -> bool:
        return bool(self.data.get("isCompactSummary"))

    @property
    def time(self) -> datetime | None:
        return parse_time(self.data.get("timestamp"))


def find(home: Path) -> Iterator[SessionFile]:
    """The sessions of every project."""
    for path in folder_of(home, "CLAUDE_CONFIG_DIR", ".claude").glob("projects/*/*.jsonl"):
        title = folder = ""
        for data in read_head_lines(path):
            folder = folder or str(data.get("cwd") or "")
            title = title or _prompt_of(data)
            if title and folder:
                break
        if title:  # a file without a prompt cannot be resumed
            yield SessionFile.at(path, "claude-code", path.stem, title, folder)


def read(path: Path) -> ImportedSession:
    """The session in a file, a history per branch. Raises `SessionError`."""
    unreadable: list[Unreadable] = []
    lines, title, session_id, folder = _read_lines(path, unreadable)
    if not any(line.is_message for line in lines.values()):
        raise SessionError(
            f"{path} has no messages of Claude Code; its sessions are in ~/.claude/projects/FOLDER/ID.jsonl"
        )
    created = next((line.time for line in lines.values() if line.time is not None), changed_time(path))
    branches = list(_branches(path, lines, title, created, unreadable))
    for file in sorted(path.with_suffix("").glob("subagents/agent-*.jsonl")):
        of_subagent = _read_lines(file, unreadable)[0]
        branches += _branches(file, of_subagent, title, created, unreadable)
        lines |= of_subagent
    branches[0] = structs.replace(branches[0], name="")
    count = sum(line.is_message for line in lines.values())
    session = SessionFile.at(path, "claude-code", session_id or path.stem, branches[0].title, folder, count)
    own_context = sum(line.is_own_context for line in lines.values())
    return ImportedSession.of(session, created, branches, unreadable, own_context)


def _branches(
    path: Path, lines: dict[str, _Line], title: str, created: datetime, unreadable: list[Unreadable]
) -> Iterator[Branch]:
    """The branches in a file, each named by its first line that no branch before it has."""
    seen: set[str] = set()
    for chain in _paths(lines):
        report: list[Unreadable] = []
        builder = HistoryBuilder(str(path), "anthropic", report, created)
        for group in _groups(chain):
            _add(builder, group)
        first = next((_prompt_of(line.data) for line in chain if _prompt_of(line.data)), "")
        is_subagent = bool(chain[0].data.get("isSidechain"))
        yield Branch(
            name=next(line.id for line in chain if line.is_content and line.id not in seen),
            title=f"subagent: {short_title(first)}" if is_subagent else title or short_title(first),
            entries=builder.entries(),
        )
        seen.update(line.id for line in chain)
        unreadable += [one for one in report if one not in unreadable]  # what branches share is reported once


def _read_lines(path: Path, unreadable: list[Unreadable]) -> tuple[dict[str, _Line], str, str, str]:
    """The lines of the tree by id; the title, the session's id and its folder."""
    lines: dict[str, _Line] = {}
    title = session_id = folder = ""
    for number, data in read_json_lines(path, unreadable):
        kind = str(data.get("type") or "")
        if kind in ("summary", "custom-title", "ai-title"):
            title = str(data.get("summary") or data.get("customTitle") or data.get("aiTitle") or title)
        if not isinstance(data.get("uuid"), str):
            if kind in ("user", "assistant"):
                unreadable.append(Unreadable(str(path), number, f"a line of type {kind} without a uuid"))
            continue
        if kind in ("user", "assistant") and not isinstance(data.get("message"), dict):
            unreadable.append(Unreadable(str(path), number, f"a line of type {kind} without a message"))
            continue
        if data.get("isApiErrorMessage"):
            unreadable.append(Unreadable(str(path), number, "an error of the API that the program showed; left out"))
        parent = data.get("parentUuid") or data.get("logicalParentUuid")
        line = _Line(number, data["uuid"], parent if isinstance(parent, str) else None, kind, data)
        lines[line.id] = line
        session_id = session_id or str(data.get("sessionId") or "")
        folder = folder or str(data.get("cwd") or "")
    return lines, short_title(title), session_id, folder


def _paths(lines: dict[str, _Line]) -> list[list[_Line]]:
    """The path to each end of the tree, older branches first; what lies beside a path is put into it.

    The order, and with it the name of a branch, stays the same when the file grows.
    """
    results = {call: line for line in lines.values() for call in line.answered}
    answers = {(line.parent, line.answer_id): line for line in lines.values() if line.answer_id}
    paths: list[tuple[_Line, list[int], list[_Line]]] = []
    seen: set[str] = set()
    for end in reversed(_ends(lines)):
        if end.id in seen:  # the result of a parallel call, which a path has taken in
            continue
        path = _chain(lines, end)
        whole = _with_parallel_lines(path, answers, results)
        known = {line.id for line in whole}
        paths = [other for other in paths if other[0].id not in known]
        paths.append((end, [line.number for line in path], whole))
        seen |= known
    # Subagents come last: the first branch is the conversation with the user.
    paths.sort(key=lambda path: (bool(path[2][0].data.get("isSidechain")), path[1]))
    return [whole for _, _, whole in paths]


def _ends(lines: dict[str, _Line]) -> list[_Line]:
    """The lines of the conversation after which none of it comes, in their order."""
    content = [line for line in lines.values() if line.is_content]
    followed: set[str] = set()
    for line in content:
        parent = line.parent
        while parent is not None and parent in lines and parent not in followed:
            followed.add(parent)
            parent = lines[parent].parent
    return [line for line in content if line.id not in followed] or content[-1:]


def _chain(lines: dict[str, _Line], end: _Line) -> list[_Line]:
    chain: list[_Line] = []
    known: set[str] = set()
    line: _Line | None = end
    while line is not None and line.id not in known:  # a damaged file may go round in circles
        chain.append(line)
        known.add(line.id)
        line = lines.get(line.parent) if line.parent is not None else None
    return chain[::-1]


def _with_parallel_lines(
    chain: Sequence[_Line], answers: dict[tuple[str | None, str], _Line], results: dict[str, _Line]
) -> list[_Line]:
    """The path with the calls and results that hang beside it.

    Each parallel call is a line, and each result hangs on the line of its call. The conversation continues from the result that
    came last, which may be that of the first call.
    """
    there = {line.id for line in chain}
    whole: list[_Line] = []
    added: set[str] = set()
    calls: list[str] = []
    for line, following in zip(chain, (*chain[1:], None), strict=True):
        if line.id in added:
            continue
        parts = [line] if _is_same_answer(line, following) else [line, *_rest_of_answer(line, answers)]
        whole += parts
        added.update(part.id for part in parts)
        calls += (call for part in parts for call in part.calls)
        if _is_same_answer(line, following):
            continue
        for result in (results[call] for call in calls if call in results):
            if result.id not in added and (result.id not in there or result is following):
                whole.append(result)
                added.add(result.id)
        calls = []
    return whole


def _rest_of_answer(line: _Line, answers: dict[tuple[str | None, str], _Line]) -> Iterator[_Line]:
    """The lines of the same answer after this one."""
    known = {line.id}
    while (following := answers.get((line.id, line.answer_id))) is not None and following.id not in known:
        yield following
        known.add(following.id)
        line = following


def _is_same_answer(line: _Line, other: _Line | None) -> bool:
    return other is not None and line.answer_id != "" and line.answer_id == other.answer_id


def _groups(chain: Iterable[_Line]) -> Iterator[list[_Line]]:
    """The lines of the path, those of one answer together."""
    group: list[_Line] = []
    for line in chain:
        if group and _is_same_answer(group[-1], line):
            group.append(line)
            continue
        if group:
            yield group
        group = [line]
    if group:
        yield group


def _add(builder: HistoryBuilder, group: list[_Line]) -> None:
    first = group[0]
    if first.kind == "attachment":
        _add_attachment(builder, first)
    elif first.is_summary:
        builder.compact(text_of_content(first.message.get("content")), time=first.time)
    elif first.is_message:
        content = first.message.get("content")
        if len(group) > 1:
            content = [block for line in group for block in line.blocks]
        body = {"role": first.kind, "content": _plain(content)}
        model = str(first.message.get("model") or "")
        model = f"anthropic/{model}" if model.startswith("claude-") else model  # others may come from any host
        builder.add(body, line=first.number, time=first.time, model=model)


def _plain(content: Any) -> Any:
    """Content as the API takes it back: answers have fields that requests do not."""
    if not isinstance(content, list):
        return content
    return [
        {name: value for name, value in block.items() if value is not None and name != "caller"}
        if isinstance(block, dict)
        else block
        for block in content
    ]


def _add_attachment(builder: HistoryBuilder, line: _Line) -> None:
    """What the user attached to a prompt, as a message of theirs."""
    attachment = line.attachment
    kind = attachment.get("type")
    if line.is_own_context:
        return
    file = as_object(as_object(attachment.get("content")).get("file"))
    part: InputPart | None = None
    if isinstance(file.get("base64"), str):
        media_type = str(file.get("type") or "application/pdf")  # only images have a type
        part = media_part(media_type, file["base64"], name=Path(str(attachment.get("filename") or "")).name)
    elif isinstance(file.get("content"), str):
        part = Text(f"Contents of {file.get('filePath') or attachment.get('filename')}:\n{file['content']}")
    elif kind == "queued_command" and isinstance(attachment.get("prompt"), str):
        part = Text(attachment["prompt"])
    else:
        texts = [text_of_content(one.get("content")) for one in as_objects(line.data.get("rendered"))]
        if any(texts):
            part = Text("\n".join(texts))
    if part is None:
        builder.report(line.number, f"an attachment of type {kind} without content; left out")
        return
    builder.add_message(Message("user", (part,)), line=line.number, time=line.time)


def _prompt_of(data: dict[str, Any]) -> str:
    """The prompt of a user's line; empty for others, and for what the program wrote itself."""
    message = data.get("message")
    if data.get("type") != "user" or data.get("isMeta") or not isinstance(message, dict):
        return ""
    text = text_of_content(message.get("content"))
    return "" if text.startswith("<") else text


def write(history: AgentHistory, target: SessionTarget) -> WrittenSession:
    """The history as a session for `claude --resume ID` in the folder."""
    written = write_messages(history, "anthropic")
    notes = list(notes_of(written))
    if written.body.get("system"):
        notes.append(
            "the system instruction: Claude Code has its own, and a session file has no place for one; left out"
        )
    session_id = new_session_id()
    model = model_of(history)
    shared = {
        "isSidechain": False,
        "userType": "external",
        "cwd": str(target.folder),
        "sessionId": session_id,
        "version": _VERSION,
        "gitBranch": "",
    }
    lines: list[dict[str, Any]] = []
    parent: str | None = None
    for position, message in enumerate(written.messages):
        line_id = new_session_id()
        body = {"role": message["role"], "content": message["content"]}
        if message["role"] == "assistant":
            body = {
                "id": f"msg_{session_id[:8]}_{position}",
                "type": "message",
                "model": model or "unknown",
                **body,
                "stop_reason": "tool_use" if _has_call(message["content"]) else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            }
        line = {
            "parentUuid": parent,
            **shared,
            "type": message["role"],
            "message": body,
            "uuid": line_id,
            "timestamp": target.time_of(position),
        }
        lines.append(line)
        parent = line_id
    if target.title:
        lines.append({"type": "custom-title", "customTitle": target.title, "sessionId": session_id})
    folder = folder_of(target.home, "CLAUDE_CONFIG_DIR", ".claude") / "projects" / slug_of(target.folder)
    return WrittenSession(
        id=session_id,
        files=(WrittenFile(folder / f"{session_id}.jsonl", json_lines(lines)),),
        command=f"claude --resume {session_id}",
        notes=tuple(notes),
    )


def _has_call(content: Any) -> bool:
    return isinstance(content, list) and any(block.get("type") == "tool_use" for block in content)


PROGRAM = Program(name="claude-code", title="Claude Code", find=find, read=read, write=write)
