"""L14: N requests upstream are N attempts: in the report, in the ledger and in the header of the response.

The upstream is a socket that closes at a given point of the exchange, on a connection that was used before or on a new one. What
it received is compared with what the gateway and the library say they sent. A request that may have been worked on is never sent
again unless the retry settings say so: only a reused connection that closes at once, without a byte, was closed before.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from antiphon.http.client import connection as connection_module
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.retry import RetryPolicy
from antiphon_gateway.config.settings import Config, LedgerSettings, ModelSettings, ProviderSettings
from antiphon_gateway.ledger.database import open_operator_database
from gateway.rig import FAST, Client, Got, serving
from providers.sample_answers import QUESTION

ANSWER = msgspec.json.encode(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Rain."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)


class Ending(Struct, frozen=True):
    """How the upstream ends one exchange: what it reads, how long it waits, what it still sends, and how it closes."""

    name: str
    reads: str = "all"
    seconds: float = 0.0
    sends: bytes = b""
    is_reset: bool = False

    def __str__(self) -> str:
        return self.name


AT_ONCE = [
    Ending("closed as the request arrives", reads="nothing"),
    Ending("reset as the request arrives", reads="nothing", is_reset=True),
    Ending("closed after the head", reads="head"),
    Ending("reset after the head", reads="head", is_reset=True),
    Ending("closed after the body"),
    Ending("reset after the body", is_reset=True),
]
LATER = [
    Ending("closed after working for a while", seconds=0.4),
    Ending("reset after working for a while", seconds=0.4, is_reset=True),
    Ending("closed in the status line", sends=HEAD[:7]),
    Ending("closed in the head", sends=HEAD[:-3]),
    Ending("closed after the head of the answer", sends=HEAD),
    Ending("closed in the answer", sends=HEAD + ANSWER[:-9]),
    Ending("reset in the answer", sends=HEAD + ANSWER[:-9], is_reset=True),
]


class ClosingUpstream:
    """Answers, unless `endings` has one for the next exchange. `requests` counts every request whose first byte arrived."""

    def __init__(self) -> None:
        self.requests = 0
        self.endings: list[Ending] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._sockets: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> ClosingUpstream:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(accepted)
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            while sock.recv(1, socket.MSG_PEEK):
                with self._lock:
                    self.requests += 1
                    ending = self.endings.pop(0) if self.endings else None
                _read(sock, "all" if ending is None else ending.reads)
                if ending is None:
                    sock.sendall(HEAD + ANSWER)
                    continue
                threading.Event().wait(ending.seconds)
                sock.sendall(ending.sends)
                if ending.is_reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                break
        except OSError:
            pass
        finally:
            sock.close()


def _read(sock: socket.socket, what: str) -> None:
    """Read the whole request, its head, or nothing."""
    if what == "nothing":
        return
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1)
    length = int(data.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    if what == "all":
        while length:
            length -= len(sock.recv(length))


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClosingUpstream]:
    # A busy machine may notice an end late; the endings of LATER come long after this.
    monkeypatch.setattr(connection_module, "RESEND_SECONDS", 0.2)
    with ClosingUpstream() as upstream:
        yield upstream


def config_of(upstream: ClosingUpstream, folder: Path, *, retries: int) -> Config:
    return Config(
        gateway=FAST,
        providers=(ProviderSettings(name="up", preset="compatible", base_url=upstream.url, retries=retries),),
        models=(ModelSettings(name="m", targets=("up/m",)),),
        ledger=LedgerSettings(address=str(folder / "ledger.db")),
    )


@contextmanager
def client_at(port: int) -> Iterator[Client]:
    client = Client(port)
    try:
        yield client
    finally:
        client.close()


def ask(client: Client, *, streams: bool) -> Got:
    messages = [{"role": "user", "content": "Rain?"}]
    return client.post("/v1/chat/completions", {"model": "m", "messages": messages, "stream": streams})


def rows_of(folder: Path) -> list[tuple[Any, ...]]:
    database = open_operator_database(str(folder / "ledger.db"), create=False, read_only=True)
    try:
        return list(database.rows("SELECT request_id, attempt, outcome FROM attempts ORDER BY id"))
    finally:
        database.close()


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("retries", [0, 1])
def test_every_request_upstream_is_an_attempt(
    upstream: ClosingUpstream, tmp_path: Path, retries: int, streams: bool
) -> None:
    noted = 0
    with serving(config_of(upstream, tmp_path, retries=retries), {}) as (port, _), client_at(port) as client:
        for ending in [*AT_ONCE, *LATER]:
            for is_reused in (True, False):
                if is_reused:  # the connection of this answer is idle now
                    assert ask(client, streams=False).status == 200
                else:  # its connection is idle, too: let the upstream end it, and the resend
                    upstream.endings += [Ending("reset", is_reset=True)] * (2 + retries)
                    assert ask(client, streams=False).status >= 500
                before = upstream.requests
                upstream.endings = [ending]
                got = ask(client, streams=streams)
                sent = upstream.requests - before
                upstream.endings = []
                may_resend = is_reused and ending in AT_ONCE
                assert sent <= 1 + retries + may_resend, (ending, is_reused)
                if not retries and not may_resend:
                    assert sent == 1, (ending, is_reused)
                    assert got.status >= 500 or not got.assembler("openai-chat").is_finished, (ending, got)
                noted = len(client.get("/status", accept="application/json").json["requests"][0]["attempts"])
                assert noted == sent, (ending, is_reused)
                if sent > 1:
                    assert got.headers["x-antiphon-attempts"] == str(sent), (ending, is_reused)
                else:
                    assert "x-antiphon-attempts" not in got.headers
    assert len(rows_of(tmp_path)) == upstream.requests


def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(upstream: ClosingUpstream, tmp_path: Path) -> None:
    with serving(config_of(upstream, tmp_path, retries=0), {}) as (port, _), client_at(port) as client:
        assert ask(client, streams=False).status == 200
        upstream.endings = [Ending("closed as the request arrives", reads="nothing")]
        got = ask(client, streams=False)
        assert (got.status, got.headers["x-antiphon-attempts"]) == (200, "2")
        requests = client.get("/status", accept="application/json").json["requests"]
        assert [attempt.get("error", "")[:6] for attempt in requests[0]["attempts"]] == ["server", ""]
    assert [(attempt, outcome) for _, attempt, outcome in rows_of(tmp_path)] == [(1, "ok"), (1, "server"), (2, "ok")]


@pytest.mark.parametrize("ending", [*AT_ONCE, *LATER], ids=str)
def test_the_report_of_the_library_has_every_request(upstream: ClosingUpstream, ending: Ending) -> None:
    async def call(client: HttpProviderClient) -> int:
        options = ProviderCallOptions(model="m")
        async for _ in client.call_model(QUESTION, options):
            pass
        return len(options.report.attempts)

    async def work() -> None:
        policy = RetryPolicy(retries=0, rotations=0)
        client = HttpProviderClient("compatible", base_url=upstream.url, retry=policy)
        assert await call(client) == 1
        upstream.endings = [ending]
        assert await call(client) == upstream.requests - 1
        assert ending in AT_ONCE or upstream.requests == 2
        await client.aclose()

    asyncio.run(asyncio.wait_for(work(), 30))
