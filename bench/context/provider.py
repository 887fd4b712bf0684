"""A simulated provider over HTTP: it speaks Anthropic's API, answers with a call in each round, and bills every request.

It takes what a request has in common with the one before from its cache, in whole blocks and wherever that ends: marks
(`cache_control`) are not needed. The prices are those of the shipped table. A request without tools, or ours for a summary, is
answered with a summary of a fixed size.
"""

from __future__ import annotations

import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.parts import Text, TokenUsage, ToolCallRequest
from antiphon.prices import cost_of
from antiphon.text import common_prefix
from antiphon.wire import formats
from antiphon.wire.delta import deltas_from_output
from antiphon.wire.output import ModelOutput
from bench.context.depots import MODEL, ROUND_TOKENS, SUMMARY, SUMMARY_TOKENS

_CHARS_PER_TOKEN = 3.2
_BLOCK = 1_024
"""A cache holds whole blocks, and nothing shorter than this."""
_WIRE = formats["anthropic"]


class Bill(Struct):
    """What the requests of a turn were, by the provider's count."""

    largest: int = 0
    over: int = 0
    requests: int = 0
    breaks: int = 0
    cost: Decimal = Decimal(0)


class Provider:
    """Answers `rounds` times with a call. `limit` is what requests are compared with; none is refused."""

    def __init__(self, rounds: int, limit: int) -> None:
        self.bill = Bill()
        self._left = rounds
        self._limit = limit
        self._sent = b""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Provider:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
                with provider._lock:
                    output = provider.answer(body)
                is_stream = bool(body.get("stream"))
                data = _stream(output) if is_stream else msgspec.json.encode(_WIRE.write_response(output).body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: object) -> None:
                del arguments

        return Handler

    def answer(self, body: dict[str, Any]) -> ModelOutput:
        """Bill a request and answer it."""
        prompt = _prompt(body)
        is_summary = not body.get("tools") or b"The conversation has grown long." in prompt[-4_000:]
        usage = self._charge(prompt, SUMMARY_TOKENS if is_summary else ROUND_TOKENS, is_summary=is_summary)
        if is_summary:
            return _output([Text(SUMMARY)], usage)
        if not self._left:
            return _output([Text("Done.")], usage)
        self._left -= 1
        call = ToolCallRequest("look", f"toolu_{self._left:06}", f'{{"number": {self._left}}}')
        return _output([Text("I look at the next one, because the plan says so."), call], usage)

    def _charge(self, prompt: bytes, written: int, *, is_summary: bool) -> TokenUsage:
        bill, tokens = self.bill, int(len(prompt) / _CHARS_PER_TOKEN)
        cached = int(common_prefix(prompt, self._sent) / _CHARS_PER_TOKEN) // _BLOCK * _BLOCK
        bill.largest, bill.over = max(bill.largest, tokens), bill.over + (tokens > self._limit)
        bill.requests += 1
        if not is_summary:
            bill.breaks += cached < len(self._sent) / _CHARS_PER_TOKEN - 2 * _BLOCK
            self._sent = prompt
        usage = TokenUsage(tokens, written, cached, cache_write_tokens=tokens - cached)
        cost = cost_of(usage, MODEL, "anthropic")
        assert cost is not None
        bill.cost += cost.total
        return usage


def _output(parts: list[Any], usage: TokenUsage) -> ModelOutput:
    is_call = isinstance(parts[-1], ToolCallRequest)
    return ModelOutput(
        parts=tuple(parts), stop_reason="tool_calls" if is_call else "end", id="msg_1", model=MODEL, usage=usage
    )


def _stream(output: ModelOutput) -> bytes:
    writer = _WIRE.stream_writer()
    return b"".join([*(writer.write(delta) for delta in deltas_from_output(output)), writer.close()])


def _prompt(body: dict[str, Any]) -> bytes:
    """What is cached of a request, in the order in which it is: tools, system, messages; without marks, and text always as a
    block."""
    parts = [body.get("tools") or [], {"content": body.get("system") or ""}, *body["messages"]]
    return msgspec.json.encode(_without_marks(parts))


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(one) for one in value]
    if isinstance(value, dict):
        if isinstance(text := value.get("content"), str):
            value = {**value, "content": [{"type": "text", "text": text}]}
        return {name: _without_marks(one) for name, one in value.items() if name != "cache_control"}
    return value
