"""A chat after a week of use: a list of conversations, and one with a plan that waits for its decision."""

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

QUESTION = "Good. What has to be booked before we go?"
_GPT = ap.Origin("openai", "openai-chat", "gpt-5")
_CLAUDE = ap.Origin("anthropic", "anthropic", "claude-sonnet-5")
_THOUGHT = ap.Thinking(
    "They like to walk, and December is wet: two walks a day, one of them under a roof.",
    native={"anthropic": {"signature": "RXhhbXBsZQ=="}},
)
_FOUND = """6 results for "Lisbon walks December":

1. **Walking Belém: tower, monastery and back along the river**
   Source: https://example.org/belem
   Two hours on the flat; the monastery opens at ten.

2. **Sintra by the early train**
   Source: https://example.org/sintra
   The 8:41 from Rossio is the last one without a crowd.

3. **Lisbon in the rain: the Gulbenkian**
   Source: https://example.org/gulbenkian
   A garden, two collections, one ticket.

4. **Alfama without a map**
   Source: https://example.org/alfama
   Up by tram, down on foot.

5. **Fado, and how to hear it without a menu**
   Source: https://example.org/fado
   Tables in Mouraria are gone two weeks before.

6. **What opens on Mondays**
   Source: https://example.org/mondays
   Fewer museums than you think.
"""
_ANSWER = """Two walks a day, nothing before nine:

| Day | Morning | Afternoon |
| --- | --- | --- |
| Wed | Belém: tower, monastery | along the river, one *pastel de nata* |
| Thu | Sintra by the **8:41** train | down through the gardens |
| Fri | Gulbenkian, if it rains | Alfama without a map |
"""
_BOOKINGS = {
    "title": "Bookings for Lisbon",
    "goal": "Everything booked by 30 November",
    "tasks": [
        {"title": "Book the Sintra train", "due": "2026-11-28"},
        {"title": "Tickets for the monastery, Wed 10:00", "due": "2026-11-28"},
        {"title": "Table at a fado house in Mouraria", "due": "2026-11-30"},
    ],
}
_DONE = "Done. The train is the one to book today; the other two can wait until Friday."
_OTHERS = (
    "Tides and the Moon",
    "Retry budget for the importer",
    "Why the nightly build is slow",
    "Letter to the landlord",
    "雅思阅读怎么练",
    "Postgres index on (key, day)",
)


def record(path: Path) -> str:
    """Store the conversations; the id of the one to show."""
    with ap.SqliteStore(path) as store:
        for title in reversed(_OTHERS):
            other = store.create(title=title)
            other.append(ap.ModelInputEntry.of(title))
            other.append(ap.ModelOutputEntry((ap.Text("…"),), origin=_GPT))
        history = store.create(title="A week in Lisbon")
        search = ap.ToolCallRequest("search_web", "call_1", json.dumps({"query": "Lisbon walks December"}))
        history.append(ap.ModelInputEntry.of("Plan a week in Lisbon for two people who like to walk."))
        history.append(ap.ModelOutputEntry((_THOUGHT, search), origin=_CLAUDE, metadata=_measured(1.2, 1_184, 58)))
        history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(search, _FOUND),)))
        time.sleep(1.1)  # as long as the answer took
        history.append(ap.ModelOutputEntry((ap.Text(_ANSWER),), origin=_CLAUDE, metadata=_measured(4.1, 1_720, 214)))
        return str(history.id)


def _measured(seconds: float, prompt: int, completion: int) -> ap.EntryMetadata:
    return ap.EntryMetadata(duration=seconds, usage=ap.TokenUsage(prompt_tokens=prompt, completion_tokens=completion))


def _streamed(choices: list[dict[str, Any]]) -> str:
    """An answer as a stream of Chat Completions."""
    usage = {"prompt_tokens": 2_140, "completion_tokens": 143, "total_tokens": 2_283}
    chunks = [{"id": "c", "choices": [{"index": 0, **choice}]} for choice in choices]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in [*chunks, {"id": "c", "choices": [], "usage": usage}]]
    return "".join(lines) + "data: [DONE]\n\n"


class _Upstream(BaseHTTPRequestHandler):
    """Lists three models; answers with a sentence and the plan."""

    def do_GET(self) -> None:
        listed = [{"id": name, "object": "model"} for name in ("gpt-5", "gpt-5-mini", "gpt-4o")]
        self._send("application/json", json.dumps({"object": "list", "data": listed}))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["messages"][-1]["role"] == "tool":
            self._send(
                "text/event-stream", _streamed([{"delta": {"content": _DONE}}, {"delta": {}, "finish_reason": "stop"}])
            )
            return
        words = (
            "Three things sell out in December: the **8:41 train**, the monastery's morning slot and fado tables. "
            "Shall I keep them as a list?"
        )
        function = {"name": "create_plan", "arguments": json.dumps(_BOOKINGS)}
        call = {"index": 0, "id": "c2", "type": "function", "function": function}
        time.sleep(0.8)
        self._send(
            "text/event-stream",
            _streamed(
                [
                    {"delta": {"content": words}},
                    {"delta": {"tool_calls": [call]}},
                    {"delta": {}, "finish_reason": "tool_calls"},
                ]
            ),
        )

    def _send(self, kind: str, body: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - as in the base class
        pass


@contextmanager
def lisbon_chat(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The chat as a process, and the id of the conversation to show."""
    conversation = record(folder / "chats.db")
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "OPENAI_API_KEY": "sk-picture",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{upstream.server_port}/v1",
        "ANTIPHON_MODEL": "openai/gpt-5",
    }
    command = [
        sys.executable,
        "-m",
        "antiphon",
        "chat",
        "--web",
        "--ask",
        "--port",
        "0",
        "--store",
        str(folder / "chats.db"),
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield server, conversation
    finally:
        server.terminate()
        server.wait()
        upstream.shutdown()
