"""A chat with a recorded conversation and a stand-in for a second provider, for the picture of a replay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import antiphon as ap

MODEL = "openai/gpt-4o"
_CLAUDE = ap.Origin("anthropic", "anthropic", "claude-sonnet-4-5")
_SECONDS = 0.6


def record(path: Path) -> str:
    """Store a conversation of two turns with tool calls; its id."""
    with ap.SqliteStore(path) as store:
        history = store.create(title="Umbrella for Oslo")
        _turn(
            history,
            "Do I need an umbrella in Oslo today?",
            "Oslo",
            "Rain, 7 °C",
            "Yes: it rains all day, at 7 °C.",
            1.31,
        )
        _turn(history, "And in Bergen?", "Bergen", "Sun, 11 °C", "No. Bergen is sunny for once, at 11 °C.", 1.12)
        return str(history.id)


def _turn(history: ap.AgentHistory, question: str, city: str, weather: str, answer: str, seconds: float) -> None:
    asked = ap.ToolCallRequest("weather", f"call_{city}", json.dumps({"city": city}))
    history.append(ap.ModelInputEntry.of(question))
    history.append(ap.ModelOutputEntry((asked,), origin=_CLAUDE, metadata=_measured(seconds, 612, 54)))
    history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(asked, weather),)))
    history.append(ap.ModelOutputEntry((ap.Text(answer),), origin=_CLAUDE, metadata=_measured(seconds + 0.4, 691, 31)))


def _measured(seconds: float, prompt: int, completion: int) -> ap.EntryMetadata:
    return ap.EntryMetadata(duration=seconds, usage=ap.TokenUsage(prompt_tokens=prompt, completion_tokens=completion))


class _Upstream(BaseHTTPRequestHandler):
    """Answers as OpenAI does: a call for a question, an answer for a result."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(_SECONDS)
        last = body["messages"][-1]
        city = "Oslo" if "Oslo" in str(body["messages"][-2:]) else "Bergen"
        advice = "Take one." if city == "Oslo" else "Leave it at home."
        delta: dict[str, Any] = {"content": f"{city}: {last['content']}. {advice}"}
        if last["role"] == "user":
            city = "Oslo" if "Oslo" in str(last) else "Bergen"
            function = {"name": "weather", "arguments": json.dumps({"city": city})}
            delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
        usage = {"prompt_tokens": 488, "completion_tokens": 27, "total_tokens": 515}
        chunks = [
            {"id": "c", "choices": [{"index": 0, "delta": delta}]},
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"id": "c", "choices": [], "usage": usage},
        ]
        data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - as in the base class
        pass


@contextmanager
def replay_chat(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The chat as a process, and the id of the recorded conversation."""
    conversation = record(folder / "chats.db")
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "OPENAI_API_KEY": "sk-picture",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{upstream.server_port}/v1",
    }
    command = [sys.executable, "-m", "antiphon", "chat", "--web", "--port", "0", "--store", str(folder / "chats.db")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield server, conversation
    finally:
        server.terminate()
        server.wait()
        upstream.shutdown()
