"""A ledger on 127.0.0.1 that takes payments, knows idempotency keys, and can kill the client that pays.

`POST /pay` books a row; the same key again books none and returns the first receipt. `GET /find?key=…` says whether a key was
booked. With `kill` set, the client is killed with SIGKILL after the row is booked and before it gets an answer.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


class Ledger:
    """`async`-free on purpose: it must run while everything else is killed."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.kill = False
        self._lock = threading.Lock()
        ledger = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                receipt = ledger.book(body)
                if ledger.kill:
                    ledger.kill = False
                    os.kill(body["pid"], signal.SIGKILL)
                    return
                self._answer({"receipt": receipt})

            def do_GET(self) -> None:
                key = parse_qs(urlsplit(self.path).query).get("key", [""])[0]
                self._answer({"receipt": ledger.find(key)})

            def _answer(self, answer: dict[str, Any]) -> None:
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def book(self, payment: dict[str, Any]) -> int:
        with self._lock:
            key = payment["key"]
            known = next((row for row in self.rows if key and row["key"] == key), None)
            if known is None:
                known = {"receipt": len(self.rows) + 1, "cents": payment["cents"], "key": key}
                self.rows.append(known)
            return int(known["receipt"])

    def find(self, key: str) -> int | None:
        with self._lock:
            return next((row["receipt"] for row in self.rows if key and row["key"] == key), None)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
