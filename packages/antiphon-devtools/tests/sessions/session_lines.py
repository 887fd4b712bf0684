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

    def __init__(self, session: str = "7aea03f5-fd36-4f4a-9eb4-aa1a647ca835", folder: str = "/home/ann/lamp") -> None:
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


class CodexLines:
    """Lines of Codex: a head, and items of the Responses API."""

    def __init__(self, session: str = "01a1e505-6f9d-7c63-9bbf-49ca67d9d1ac", folder: str = "/home/ann/lamp") -> None:
        self.lines: list[dict[str, Any] | str] = []
        self._session = session
        meta = {"id": session, "timestamp": "2026-11-16T15:41:00.175Z", "cwd": folder, "model_provider": "openai"}
        self.add("session_meta", meta)
        self.add("turn_context", {"model": "gpt-5.5", "cwd": folder})

    def add(self, kind: str, payload: Mapping[str, Any], **fields: Any) -> None:
        time = f"2026-11-16T15:41:{len(self.lines):02}.241Z"
        self.lines.append({"timestamp": time, "ordinal": len(self.lines), "type": kind, "payload": payload, **fields})

    def item(self, kind: str, **fields: Any) -> None:
        noted = {"turn_id": "01a1e505-6fec-7b71-a62a-698ed61ec355"}
        self.add(
            "response_item", {"type": kind, "id": "x_1", **fields, "internal_chat_message_metadata_passthrough": noted}
        )

    def prompt(self, words: str, role: str = "user") -> None:
        self.item("message", role=role, content=[{"type": "input_text", "text": words}])

    def answer(self, words: str) -> None:
        content = [{"type": "output_text", "text": words, "annotations": [], "logprobs": []}]
        self.item("message", status="completed", role="assistant", content=content)

    def write(self, home: Path) -> Path:
        folder = home / ".codex" / "sessions" / "2026" / "11" / "16"
        return write_lines(folder / f"rollout-2026-11-16T15-41-00-{self._session}.jsonl", self.lines)


def codex_session() -> CodexLines:
    """What Codex adds by itself, a prompt with an image, an answer with reasoning and two calls, their results, an answer."""
    lines = CodexLines()
    lines.prompt("<permissions instructions>…", role="developer")
    lines.prompt("<environment_context>…</environment_context>")
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    lines.item("message", role="user", content=[{"type": "input_text", "text": "Read note.txt 绿灯"}, image])
    summary = [{"type": "summary_text", "text": "The note first."}]
    lines.item("reasoning", summary=summary, content=None, encrypted_content="ZW5jcnlwdGVk")
    lines.answer("I read it.")
    lines.item(
        "function_call", status="completed", name="exec_command", arguments='{"cmd": "cat note.txt"}', call_id="call_1"
    )
    lines.item("custom_tool_call", status="completed", name="apply_patch", input="*** Begin Patch", call_id="call_2")
    lines.item("custom_tool_call_output", call_id="call_2", output="Done")
    lines.item("function_call_output", call_id="call_1", output="the lamp is green")
    lines.add("event_msg", {"type": "token_count", "info": None})
    lines.answer("It is green.")
    return lines


class GeminiLines:
    """Lines of Gemini CLI: a head, messages, and changes of them."""

    def __init__(self, session: str = "a04fbf00-7a92-4da5-a251-970522037d47", folder: str = "/home/ann/lamp") -> None:
        self._session = session
        self._folder = folder
        head = {"sessionId": session, "projectHash": "48f7", "startTime": "2026-11-16T15:41:00.800Z", "kind": "main"}
        self.lines: list[dict[str, Any] | str] = [head]

    def add(self, kind: str, message_id: str, content: Any, **fields: Any) -> None:
        time = f"2026-11-16T15:41:{len(self.lines):02}.810Z"
        self.lines.append({"id": message_id, "timestamp": time, "type": kind, "content": content, **fields})
        self.lines.append({"$set": {"lastUpdated": time}})

    def prompt(self, message_id: str, words: str) -> None:
        self.add("user", message_id, [{"text": words}])

    def answer(self, message_id: str, words: str, **fields: Any) -> None:
        self.add("gemini", message_id, words, model="gemini-2.5-pro", **fields)

    def write(self, home: Path) -> Path:
        project = home / ".gemini" / "tmp" / "lamp"
        path = write_lines(project / "chats" / f"session-2026-11-16T15-41-{self._session[:8]}.jsonl", self.lines)
        (project / ".project_root").write_text(self._folder)
        return path


def gemini_session() -> GeminiLines:
    """The context, a prompt, an answer that is written twice (with its results the second time), and the last answer."""
    lines = GeminiLines()
    context = {"id": "u0", "timestamp": "2026-11-16T15:41:01.000Z", "type": "user"}
    lines.lines.append({"$set": {"messages": [{**context, "content": [{"text": "<session_context>\n…"}]}]}})
    lines.prompt("u1", "Read note.txt 绿灯")
    thoughts = [{"subject": "Reading", "description": "The note first."}]
    lines.answer("g1", "I read it.", thoughts=thoughts)
    response = {"functionResponse": {"id": "read_1", "name": "read_file", "response": {"output": "the lamp is green"}}}
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    failed = {"functionResponse": {"id": "read_2", "name": "read_file", "response": {"error": "no such file"}}}
    calls = [
        {
            "id": "read_1",
            "name": "read_file",
            "args": {"file_path": "note.txt"},
            "result": [response, image],
            "status": "success",
        },
        {"id": "read_2", "name": "read_file", "args": {"file_path": "gone"}, "result": [failed], "status": "error"},
    ]
    lines.answer("g1", "I read it.", thoughts=thoughts, toolCalls=calls)
    lines.add("user", "u2", [response, image, failed])
    lines.answer("g2", "It is green.", thoughts=[])
    return lines
