"""What a scripted model streams to `antiphon chat`, and what the chat stored of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from antiphon.history import AgentHistory, DebugLogEntry, ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.parts import text_of


def streamed(*texts: str, reasoning: str = "") -> bytes:
    """A stream of Chat Completions that says these, one after the other."""
    deltas: list[dict[str, Any]] = [{"reasoning_content": reasoning}] if reasoning else []
    deltas += [{"content": text} for text in texts]
    bodies = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    bodies.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(body) for body in bodies) + b"data: [DONE]\n\n"


def called(tool: str, **arguments: Any) -> bytes:
    """A stream of Chat Completions that calls a tool."""
    function = {"name": tool, "arguments": msgspec.json.encode(arguments).decode()}
    call = {"index": 0, "id": f"call_{arguments}", "type": "function", "function": function}
    choices: list[dict[str, Any]] = [{"delta": {"tool_calls": [call]}}, {"delta": {}, "finish_reason": "tool_calls"}]
    bodies = [{"id": "c", "choices": [{"index": 0, **choice}]} for choice in choices]
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(body) for body in bodies) + b"data: [DONE]\n\n"


def kept(place: Path, note: str = "") -> AgentHistory:
    """The last conversation in the store; with a note, if one is given, by another writer."""
    with SqliteStore(place / "antiphon" / "history.db") as store:
        history = store.open("last")
        if note:
            history.append(DebugLogEntry("test", note))
        return history


def inputs(history: AgentHistory) -> list[str]:
    return [text_of(entry.content) for entry in history.effective if isinstance(entry, ModelInputEntry)]


def outputs(history: AgentHistory) -> list[str]:
    return [entry.response_markdown for entry in history.effective if isinstance(entry, ModelOutputEntry)]
