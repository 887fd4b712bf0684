"""Failed and abandoned requests leak no memory. Measured as the resident memory of a gateway in its own process."""

from __future__ import annotations

import gzip
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.rig import KEY, MODELS
from gateway.served import ServedGateway, config_text, connected, served
from gateway.strict_upstream import CLOSED, StrictUpstream, hang, text_answer
from providers.scripted_server import Reply
from support.waiting import until

MIB = 1024 * 1024
SIZE = 8 * MIB
COUNT = 16
ALLOWED = 8 * SIZE
"""Growth that is allowed: the bodies of a request or two and what the allocator keeps, half of all requests. On a busy machine it
keeps up to 50 MiB, no more after 40 requests."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[StrictUpstream]:
    with StrictUpstream("openai-chat", [KEY.format("openai-chat")]) as one:
        yield one


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: StrictUpstream) -> Iterator[ServedGateway]:
    """One for all tests: each measures what it adds to the memory that the others left."""
    config = tmp_path_factory.mktemp("gateway") / "antiphon.toml"
    target = f"openai-chat/{MODELS['openai-chat']}"
    text = config_text([upstream], {"m": target, MODELS["openai-chat"]: target})
    config.write_text(text.replace("[[models]]", "retries = 0\n[[models]]", 1))
    with served(config) as running:
        yield running


def memory(gateway: ServedGateway) -> int:
    """Bytes in memory of the process."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def question(path: str, model: str, fields: str, *, streams: bool, size: int = SIZE) -> bytes:
    """A request with a long text, as bytes of HTTP."""
    body = b'{"model":"%b","max_tokens":100,"stream":%b,"messages":[{"role":"user","content":"%b"}]}' % (
        model.encode(),
        b"true" if streams else b"false",
        b"words " * (size // 6),
    )
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{fields}"
    head += f"content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


PATHS = {
    "passed through": ("/v1/chat/completions", MODELS["openai-chat"], ""),
    "translated": ("/v1/messages", "m", ""),
    "translated, repeated header": ("/v1/messages", "m", "x-twice: 1\r\nx-twice: 2\r\n"),
}
"""Ways through the gateway: the endpoint, the model, and further header lines."""
EVERY_PATH = pytest.mark.parametrize(
    "name",
    ["passed through", "translated", pytest.param("translated, repeated header", marks=pytest.mark.slow)],
)


@EVERY_PATH
@pytest.mark.pairwise(1)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_failed_requests_keep_no_bodies(
    gateway: ServedGateway, upstream: StrictUpstream, name: str, streams: bool
) -> None:
    request = question(*PATHS[name], streams=streams)

    def fail() -> None:
        upstream.faults.append(CLOSED)
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as raw:
            raw.sendall(request)
            assert raw.recv(1000).startswith(b"HTTP/1.1 502")
        upstream.clear()

    fail()
    before = memory(gateway)
    for _ in range(COUNT):
        fail()
    assert memory(gateway) - before < ALLOWED


@EVERY_PATH
@pytest.mark.pairwise(1)
@pytest.mark.parametrize("moment", ["before the answer", "in the stream"])
def test_abandoned_requests_keep_no_bodies(
    gateway: ServedGateway, upstream: StrictUpstream, name: str, moment: str
) -> None:
    request = question(*PATHS[name], streams=True)

    def leave() -> None:
        upstream.answer = lambda _: text_answer("word " * 400)
        upstream.faults.append(hang(2000 if moment == "in the stream" else 0))
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as raw:
            raw.sendall(request)
            if moment == "in the stream":
                assert raw.recv(1000).startswith(b"HTTP/1.1 200")
            else:
                until(lambda: upstream.received)
        assert upstream.gone.wait(60), "the upstream saw no disconnect"
        upstream.clear()

    leave()
    before = memory(gateway)
    for _ in range(COUNT):
        leave()
    assert memory(gateway) - before < ALLOWED


@pytest.mark.slow
def test_an_answer_that_unpacks_to_too_much_is_refused(gateway: ServedGateway, upstream: StrictUpstream) -> None:
    bomb = gzip.compress(b" " * (300 * MIB), 9)
    reply = Reply(
        body=bomb, content_type="application/json", headers={"content-encoding": "gzip"}, has_length=True, status=200
    )
    Path(f"/proc/{gateway.process.pid}/clear_refs").write_text("5")  # what VmHWM is the peak since
    before = memory(gateway)
    for streams in (False, True):
        upstream.faults.append(reply)
        with connected(gateway.port) as client:
            body = {"model": "m", "stream": streams, "messages": [{"role": "user", "content": "hi"}]}
            assert client.post("/v1/chat/completions", body).status == 502
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{gateway.process.pid}/status").read_text())
    assert peak is not None
    assert int(peak[1]) * 1024 - before < 200 * MIB
