"""A real gateway with scripted traffic, for the pictures of its status page: two stand-ins for providers, and some clients."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ADMIN = "sk-antiphon-picture-admin-key"
CLIENTS = {
    "laptop": "sk-antiphon-picture-laptop",
    "nightly-tests": "sk-antiphon-picture-tests",
    "web-shop": "sk-antiphon-picture-shop",
}
MODELS = ("gpt-4o", "claude-sonnet-4-5", "house-model")
_CONFIG = """
[gateway]
format_port = 0
[cache_doctor]
enabled = true
[[providers]]
name = "openai"
base_url = "{url}/v1"
keys = ["env:OPENAI_API_KEY", "env:OPENAI_API_KEY_2"]
retries = 0
[[providers]]
name = "anthropic"
base_url = "{url}"
keys = ["env:ANTHROPIC_API_KEY"]
retries = 0
[[models]]
name = "gpt-4o"
targets = ["openai/gpt-4o"]
[[models]]
name = "claude-sonnet-4-5"
targets = ["anthropic/claude-sonnet-4-5", "openai/gpt-4o"]
[[models]]
name = "house-model"
targets = ["openai/house-model"]
[[keys]]
name = "operator"
key = "env:ADMIN_KEY"
admin = true
"""


class _Upstream(BaseHTTPRequestHandler):
    """Answers as OpenAI and Anthropic do; every seventh request to Anthropic finds it overloaded."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).count += 1
        is_anthropic = self.path.endswith("/messages")
        time.sleep(0.02 + (self.count % 7) * 0.012)
        if is_anthropic and self.count % 7 == 3:
            self._send(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
        elif self.headers.get("authorization", "").endswith("-2"):
            self._send(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})
        elif is_anthropic:
            cached = 0 if "10:02" in str(body.get("system")) else 2100
            usage = {"input_tokens": 2400 - cached, "cache_read_input_tokens": cached, "output_tokens": 180}
            content = [{"type": "text", "text": "Hello."}]
            self._send(
                200,
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": body["model"],
                    "content": content,
                    "stop_reason": "end_turn",
                    "usage": usage,
                },
            )
        else:
            usage = {"prompt_tokens": 1200, "completion_tokens": 240, "total_tokens": 1440}
            usage_details = {"prompt_tokens_details": {"cached_tokens": 512}}
            if body.get("stream"):
                self._stream(body["model"], {**usage, **usage_details})
                return
            choice = {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
            self._send(
                200,
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [choice],
                    "usage": {**usage, **usage_details},
                },
            )

    def _stream(self, model: str, usage: dict[str, Any]) -> None:
        frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model}
        choices = [{"delta": {"role": "assistant", "content": "Hello."}}, {"delta": {}, "finish_reason": "stop"}]
        chunks: list[dict[str, Any]] = [{**frame, "choices": [{"index": 0, **choice}]} for choice in choices]
        chunks.append({**frame, "choices": [], "usage": usage})
        data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        for piece in data.splitlines(keepends=True):
            self.wfile.write(piece.encode())
            time.sleep(0.004)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""


@contextmanager
def busy_gateway(folder: Path) -> Iterator[str]:
    """The address of a gateway that has answered some requests."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    keys = "".join(f'[[keys]]\nname = "{name}"\nkey = "env:{_variable(name)}"\n' for name in CLIENTS)
    (folder / "antiphon.toml").write_text(_CONFIG.format(url=f"http://127.0.0.1:{upstream.server_port}") + keys)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "OPENAI_API_KEY": "sk-picture-1",
        "OPENAI_API_KEY_2": "sk-picture-2",
        "ANTHROPIC_API_KEY": "sk-ant-picture",
        "ADMIN_KEY": ADMIN,
        **{_variable(name): key for name, key in CLIENTS.items()},
    }
    command = [sys.executable, "-m", "antiphon", "serve", "--config", "antiphon.toml", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder)
    try:
        assert server.stderr is not None
        found = next(filter(None, (re.search(r"listening on (http://\S+)", line) for line in server.stderr)))
        threading.Thread(target=server.stderr.read, daemon=True).start()
        send_traffic(found[1])
        yield found[1]
    finally:
        server.terminate()
        server.wait()
        upstream.shutdown()


def send_traffic(address: str) -> None:
    """Some requests of each client: most are answered, some are repaired, fall back, or are refused."""
    hello = {"role": "user", "content": "Hello"}
    orphan = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
    for number in range(60):
        name = list(CLIENTS)[number % len(CLIENTS)]
        model = "gpt-5-nano-typo" if number == 31 else MODELS[number % 7 % len(MODELS)]
        messages = [hello, orphan] if number % 9 == 4 else [hello]
        streams = model == "gpt-4o" and number % 2 == 0
        body = json.dumps({"model": model, "messages": messages, "stream": streams}).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {CLIENTS[name]}"}
        request = urllib.request.Request(f"{address}/v1/chat/completions", body, headers)
        try:
            urllib.request.urlopen(request, timeout=30).read()
        except urllib.error.HTTPError as error:
            error.read()
    send_conversation(address)
    time.sleep(1.5)  # the ledger is written every quarter of a second


def send_conversation(address: str) -> None:
    """Three requests of a client that writes the time into its instructions: the last one misses the prompt cache."""
    rules = "Answer in one sentence, and name the source of every number. " * 180
    questions = ["Is it raining in Oslo?", "Yes, 7 degrees.", "And in Bergen?", "Also.", "Then in Tromso?"]
    headers = {"content-type": "application/json", "x-api-key": CLIENTS["laptop"]}
    for count, time_of_day in ((1, "10:01"), (3, "10:01"), (5, "10:02")):
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(questions[:count])]
        body = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 500,
            "cache_control": {"type": "ephemeral"},
            "system": f"Current time: 2026-11-16 {time_of_day}\n{rules}",
            "messages": messages,
        }
        request = urllib.request.Request(f"{address}/v1/messages", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request, timeout=30).read()


def _variable(name: str) -> str:
    return f"KEY_{name.upper().replace('-', '_')}"
