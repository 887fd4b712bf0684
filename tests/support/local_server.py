"""`LocalServer`: a small HTTP server on this machine with scripted answers, for tests with official SDKs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class LocalServer:
    """`answer` sets what the next requests get; `received` is the body of the last one. Use it as a context manager."""

    def __init__(self) -> None:
        self.received = b""
        self._answer: tuple[int, dict[str, str], bytes] = (500, {}, b"")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                outer.receive(self.path, dict(self.headers), self.rfile.read(int(self.headers["content-length"])))
                status, headers, body = outer._answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self._answer = (status, {"content-type": kind, **headers}, body)

    def receive(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """A request arrived; it is answered when this returns."""
        del path, headers
        self.received = body

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
