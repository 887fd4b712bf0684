"""The gateway under uvloop: nothing in it may depend on the classes or private names of asyncio's own loop."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import uvloop

from antiphon.parts import Text, text_of
from antiphon.wire import FORMATS
from antiphon.wire.request import Message, ModelRequest
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import hang, text_answer

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig(FAST, new_loop=uvloop.new_event_loop) as running:
        yield running


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", ["openai-chat", "anthropic"])
def test_requests_are_answered(gateway: Rig, source: str, target: str, streams: bool) -> None:
    gateway.clear()
    with gateway.client() as client:
        for _ in range(3):  # on one connection, and to the upstream on one too
            got = client.ask(source, f"to-{target}", QUESTION, streams=streams)
            assert text_of(got.output(source, streams=streams).parts) == "echo: Is it raining?"


def test_a_slow_reader_gets_its_whole_response(gateway: Rig) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.answer = lambda _: text_answer("x" * (8 * MIB))
    body = b'{"model":"to-openai-chat","messages":[{"role":"user","content":"hi"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        raw.settimeout(60)
        raw.connect(("127.0.0.1", gateway.port))
        raw.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        size = 0
        while piece := raw.recv(65_536):
            size += piece.count(b"x")
    gateway.clear()
    assert size >= 8 * MIB


def test_a_client_that_leaves_ends_the_call_of_the_upstream(gateway: Rig) -> None:
    gateway.clear()
    upstream = gateway.upstreams["openai-chat"]
    upstream.answer = lambda _: text_answer("word " * 400)
    upstream.faults.append(hang(2000))
    body = b'{"model":"to-openai-chat","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as raw:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        raw.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert raw.recv(1000).startswith(b"HTTP/1.1 200")
    assert upstream.gone.wait(60)
    gateway.clear()
