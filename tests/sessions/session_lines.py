"""Small session files by hand, in the shape the real programs write: one prompt, a call with its result, an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""An image of one pixel."""


def write_lines(path: Path, lines: Iterable[Mapping[str, Any] | str]) -> Path:
    """Write JSON Lines; a string is written as it is, to stand for a damaged line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


class ClaudeLines:
    """Lines of Claude Code, each hanging on the one before it unless a parent is given."""

    def __init__(self, session: str = "7aea03f5-fd36-4f4a-9eb4-aa1a647ca835", folder: str = "/work/lamp") -> None:
        self.lines: list[dict[str, Any] | str] = []
        self._session = session
        self._folder = folder
        self._last: str | None = None
        self._count = 0

    def add(self, kind: str, *, parent: str | None = "", **fields: Any) -> str:
        self._count += 1
        line_id = f"00000000-0000-4000-8000-{self._count:012}"
        line = {
            "parentUuid": self._last if parent == "" else parent,
            "isSidechain": False,
            "type": kind,
            "uuid": line_id,
            "timestamp": f"2026-11-16T15:41:{self._count:02}.787Z",
            "cwd": self._folder,
            "sessionId": self._session,
            "version": "2.1.325",
            **fields,
        }
        self.lines.append(line)
        self._last = line_id
        return line_id

    def prompt(self, text: Any, **fields: Any) -> str:
        return self.add("user", message={"role": "user", "content": text}, **fields)

    def answer(self, block: Mapping[str, Any], message_id: str = "msg_1", **fields: Any) -> str:
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-8",
            "content": [block],
        }
        return self.add("assistant", message=message, **fields)

    def result(self, call: str, content: Any, **fields: Any) -> str:
        block = {"tool_use_id": call, "type": "tool_result", "content": content}
        return self.prompt([block], **fields)

    def write(self, home: Path) -> Path:
        folder = self._folder.replace("/", "-")
        return write_lines(home / ".claude" / "projects" / folder / f"{self._session}.jsonl", self.lines)


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "c2lnbmF0dXJl"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "citations": None}


def call(call_id: str, path: str) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call_id,
        "name": "Read",
        "input": {"file_path": path},
        "caller": {"type": "direct"},
    }


def claude_session() -> ClaudeLines:
    """A prompt, two parallel calls of one answer with their results, and the answer."""
    lines = ClaudeLines()
    lines.prompt("Read note.txt 绿灯")
    lines.add("attachment", attachment={"type": "environment", "snapshot": {}}, rendered=[{"content": "# Environment"}])
    lines.answer(thinking("The note first."))
    lines.answer(text("I read it."))
    first = lines.answer(call("call_1", "note.txt"))
    second = lines.answer(call("call_2", "lamp.png"))
    lines.result("call_1", "the lamp is green", parent=first)
    lines.result(
        "call_2",
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}],
        parent=second,
    )
    lines.answer(text("It is green."), "msg_2")
    return lines
