"""Real gateway processes under mixed traffic: the ledger equals what the upstream counted, also after `kill -9`."""

from __future__ import annotations

import http.client
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.spend import spend
from gateway.served import served_gateway
from support.waiting import SECONDS

CONFIG = """
[gateway]
state = "state.db"
{gateway}
[ledger]
address = "{address}"
[[providers]]
name = "first"
format = "openai-chat"
base_url = "http://127.0.0.1:{port}/first/v1"
keys = ["env:FIRST_KEY"]
retries = 1
[[providers]]
name = "second"
format = "anthropic"
base_url = "http://127.0.0.1:{port}/second"
keys = ["env:SECOND_KEY"]
retries = 0
[[models]]
name = "model"
targets = ["first/gpt-4o", "second/claude-sonnet-4-5"]
[[models]]
name = "text-embedding-3-small"
targets = ["first/text-embedding-3-small"]
"""
ENVIRONMENT = {"FIRST_KEY": "sk-first", "SECOND_KEY": "sk-second"}


class CountingUpstream:
    """Numbers its answers and keeps its own books: per provider, requests and tokens.

    The number of an answer is what it reports as the tokens of its prompt. A share `slow` of its streams takes its time.
    """

    def __init__(self, seed: int, *, slow: float = 0.0) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.answered: dict[int, tuple[str, int]] = {}
        """The provider of each answer, and the tokens it generated."""
        self.connections = 0
        self._chance = random.Random(seed)
        self._slow = slow
        self._lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                upstream.connections += 1
                with suppress(OSError):  # the gateway was killed
                    super().handle()
                upstream.connections -= 1

            def do_POST(self) -> None:
                body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
                upstream.answer(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        provider, kind = handler.path.split("/")[1], handler.path.rpartition("/")[2]
        with self._lock:
            fault = self._chance.random() if provider == "first" else 1.0
            status = 503 if fault < 0.06 and kind != "moderations" else 200
            self.calls[provider, status] += 1
            if status == 200 and kind != "moderations":
                number = len(self.answered) + 1
                completion = 0 if kind == "embeddings" else self._chance.randrange(1, 300)
                self.answered[number] = provider, completion
                self.tokens[provider, "prompt"] += number
                self.tokens[provider, "completion"] += completion
            pause = 0.05 if self._chance.random() < self._slow else 0.0
        if status != 200:
            return _send(handler, status, {"error": {"message": "not now", "type": "server_error"}})
        if kind == "moderations":
            return _send(handler, 200, {"id": "m", "model": "m", "results": []})
        if kind == "embeddings":
            usage = {"prompt_tokens": number, "total_tokens": number}
            vectors = [{"embedding": [0.5], "index": 0}]
            return _send(handler, 200, {"object": "list", "data": vectors, "model": "m", "usage": usage})
        send = _send_anthropic if provider == "second" else _send_chat
        return send(handler, body, number, completion, pause)


def _send(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    data = msgspec.json.encode(body)
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _send_events(handler: BaseHTTPRequestHandler, events: list[bytes], pause: float) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("content-length", str(sum(map(len, events))))
    handler.end_headers()
    for piece in events if pause else [b"".join(events)]:
        handler.wfile.write(piece)
        time.sleep(pause)


def _send_chat(
    handler: BaseHTTPRequestHandler, body: dict[str, Any], prompt: int, completion: int, pause: float
) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    head = {"id": "c", "created": 1, "model": "gpt-4o"}
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
        return _send(handler, 200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}]}
        for word in ("Yes", ".")
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({"choices": [], "usage": usage})
    events = [
        b"data: " + msgspec.json.encode({**head, "object": "chat.completion.chunk", **chunk}) + b"\n\n"
        for chunk in chunks
    ]
    return _send_events(handler, [*events, b"data: [DONE]\n\n"], pause)


def _send_anthropic(
    handler: BaseHTTPRequestHandler, body: dict[str, Any], prompt: int, completion: int, pause: float
) -> None:
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    if not body.get("stream"):
        usage = {"input_tokens": prompt, "output_tokens": completion}
        content = [{"type": "text", "text": "Yes."}]
        return _send(
            handler, 200, {**head, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        )
    started: dict[str, Any] = {
        **head,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": prompt, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": completion},
        },
        {"type": "message_stop"},
    ]
    return _send_events(
        handler,
        [b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n" for event in events],
        pause,
    )


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"model": "model", "messages": [{"role": "user", "content": "Hi."}]}),
    ("/v1/chat/completions", {"model": "model", "messages": [{"role": "user", "content": "Hi."}], "stream": True}),
    ("/v1/messages", {"model": "model", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi."}]}),
    (
        "/v1/messages",
        {"model": "model", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi."}], "stream": True},
    ),
    ("/v1/responses", {"model": "model", "input": "Hi.", "store": False, "stream": True}),
    ("/v1/embeddings", {"model": "text-embedding-3-small", "input": "Hi."}),
]


def client_traffic(
    port: int, count: int, seed: int, leaving: float, answered: list[str], stop: threading.Event | None = None
) -> None:
    """Requests of one client. A share `leaving` of its streams is left after the first bytes. `answered` gets the ids."""
    chance = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    for _ in range(count):
        if stop is not None and stop.is_set():
            break
        path, body = chance.choice(REQUESTS)
        try:
            connection.request("POST", path, msgspec.json.encode(body), {"content-type": "application/json"})
            response = connection.getresponse()
            request_id = response.headers["x-request-id"]
            if body.get("stream") and chance.random() < leaving:
                response.read1(20)
                connection.close()  # the client leaves; the upstream had answered in full
            else:
                response.read()
            answered.append(request_id)
        except (OSError, http.client.HTTPException):
            connection.close()  # the gateway was killed
    connection.close()


@contextmanager
def counting_upstream(seed: int, *, slow: float = 0.0) -> Iterator[CountingUpstream]:
    upstream = CountingUpstream(seed, slow=slow)
    try:
        yield upstream
    finally:
        upstream.server.shutdown()
        upstream.server.server_close()


def books(address: str) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, str]], set[str], int]:
    """The ledger: requests and tokens per provider, the ids, and how many rows are estimates."""
    database = open_operator_database(address, create=False)
    try:
        calls: Counter[tuple[str, int]] = Counter()
        tokens: Counter[tuple[str, str]] = Counter()
        ids, estimated = set(), 0
        query = "SELECT request_id, provider, status, metering, prompt_tokens, completion_tokens FROM attempts"
        for request_id, provider, status, metering, prompt, completion in database.rows(query):
            calls[provider, status] += 1
            tokens[provider, "prompt"] += prompt
            tokens[provider, "completion"] += completion
            ids.add(request_id)
            estimated += metering == "estimated"
        assert sum(row.calls for row in spend(database, ("provider",))) == sum(calls.values()), (
            "the sums equal the rows"
        )
        return calls, tokens, ids, estimated
    finally:
        database.close()


def run_clients(port: int, clients: int, each: int, leaving: float) -> list[str]:
    answered: list[str] = []
    threads = [
        threading.Thread(target=client_traffic, args=(port, each, seed, leaving, answered)) for seed in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20 * SECONDS)
        assert not thread.is_alive(), "a client did not end"
    return answered


def ledger_of(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> tuple[str, str, dict[str, str]]:
    """The address of a ledger, as the configuration has it, and the environment of the gateway."""
    environ = {**ENVIRONMENT, "XDG_DATA_HOME": str(tmp_path / "data")}
    if kind == "sqlite":
        return str(tmp_path / "ledger.db"), str(tmp_path / "ledger.db"), environ
    address: str = request.getfixturevalue("postgres")
    return address, "env:LEDGER", {**environ, "LEDGER": address}


@pytest.mark.parametrize(
    ("kind", "each"),
    [
        ("postgresql", 40),
        pytest.param("sqlite", 40, marks=pytest.mark.slow),
        pytest.param("sqlite", 2500, marks=pytest.mark.slow),
        pytest.param("postgresql", 2500, marks=pytest.mark.slow),
    ],
)
def test_ledger_equals_the_count_of_the_upstream(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, each: int
) -> None:
    """Failures, retries and fallbacks: every attempt and every token. Then also clients that leave: every attempt."""
    address, written, environ = ledger_of(request, tmp_path, kind)
    with counting_upstream(seed=3) as upstream:
        config = tmp_path / "antiphon.toml"
        config.write_text(CONFIG.format(address=written, port=upstream.port, gateway=""))
        with served_gateway(config, "--workers", "2", environ=environ) as gateway:
            assert len(run_clients(gateway.port, 4, each, leaving=0.0)) == 4 * each
            assert gateway.stop() == 0, gateway.log
        calls, tokens, _, estimated = books(address)
        assert upstream.calls["first", 503] > 0
        assert (calls, tokens, estimated) == (upstream.calls, upstream.tokens, 0)
        with served_gateway(config, "--workers", "2", environ=environ) as gateway:
            answered = run_clients(gateway.port, 4, each, leaving=0.2)
            assert gateway.stop() == 0, gateway.log
        calls, _, ids, _ = books(address)
        assert calls == upstream.calls
        assert set(answered) <= ids


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_kill_9_loses_no_row_of_an_answered_request(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    address, written, environ = ledger_of(request, tmp_path, kind)
    answered: list[str] = []
    with counting_upstream(seed=5) as upstream:
        config = tmp_path / "antiphon.toml"
        config.write_text(CONFIG.format(address=written, port=upstream.port, gateway=""))
        for round_number in range(3):
            with served_gateway(config, environ=environ) as gateway:
                stop, before = threading.Event(), len(answered)
                thread = threading.Thread(
                    target=client_traffic, args=(gateway.port, 100_000, round_number, 0.0, answered, stop)
                )
                thread.start()
                deadline = time.monotonic() + SECONDS
                while len(answered) < before + 20 + 13 * round_number and time.monotonic() < deadline:
                    time.sleep(0.001)
                os.kill(gateway.process.pid, signal.SIGKILL)
                stop.set()
                gateway.process.wait(SECONDS)
                thread.join(SECONDS)
                assert not thread.is_alive()
                assert len(answered) > before, "requests were answered"
        with served_gateway(config, environ=environ) as gateway:
            answered += run_clients(gateway.port, 1, 1, leaving=0.0)
            assert gateway.stop() == 0, gateway.log
    calls, _, ids, _ = books(address)
    assert set(answered) <= ids
    attempts, asked = sum(calls.values()), sum(upstream.calls.values())
    assert attempts >= asked, "the request in progress at each kill is there, too"
    assert attempts <= asked + 3, "no row was written twice; one may not have reached the upstream at each kill"
