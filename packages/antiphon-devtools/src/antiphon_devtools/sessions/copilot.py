"""GitHub Copilot CLI: `~/.copilot/session-state/SESSION/events.jsonl`, one event per line.

An answer is one `assistant.message` with its calls; results follow as `tool.execution_complete`. Media are kept once, as
`session.binary_asset`, and named by their digest. Events with an `agentId` belong to a subagent, which becomes a branch. A rewind
removes events from the file, so there are no other branches. The program's own system prompt is left out: it makes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import SessionError
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
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
from antiphon.wire.request import Message
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
)
from antiphon_devtools.sessions.written import folder_of

_EVENTS = "events.jsonl"
_MESSAGES = ("user.message", "assistant.message")


class _Event(Struct, frozen=True):
    number: int
    kind: str
    agent: str
    data: dict[str, Any]
    time: datetime | None


def find(home: Path) -> Iterator[SessionFile]:
    """The sessions in the program's folder that have a message."""
    for path in folder_of(home, "COPILOT_HOME", ".copilot").glob(f"session-state/*/{_EVENTS}"):
        title = folder = ""
        for line in read_head_lines(path):
            event = _event(0, line)
            if event.kind == "session.start":
                folder = _folder_in(event.data)
            elif event.kind == "user.message" and not event.agent:
                title = str(event.data.get("content") or "")
                break
        if title:
            yield SessionFile.at(path, "copilot", path.parent.name, title, folder)


def read(path: Path) -> ImportedSession:
    """The session in a file of events, the main agent first and a branch for each subagent. Raises `SessionError`."""
    unreadable: list[Unreadable] = []
    events = [_event(number, line) for number, line in read_json_lines(path, unreadable)]
    if not any(event.kind in _MESSAGES for event in events):
        raise SessionError(
            f"{path} has no messages of Copilot CLI; its sessions are in ~/.copilot/session-state/ID/{_EVENTS}"
        )
    start = next((event for event in events if event.kind == "session.start"), None)
    created = next((event.time for event in events if event.time is not None), changed_time(path))
    reader = _Reader(path, events, created, unreadable)
    agents = list(dict.fromkeys(event.agent for event in events if event.kind in _MESSAGES and event.agent))
    branches = [reader.branch(""), *(reader.branch(agent) for agent in agents)]
    started = start.data if start else {}
    session_id = str(started.get("sessionId") or path.parent.name)
    count = sum(event.kind in _MESSAGES for event in events)
    session = SessionFile.at(path, "copilot", session_id, branches[0].title, _folder_in(started), count)
    own_context = sum(event.kind == "system.message" for event in events)
    return ImportedSession.of(session, created, branches, unreadable, own_context)


class _Reader:
    """Reads the events of one file. The format of the messages is that of the reasoning it keeps."""

    def __init__(self, path: Path, events: Sequence[_Event], created: datetime, unreadable: list[Unreadable]) -> None:
        self._path = str(path)
        self._events = events
        self._created = created
        self._unreadable = unreadable
        self._assets = {
            str(event.data.get("assetId")): event.data for event in events if event.kind == "session.binary_asset"
        }
        self._format = "anthropic" if any(_reasoning_blocks(event.data) for event in events) else "openai-chat"

    def branch(self, agent: str) -> Branch:
        """The messages of one agent; the main one has no name."""
        builder = HistoryBuilder(self._path, self._format, self._unreadable, self._created)
        names: dict[str, str] = {}
        title = ""
        for event in self._events:
            if event.agent != agent:
                continue
            if event.kind == "user.message":
                parts = self._question(event, builder)
                title = title or str(event.data.get("content") or "")
                builder.add_message(Message("user", parts), line=event.number, time=event.time)
            elif event.kind == "assistant.message":
                answer = self._answer(event, builder)
                names.update((p.tool_call_id, p.tool_name) for p in answer if isinstance(p, ToolCallRequest))
                model = str(event.data.get("model") or "")
                builder.add_message(Message("assistant", answer), line=event.number, time=event.time, model=model)
            elif event.kind == "tool.execution_complete":
                self._add_result(event, names, builder)
            elif event.kind == "session.compaction_complete" and event.data.get("summaryContent"):
                builder.compact(str(event.data["summaryContent"]), time=event.time)
            elif event.kind == "session.error":
                builder.report(event.number, f"an error that the program showed: {event.data.get('message')}; left out")
        name = f"subagent: {short_title(title)}" if agent else short_title(title)
        return Branch(name=agent, title=name, entries=builder.entries())

    def _question(self, event: _Event, builder: HistoryBuilder) -> tuple[Part, ...]:
        parts: list[Part] = [Text(str(event.data.get("content") or ""))]
        for attachment in as_objects(event.data.get("attachments")):
            part = self._medium(attachment)
            if part is not None:
                parts.append(part)
            else:
                name = attachment.get("displayName") or attachment.get("path") or attachment.get("url") or ""
                kind = attachment.get("type")
                builder.report(event.number, f"attachment {name} of type {kind}: its content is not in the session")
        return tuple(parts)

    def _answer(self, event: _Event, builder: HistoryBuilder) -> tuple[OutputPart, ...]:
        data = event.data
        parts: list[OutputPart] = list(_reasoning(data))
        if data.get("reasoningOpaque") and not _reasoning_blocks(data):
            builder.report(event.number, "encrypted reasoning: only the API that made it can read it; left out")
        if data.get("content"):
            parts.append(Text(str(data["content"])))
        for request in as_objects(data.get("toolRequests")):
            arguments = request.get("arguments")
            is_text = isinstance(arguments, str)
            parts.append(
                ToolCallRequest(
                    str(request.get("name") or ""),
                    str(request.get("toolCallId") or ""),
                    str(arguments) if is_text else msgspec.json.encode(arguments or {}).decode(),
                    freeform=request.get("type") == "custom",
                )
            )
        return tuple(parts)

    def _add_result(self, event: _Event, names: dict[str, str], builder: HistoryBuilder) -> None:
        call_id = str(event.data.get("toolCallId") or "")
        result = event.data.get("result")
        error = event.data.get("error")
        content: list[ResultPart] = []
        if isinstance(result, dict):
            content.append(Text(str(result.get("content") or "")))
            for reference in as_objects(result.get("binaryResultsForLlm")):
                part = self._medium(reference)
                if part is None:
                    builder.report(event.number, f"a {reference.get('mimeType')} of the result is not in the session")
                else:
                    content.append(part)
        elif isinstance(error, dict):
            content.append(Text(str(error.get("message") or "")))
        status = ToolExecutionStatus.SUCCESS if event.data.get("success") else ToolExecutionStatus.FAILED
        answered = ToolCallResult(names.get(call_id, ""), call_id, status, tuple(content))
        builder.add_message(Message("tool", (answered,)), line=event.number, time=event.time)

    def _medium(self, reference: dict[str, Any]) -> Image | Audio | Document | None:
        """The part of an attachment or result that has its data, or names it by its digest."""
        asset = self._assets.get(str(reference.get("assetId")), reference)
        data = asset.get("data")
        if not isinstance(data, str) or not data:
            return None
        media_type = str(asset.get("mimeType") or reference.get("mimeType") or "application/octet-stream")
        return media_part(media_type, data, name=str(reference.get("displayName") or ""))


def _event(number: int, line: dict[str, Any]) -> _Event:
    return _Event(
        number,
        str(line.get("type") or ""),
        str(line.get("agentId") or ""),
        as_object(line.get("data")),
        parse_time(line.get("timestamp")),
    )


def _folder_in(data: dict[str, Any]) -> str:
    return str(as_object(data.get("context")).get("cwd") or "")


def _reasoning_blocks(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The reasoning as Anthropic's API gave it, with signatures; empty for other providers."""
    reasoning = as_object(data.get("reasoningBlocks"))
    is_signed = str(reasoning.get("provider")).startswith("anthropic")
    return as_objects(reasoning.get("blocks")) if is_signed else []


def _reasoning(data: dict[str, Any]) -> Iterable[OutputPart]:
    blocks = _reasoning_blocks(data)
    for block in blocks:
        if block.get("type") == "thinking":
            signature = block.get("signature")
            native = {"anthropic": {"signature": signature}} if signature else None
            yield Thinking(str(block.get("thinking") or ""), native=native)
        else:
            yield Native("anthropic", block)
    if not blocks and data.get("reasoningText"):
        yield Thinking(str(data["reasoningText"]))


PROGRAM = Program(name="copilot", title="GitHub Copilot CLI", find=find, read=read)
