"""The official Gemini SDK against a server of ours on this machine."""

from __future__ import annotations

import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import msgspec
import pytest


class Server:
    """Answers every request of the SDK with a scripted answer, and keeps the requests."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._genai = pytest.importorskip("google.genai")
            self.types: Any = pytest.importorskip("google.genai.types")
        self.requests: list[dict[str, Any]] = []
        self._data = b""
        self._kind = "application/json"

    def answer(self, body: dict[str, Any]) -> None:
        self._data, self._kind = msgspec.json.encode(body), "application/json"

    def stream(self, data: bytes) -> None:
        self._data, self._kind = data, "text/event-stream"

    def plain(self, response: Any) -> Any:
        """A response of the SDK's as plain data, without what the transport adds."""
        return response.model_dump(mode="json", exclude={"sdk_http_response"}, exclude_none=True)

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet an answer: the client need not wait for the rest

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                outer.requests.append(msgspec.json.decode(self.rfile.read(length)))
                self.send_response(200)
                self.send_header("content-type", outer._kind)
                self.send_header("content-length", str(len(outer._data)))
                self.end_headers()
                self.wfile.write(outer._data)
                self.wfile.flush()

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.client: Any = self._genai.Client(
            api_key="none", vertexai=False, http_options=self.types.HttpOptions(base_url=url)
        )
        return self

    def __exit__(self, *_exception: object) -> None:
        self.client.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._warnings.__exit__(None, None, None)
