"""A real gateway with an hour of traffic, for the pictures of its status page: three stand-ins for providers, and some clients.

The hour passes in a minute: the clock of the gateway's process is moved by one minute between batches of calls, so everything it
shows is what it measured, but for the time of day.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ADMIN = "sk-antiphon-picture-admin-key"
CLIENTS = {
    "ci": "sk-antiphon-picture-ci",
    "laptop": "sk-antiphon-picture-laptop",
    "phone": "sk-antiphon-picture-phone",
}
MODELS = {"claude-sonnet-5": 8, "gpt-5.5": 6, "gpt-5-mini": 4, "gemini-3.7-flash": 1}
"""The models, and how often each is asked for."""
START = "2026-10-19T10:00:20+00:00"
DAYS, MINUTES = 29, 60
"""The gateway has served for some weeks, and then for one busy hour."""
_CONFIG = """
[gateway]
format_port = 0
[cache_doctor]
enabled = true
[[providers]]
name = "anthropic"
base_url = "{url}"
keys = ["env:ANTHROPIC_API_KEY"]
retries = 1
[[providers]]
name = "openai"
base_url = "{url}/v1"
keys = ["env:OPENAI_API_KEY", "env:OPENAI_API_KEY_2"]
retries = 1
[[providers]]
name = "gemini"
base_url = "{url}"
keys = ["env:GOOGLE_API_KEY"]
retries = 0
[[models]]
name = "claude-sonnet-5"
targets = ["anthropic/claude-sonnet-5", "openai/gpt-5.5"]
[[models]]
name = "gpt-5.5"
targets = ["openai/gpt-5.5"]
[[models]]
name = "gpt-5-mini"
targets = ["openai/gpt-5-mini"]
[[models]]
name = "gemini-3.7-flash"
targets = ["gemini/gemini-3.7-flash"]
[[keys]]
name = "operator"
key = "env:ADMIN_KEY"
admin = true
"""
_CLOCK = """
import sys, threading, time_machine
from datetime import datetime
clock = time_machine.travel(datetime.fromisoformat(sys.argv.pop(1)), tick=True).start()
def follow():
    for line in sys.stdin:
        clock.shift(float(line))
threading.Thread(target=follow, daemon=True).start()
from antiphon.cli import main
sys.exit(main())
"""


class _Upstream(BaseHTTPRequestHandler):
    """Answers as OpenAI, Anthropic and Google do. For a few minutes Anthropic is overloaded; Google fails at the end."""

    protocol_version = "HTTP/1.1"
    minute = -1
    chance = random.Random(5)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        minute, chance = type(self).minute, type(self).chance
        if minute >= 0:
            time.sleep(chance.lognormvariate(-1.1, 0.35) + (0.5 if 26 <= minute <= 30 else 0))
        if "generateContent" in self.path or "GenerateContent" in self.path:
            if minute > 26:
                self._send(502, {"error": {"code": 502, "message": "Bad Gateway", "status": "UNAVAILABLE"}})
            else:
                self._gemini()
        elif self.path.endswith("/messages"):
            if (27 <= minute <= 29 and chance.random() < 0.8) or chance.random() < 0.015:
                self._send(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
            else:
                self._anthropic(body)
        elif self.headers.get("authorization", "").endswith("-2") and minute in (54, 55):
            error = {"message": "Rate limit reached for requests", "type": "requests", "code": "rate_limit_exceeded"}
            self._send(429, {"error": error}, {"retry-after": "1200"})
        else:
            self._openai(body)

    def _anthropic(self, body: dict[str, Any]) -> None:
        cached = 0 if "10:02" in str(body.get("system")) else self.chance.choice((0, 2100, 2100))
        usage = {"input_tokens": 2400 - cached, "cache_read_input_tokens": cached, "output_tokens": 380}
        first = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
        text = {"type": "text", "text": "It is raining in Oslo."}
        if not body.get("stream"):
            whole = {**first, "content": [text], "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
            self._send(200, whole)
            return
        delta = {"type": "text_delta", "text": text["text"]}
        self._stream(
            [
                ("message_start", {"message": {**first, "content": [], "stop_reason": None, "usage": usage}}),
                ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
                ("content_block_delta", {"index": 0, "delta": delta}),
                ("content_block_stop", {"index": 0}),
                ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 380}}),
                ("message_stop", {}),
            ]
        )

    def _openai(self, body: dict[str, Any]) -> None:
        cached = self.chance.choice((0, 512, 1024))
        usage = {"prompt_tokens": 1500, "completion_tokens": 310, "total_tokens": 1810}
        counted = {**usage, "prompt_tokens_details": {"cached_tokens": cached}}
        frame = {"id": "chatcmpl-1", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            message = {"role": "assistant", "content": "It is raining in Oslo."}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            self._send(200, {**frame, "object": "chat.completion", "choices": choices, "usage": counted})
            return
        pieces: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "It is raining "}}]},
            {"choices": [{"index": 0, "delta": {"content": "in Oslo."}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": counted},
        ]
        self._stream([("", {**frame, "object": "chat.completion.chunk", **piece}) for piece in pieces], ends=True)

    def _gemini(self) -> None:
        content = {"role": "model", "parts": [{"text": "It is raining in Oslo."}]}
        usage = {"promptTokenCount": 900, "candidatesTokenCount": 120, "totalTokenCount": 1020}
        answer = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
        if "stream" in self.path:
            self._stream([("", answer)])
        else:
            self._send(200, answer)

    def _stream(self, events: list[tuple[str, dict[str, Any]]], *, ends: bool = False) -> None:
        frames = [
            (f"event: {name}\n" if name else "") + f"data: {json.dumps({'type': name, **data} if name else data)}\n\n"
            for name, data in events
        ]
        frames += ["data: [DONE]\n\n"] if ends else []
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(sum(map(len, frames))))
        self.end_headers()
        for frame in frames:
            self.wfile.write(frame.encode())
            time.sleep(self.chance.uniform(0.02, 0.2) if self.minute >= 0 else 0)

    def _send(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""


@contextmanager
def busy_gateway(folder: Path) -> Iterator[str]:
    """The address of a gateway that has answered an hour of calls."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    keys = "".join(f'[[keys]]\nname = "{name}"\nkey = "env:{_variable(name)}"\n' for name in CLIENTS)
    (folder / "antiphon.toml").write_text(_CONFIG.format(url=f"http://127.0.0.1:{upstream.server_port}") + keys)
    (folder / "clock.py").write_text(_CLOCK)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "ANTHROPIC_API_KEY": "sk-ant-picture-key-7f2a",
        "OPENAI_API_KEY": "sk-proj-picture-key-c01d",
        "OPENAI_API_KEY_2": "sk-proj-picture-key-2",
        "GOOGLE_API_KEY": "AIza-picture-key-9d3e",
        "ADMIN_KEY": ADMIN,
        **{_variable(name): key for name, key in CLIENTS.items()},
    }
    command = [sys.executable, "clock.py", START, "serve", "--config", "antiphon.toml", "--port", "0"]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder
    )
    try:
        assert server.stderr is not None
        found = next(filter(None, (re.search(r"listening on (http://\S+)", line) for line in server.stderr)), None)
        assert found is not None, "the gateway did not start"
        threading.Thread(target=server.stderr.read, daemon=True).start()
        send_hour(found[1], server)
        yield found[1]
    finally:
        server.terminate()
        server.wait()
        upstream.shutdown()


def send_hour(address: str, server: subprocess.Popen[str]) -> None:
    """An hour of calls: most are answered, some are repaired, tried again, answered by another model, or refused."""
    chance = random.Random(17)
    with ThreadPoolExecutor(16) as pool:
        for day in range(DAYS):
            is_weekend = day % 7 in (5, 6)
            list(
                pool.map(
                    lambda _: _call(address, chance),
                    range(chance.randint(3, 8) if is_weekend else chance.randint(15, 40)),
                )
            )
            _pass(server, 86_400 if day < DAYS - 1 else 70_200)
        for minute in range(MINUTES):
            began = time.monotonic()
            _Upstream.minute = minute
            busy = 1.0 + 0.7 * (minute in range(20, 25)) + 0.3 * (minute > 40)
            count = max(2, round(chance.gauss(7.5, 2) * busy))
            list(pool.map(lambda _: _call(address, chance), range(count)))
            if minute == 40:
                send_conversation(address)
            if minute in (33, 57):
                _send(address, "/v1/chat/completions", _question(chance, "gpt-5.5"), "sk-antiphon-of-a-stranger")
            if minute == 47:
                _send(address, "/v1/chat/completions", _question(chance, "gpt-5.5-nano-typo"), CLIENTS["laptop"])
            if minute < MINUTES - 1:
                _pass(server, 60 - (time.monotonic() - began))
    time.sleep(1.5)  # the ledger is written every quarter of a second


def _pass(server: subprocess.Popen[str], seconds: float) -> None:
    """Let time pass for the gateway."""
    assert server.stdin is not None
    server.stdin.write(f"{seconds}\n")
    server.stdin.flush()
    time.sleep(0.05)


def _call(address: str, chance: random.Random) -> None:
    name = chance.choices(list(CLIENTS), (6, 3, 1))[0]
    model = chance.choices(list(MODELS), list(MODELS.values()))[0]
    _send(address, "/v1/chat/completions", _question(chance, model), CLIENTS[name])


def _question(chance: random.Random, model: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Is it raining in Oslo?"}]
    if chance.random() < 0.04:  # the result of a call that was never made: it is repaired
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": "4"})
    return {"model": model, "messages": messages, "stream": chance.random() < 0.7}


def send_conversation(address: str) -> None:
    """Three requests of a client that writes the time into its instructions: the last one misses the prompt cache."""
    rules = "Answer in one sentence, and name the source of every number. " * 180
    questions = ["Is it raining in Oslo?", "Yes, 7 degrees.", "And in Bergen?", "Also.", "Then in Tromso?"]
    for count, time_of_day in ((1, "10:01"), (3, "10:01"), (5, "10:02")):
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(questions[:count])]
        body = {
            "model": "claude-sonnet-5",
            "max_tokens": 500,
            "cache_control": {"type": "ephemeral"},
            "system": f"Current time: 2026-11-16 {time_of_day}\n{rules}",
            "messages": messages,
        }
        _send(address, "/v1/messages", body, CLIENTS["laptop"])


def _send(address: str, path: str, body: dict[str, Any], key: str) -> None:
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), headers)
    try:
        urllib.request.urlopen(request, timeout=30).read()
    except urllib.error.HTTPError as error:
        error.read()


def _variable(name: str) -> str:
    return f"KEY_{name.upper().replace('-', '_')}"
