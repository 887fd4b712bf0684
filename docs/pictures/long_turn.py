"""A chat whose model takes 200 rounds for one message, with a limit of 8,000 tokens: the picture of a long turn."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

QUESTION = "Read all 200 pages of the audit, one by one, and tell me which invoices do not add up."
ANSWER = "Two of them: invoice 4711 on page 58 and invoice 4802 on page 149."
ROUNDS = 200
LIMIT = 8_000
_SUMMARY = (
    "Goal: find the invoices that do not add up. Pages {first} to {last} are read (entries {since} to {up_to}). {found} "
    "Next: page {next}."
)
_SHORT = {58: 4711, 149: 4802}
_TOOLS = '''
import antiphon as ap


@ap.tool
def read_page(page: int) -> str:
    """Read a page of the audit."""
    lines = [f"Invoice {4653 + page}, line {line}: {line * 17 + page}.00, paid" for line in range(1, 31)]
    return "\\n".join([f"Page {page} of 200", *lines, "The sum is 12.00 short." if page in (58, 149) else "It adds up."])
'''


class _Upstream(BaseHTTPRequestHandler):
    """Answers as OpenAI does: the next page as a call, 200 times; a summary when it is asked for one; then an answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        listed = [{"id": "gpt-5", "object": "model"}]
        self._send("application/json", json.dumps({"object": "list", "data": listed}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = str(body["messages"][-1].get("content", ""))
        asked = re.search(r"summary of the entries (\d+) to (\d+) above", last)
        pages = [int(page) for page in re.findall(r'\{\\"page\\": ?(\d+)', json.dumps(body["messages"]))]
        page = max(pages, default=0) + 1
        if asked:
            since, up_to = asked.groups()
            first = min(pages, default=1)
            found = [f"Invoice {one} on page {at} is 12.00 short." for at, one in _SHORT.items() if first <= at < page]
            facts = {"first": first, "last": page - 1, "next": page, "since": since, "up_to": up_to}
            words = " ".join(found) or "All of them add up."
            delta: dict[str, Any] = {"content": _SUMMARY.format(found=words, **facts)}
        elif page > ROUNDS or "tools" not in body:
            delta = {"content": ANSWER if "tools" in body else "Invoices of the audit"}
        else:
            function = {"name": "read_page", "arguments": json.dumps({"page": page})}
            delta = {"tool_calls": [{"index": 0, "id": f"call_{page}", "type": "function", "function": function}]}
        chunks = [
            {"id": "c", "choices": [{"index": 0, "delta": delta}]},
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]
        data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self._send("text/event-stream", data)

    def _send(self, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - as in the base class
        pass


@contextmanager
def long_turn_chat(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The chat as a process."""
    (folder / "audit.py").write_text(_TOOLS)
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
    command = [sys.executable, "-m", "antiphon", "chat", "--web", "--port", "0", "--no-tools"]
    command += ["--tools", str(folder / "audit.py"), "--store", str(folder / "chats.db")]
    command += ["--max-rounds", str(ROUNDS + 10), "--token-limit", str(LIMIT)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield server
    finally:
        server.terminate()
        server.wait()
        upstream.shutdown()
