"""What users and their programs see of Antiphon, recorded so that a redesign can be compared with what was before.

    python tools/surface.py record before.json --antiphon .venv/bin/antiphon
    python tools/surface.py compare before.json after.json

Recorded are the responses of every route of the gateway (without a key, with a wrong one, a client's and the operator's; a
good, a wrong and no body), the names of the metrics, the help of every command and the JSON Schema of the configuration.
Ids, times and figures are replaced, so that two runs of one version are equal. It imports nothing of Antiphon.
"""

from __future__ import annotations

import argparse
import difflib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OPERATOR, CLIENT = "operator-key-0123456789", "client-key-0123456789"
_TOOL = {"name": "weather", "description": "Weather of a city.", "parameters": {"type": "object", "properties": {}}}
_CHAT_TOOLS = [{"type": "function", "function": _TOOL}]
_HELLO = [{"role": "user", "content": "hello"}]
_FIGURES = re.compile(r"(?<![A-Za-z])\d+(?:\.\d+)?(?:e-?\d+)?")
_DIGESTS = re.compile(r"sha256:[0-9a-f]+")
_IDS = re.compile(r"\b(?=[A-Za-z_-]*\d)[A-Za-z0-9][A-Za-z0-9_-]{9,}\b")
_REPORTS = ("/status", "/v1/usage", "/admin/spend")
_HEADERS = ("content-type", "allow", "www-authenticate", "retry-after", "x-should-retry", "cache-control")

# Method, path and a body that is right for it. {model} is written by the format of the provider that answers.
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/chat/completions", {"model": "m-chat", "messages": _HELLO}),
    ("POST", "/v1/chat/completions", {"model": "m-chat", "messages": _HELLO, "stream": True, "tools": _CHAT_TOOLS}),
    ("POST", "/v1/chat/completions", {"model": "m-claude", "messages": _HELLO, "stream": True}),
    ("POST", "/v1/chat/completions", {"model": "m-gemini", "messages": _HELLO}),
    ("POST", "/v1/chat/completions", {"model": "no-such-model", "messages": _HELLO}),
    ("POST", "/openai/deployments/m-chat/chat/completions", {"messages": _HELLO}),
    ("POST", "/v1/completions", {"model": "m-chat", "prompt": "hello"}),
    ("POST", "/v1/embeddings", {"model": "m-chat", "input": "hello"}),
    ("POST", "/v1/responses", {"model": "m-chat", "input": "hello"}),
    ("POST", "/v1/responses", {"model": "m-claude", "input": "hello", "stream": True}),
    ("POST", "/v1/responses", {"model": "m-chat", "input": "hello", "background": True}),
    ("GET", "/v1/responses", None),
    ("POST", "/v1/responses/compact", {"model": "m-chat", "input": "hello"}),
    ("POST", "/v1/responses/input_tokens", {"model": "m-chat", "input": "hello"}),
    *((method, f"/v1/responses/resp_none{rest}", {} if method == "POST" else None) for method, rest in (
        ("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel"))),
    ("POST", "/v1/conversations", {"items": [{"type": "message", "role": "user", "content": "hello"}]}),
    *((method, f"/v1/conversations/conv_none{rest}", {} if method == "POST" else None) for method, rest in (
        ("GET", ""), ("POST", ""), ("DELETE", ""), ("POST", "/items"), ("GET", "/items"), ("GET", "/items/i"),
        ("DELETE", "/items/i"))),
    ("POST", "/v1/messages", {"model": "m-claude", "max_tokens": 50, "messages": _HELLO}),
    ("POST", "/v1/messages", {"model": "m-chat", "max_tokens": 50, "messages": _HELLO, "stream": True}),
    ("POST", "/v1/messages/count_tokens", {"model": "m-chat", "messages": _HELLO}),
    *(("POST", f"/v1beta/models/{model}:{action}", {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]})
      for model in ("m-gemini", "m-chat")
      for action in ("generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent", "countTokens")),
    ("POST", "/v1beta/models/m-chat:embedContent", {"content": {"parts": [{"text": "hello"}]}}),
    ("POST", "/v1beta/models/m-chat:batchEmbedContents", {"requests": []}),
    ("GET", "/v1beta/models", None),
    ("GET", "/v1beta/models/m-chat", None),
    ("POST", "/v1beta/interactions", {"model": "m-chat", "input": "hello"}),
    ("GET", "/v1beta/interactions/i_none", None),
    ("DELETE", "/v1beta/interactions/i_none", None),
    ("POST", "/v1beta/interactions/i_none/cancel", {}),
    ("POST", "/api/chat", {"model": "m-chat", "messages": _HELLO, "stream": False}),
    ("POST", "/api/chat", {"model": "m-claude", "messages": _HELLO}),
    ("POST", "/api/generate", {"model": "m-chat", "prompt": "hello", "stream": False}),
    ("POST", "/api/embed", {"model": "m-chat", "input": "hello"}),
    ("POST", "/api/embeddings", {"model": "m-chat", "prompt": "hello"}),
    ("GET", "/api/tags", None),
    ("POST", "/api/show", {"model": "m-chat"}),
    ("GET", "/api/ps", None),
    ("GET", "/api/version", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/m-chat", None),
    ("GET", "/v1/files", None),
    ("GET", "/v1/files/f", None),
    ("POST", "/v1/uploads", {"purpose": "batch"}),
    ("POST", "/v1/batches", {"input_file_id": "f"}),
    ("POST", "/v1/images/generations", {"model": "m-chat", "prompt": "a house"}),
    ("POST", "/v1/audio/speech", {"model": "m-chat", "input": "hello"}),
    ("POST", "/v1/moderations", {"model": "m-chat", "input": "hello"}),
    ("GET", "/v1/vector_stores", None),
    ("POST", "/v2/rerank", {"model": "m-chat", "query": "hello"}),
    ("GET", "/v1/messages/batches", None),
    ("GET", "/v1beta/files", None),
    ("POST", "/upload/v1beta/files", {}),
    ("GET", "/v1beta/batches", None),
    ("POST", "/v1beta/models/m-gemini:batchGenerateContent", {}),
    *(("GET", path, None) for path in ("/healthz", "/readyz", "/status", "/credentials", "/admin/credentials")),
    ("POST", "/status/login", {"key": OPERATOR}),
    ("POST", "/status/logout", {}),
    ("POST", "/status/credentials", {}),
    ("POST", "/credentials", {}),
    ("POST", "/admin/credentials", {}),
    ("GET", "/admin/keys", None),
    ("POST", "/admin/keys", {"name": "team"}),
    *((method, f"/admin/keys/none{rest}", {} if method in ("POST", "PATCH") else None) for method, rest in (
        ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/disable"), ("POST", "/enable"), ("POST", "/rotate"))),
    ("GET", "/admin/audit", None),
    ("GET", "/admin/spend", None),
    ("GET", "/v1/usage", None),
    ("GET", "/no/such/path", None),
    ("PUT", "/v1/chat/completions", {}),
    ("GET", "/chat/", None),
    ("GET", "/", None),
]  # fmt: skip
KEYS = {"none": "", "wrong": "wrong-key-0123456789", "client": CLIENT, "operator": OPERATOR}


class _Upstream(BaseHTTPRequestHandler):
    """A provider of every format, which always says hello."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(data) if data.startswith(b'{"') else {}
        streams = body.get("stream") or "streamGenerateContent" in self.path
        self._send(*(_streamed(self.path) if streams else ("application/json", json.dumps(_whole(self.path)))))

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"object": "list", "data": []}))

    def _send(self, content_type: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def _whole(path: str) -> Any:
    if "messages" in path:
        usage = {"input_tokens": 3, "output_tokens": 2}
        text = {"type": "text", "text": "Hello."}
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [text]}
        return {**answer, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    if "enerateContent" in path:
        content = {"role": "model", "parts": [{"text": "Hello."}]}
        usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
        return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
    if "embeddings" in path:
        item = {"object": "embedding", "index": 0, "embedding": [0.5]}
        return {"object": "list", "data": [item], "model": "gpt-x", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    message = {"role": "assistant", "content": "Hello."}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-x", "choices": choices, "usage": usage}


def _streamed(path: str) -> tuple[str, str]:
    if "messages" in path:
        start = {**_whole(path), "content": [], "stop_reason": None}
        events: list[Any] = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ]
        return "text/event-stream", "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    if "enerateContent" in path:
        return "text/event-stream", f"data: {json.dumps(_whole(path))}\r\n\r\n"
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    chunks: list[Any] = [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello."}, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**head, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
    ]
    return "text/event-stream", "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _config(port: int, upstream: int, folder: Path) -> str:
    providers = "".join(
        f'[[providers]]\nname = "{name}"\npreset = "{preset}"\nbase_url = "http://127.0.0.1:{upstream}{path}"\n'
        f'keys = ["env:UPSTREAM_KEY"]\n'
        for name, preset, path in (
            ("chat", "openai", "/v1"),
            ("claude", "anthropic", ""),
            ("google", "gemini", ""),
        )
    )
    models = "".join(
        f'[[models]]\nname = "{name}"\ntargets = ["{target}"]\n'
        for name, target in (
            ("m-chat", "chat/gpt-x"),
            ("m-claude", "claude/claude-x"),
            ("m-gemini", "google/gemini-x"),
        )
    )
    return (
        f'[gateway]\nport = {port}\nformat_port = {port + 1}\n[ledger]\naddress = "{folder / "ledger.db"}"\n'
        f'[[keys]]\nname = "operator"\nkey = "env:OPERATOR_KEY"\nadmin = true\n'
        f'[[keys]]\nname = "client"\nkey = "env:CLIENT_KEY"\n{providers}{models}'
    )


def record_routes(antiphon: str) -> dict[str, str]:
    """The response to each request with each key."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), _free_port()
        (folder / "antiphon.toml").write_text(_config(port, upstream.server_port, folder))
        environment = {
            **{key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "PYTHONPATH")},
            "HOME": name,
            "OPERATOR_KEY": OPERATOR,
            "CLIENT_KEY": CLIENT,
            "UPSTREAM_KEY": "sk-upstream-0123456789",
        }
        command = [antiphon, "serve", "--config", "antiphon.toml"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            _await_port(port, server, folder / "log")
            found = {
                f"{method} {path} {_label(body, number)} as {key}": _ask(port, method, path, body, secret)
                for number, (method, path, good) in enumerate(REQUESTS)
                for body in ([good] if good is None else [good, "{not json"])
                for key, secret in KEYS.items()
            }
            metrics = _ask(port, "GET", "/metrics", None, OPERATOR)
            found["metrics"] = "\n".join(sorted(set(re.findall(r"# TYPE \S+ \S+", metrics))))
            return found
        finally:
            server.terminate()
            server.wait(30)
            upstream.shutdown()


def _label(body: Any, number: int) -> str:
    return "" if body is None else f"{'bad body' if isinstance(body, str) else 'good body'} #{number}"


def _ask(port: int, method: str, path: str, body: Any, secret: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    if data is not None:
        headers["content-type"] = "application/json"
    try:
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        shown = "".join(f"{name}: {response.headers[name]}\n" for name in _HEADERS if name in response.headers)
        is_report = path in _REPORTS and response.status == 200
        return f"{response.status}\n{shown}\n{_outline(json.loads(text)) if is_report else _normalize(text)}"
    finally:
        connection.close()


def _outline(value: Any, path: str = "") -> str:
    """The names in a report; what it counts depends on the time."""
    if isinstance(value, dict):
        return "".join(f"{path}.{name}\n{_outline(one, f'{path}.{name}')}" for name, one in value.items())
    return _outline(value[0], f"{path}[]") if isinstance(value, list) and value else ""


def _normalize(text: str) -> str:
    if text.startswith(("<!doctype", "<!DOCTYPE")):
        return text.partition("\n")[0][:60]
    return _FIGURES.sub("0", _IDS.sub("ID", _DIGESTS.sub("sha256:0", text)))


def record_commands(antiphon: str) -> dict[str, str]:
    """The help of each command, and the schema of the configuration."""
    overview = _run(antiphon, "--help")
    names = re.findall(r"^    (\w+) ", overview, re.MULTILINE)
    shown = {f"antiphon {name} --help": _run(antiphon, name, "--help") for name in names}
    return {"antiphon --help": overview, **shown, "antiphon serve --schema": _run(antiphon, "serve", "--schema")}


def _run(*command: str) -> str:
    environment = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


def _free_port() -> int:
    """A port whose successor is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except (OSError, OverflowError):
                continue
            return int(first.getsockname()[1])


def _await_port(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if server.poll() is not None:
            sys.exit(f"the gateway ended:\n{log.read_text()}")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"the gateway did not listen:\n{log.read_text()}")


def compare(before: dict[str, str], after: dict[str, str]) -> int:
    """Print each difference; returns how many there are."""
    count = 0
    for name in sorted({*before, *after}):
        old, new = before.get(name, "(not there)"), after.get(name, "(not there)")
        if old != new:
            count += 1
            print(f"== {name}")
            print("\n".join(list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[2:40]))
    print(f"{count} of {len({*before, *after})} differ")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="Record what users see of Antiphon, or compare two recordings.")
    actions = parser.add_subparsers(dest="action", required=True)
    record = actions.add_parser("record")
    record.add_argument("file", type=Path)
    record.add_argument("--antiphon", default="antiphon", help="the command of the version to record")
    comparison = actions.add_parser("compare")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "compare":
        before, after = (json.loads(path.read_text()) for path in (arguments.before, arguments.after))
        return 1 if compare(before, after) else 0
    antiphon = str(Path(arguments.antiphon).absolute()) if "/" in arguments.antiphon else arguments.antiphon
    found = {**record_routes(antiphon), **record_commands(antiphon)}
    arguments.file.write_text(json.dumps(found, indent=1))
    print(f"{len(found)} recorded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
