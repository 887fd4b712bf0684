"""What the gateway records of a request is what happened: defects are 500, timeouts 504, clients that left 499."""

from __future__ import annotations

import http.client
import re
import socket
import time
from typing import Any

import pytest
from msgspec import structs

from antiphon.parts import Text
from antiphon.wire import Format
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.generate import channels, targeted_request
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import hang, text_answer
from support.waiting import SECONDS, until

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
BODY = (
    b'{"model":"to-openai-chat","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"Is it raining?"}]}'
)


def counted(gateway: Rig) -> list[str]:
    """The statuses of the requests that were counted for a provider."""
    with gateway.client() as client:
        text = client.get("/metrics").body.decode()
    found = re.findall(r'^antiphon_requests_total\{[^}]*status="(\d+)"[^}]*\} (\d+)', text, re.MULTILINE)
    return [status for status, times in found for _ in range(int(times))]


def shown(gateway: Rig) -> list[int]:
    """The statuses of the requests on the status page."""
    with gateway.client() as client:
        return [request["status"] for request in client.get("/status?format=json").json["requests"]]


def check_recorded(gateway: Rig, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    until(lambda: counted(gateway), "the request is counted")
    assert counted(gateway) == [str(status)]
    assert shown(gateway) == [status]
    log = capsys.readouterr().err
    assert re.search(rf" {status} in [0-9.]+ s| status={status} ", log), log


def broken(*_: object, **__: object) -> Any:
    raise RuntimeError("a defect of ours")


SHAPES = {"length": "", "repeated header": "x-twice: 1\r\nx-twice: 2\r\n"}


def ask(gateway: Rig, fields: str, path: str = "/v1/messages", body: bytes = BODY) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", gateway.port), timeout=SECONDS)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{fields}"
    raw.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return raw


@pytest.mark.parametrize("shape", SHAPES)
def test_a_defect_before_the_answer_is_a_500(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shape: str
) -> None:
    monkeypatch.setattr(targeted_request, "repair", broken)
    with rig() as gateway:
        with ask(gateway, SHAPES[shape]) as raw:
            assert raw.recv(1000).startswith(b"HTTP/1.1 500")
        check_recorded(gateway, 500, capsys)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_defect_in_a_stream_is_a_500(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shape: str
) -> None:
    monkeypatch.setattr(channels.Translate, "close", broken)
    with rig() as gateway:
        with ask(gateway, SHAPES[shape]) as raw:
            came = b""
            try:
                while piece := raw.recv(65_536):
                    came += piece
            except ConnectionResetError:
                pass
            # never as if it was complete; a 500 where nothing had left yet
            assert not came.startswith(b"HTTP/1.1 200") or not came.endswith(b"0\r\n\r\n"), came
        check_recorded(gateway, 500, capsys)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("after", [0, 600], ids=["before the answer", "in the stream"])
def test_a_request_that_took_too_long_is_a_504(capsys: pytest.CaptureFixture[str], after: int, shape: str) -> None:
    with rig(structs.replace(FAST, request_seconds=0.5, hold_seconds=0.1)) as gateway:
        gateway.upstreams["openai-chat"].answer = lambda _: text_answer("word " * 200)
        gateway.upstreams["openai-chat"].faults.append(hang(after))
        with ask(gateway, SHAPES[shape]) as raw:
            raw.recv(65_536)
            until(lambda: counted(gateway), "the request is counted")
        check_recorded(gateway, 504, capsys)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("after", [0, 600], ids=["before the answer", "in the stream"])
def test_a_client_that_left_is_a_499(capsys: pytest.CaptureFixture[str], after: int, shape: str) -> None:
    with rig(structs.replace(FAST, log_level="info")) as gateway:
        upstream = gateway.upstreams["openai-chat"]
        upstream.answer = lambda _: text_answer("word " * 200)
        upstream.faults.append(hang(after))
        with ask(gateway, SHAPES[shape]) as raw:
            until(lambda: upstream.received, "the upstream is asked")
            if after:
                raw.recv(100)
        check_recorded(gateway, 499, capsys)


@pytest.mark.parametrize("client_format", ["openai-chat", "anthropic"])
def test_keep_alives_do_not_restart_the_silence_clock(client_format: str) -> None:
    """A stream that stalls is cut after `read_seconds`, however often the client gets a keep-alive comment meanwhile."""
    with rig(structs.replace(FAST, keep_alive_seconds=0.2, request_seconds=20.0), read_seconds=1.0) as gateway:
        upstream = gateway.upstreams["openai-chat"]
        upstream.answer = lambda _: text_answer("word " * 200)
        upstream.faults.append(hang(2000))
        with gateway.client() as client:
            try:
                got = client.ask(client_format, "to-openai-chat", QUESTION, streams=True)
            except http.client.IncompleteRead:
                pytest.fail("only request_seconds ended the stream")
        assert b": keep-alive" in got.body
        error = got.assembler(client_format).error
        assert error is not None
        assert "1.0 s" in error.message
        assert upstream.gone.wait(SECONDS)


@pytest.mark.parametrize("step", ["read_response", "encode_response"])
def test_translating_a_whole_answer_is_overhead(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The time from the last byte of the upstream to the response is the gateway's own."""
    seconds, real = 0.4, getattr(Format, step)

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return real(*args, **kwargs)

    with rig() as gateway, gateway.client() as client:
        monkeypatch.setattr(Format, step, slow)
        got = client.ask("anthropic", "to-openai-chat", QUESTION, streams=False)
        monkeypatch.setattr(Format, step, real)
        assert got.status == 200
        text = client.get("/metrics").body.decode()
        found = re.search(r"^antiphon_overhead_seconds_sum\{[^}]*\} ([0-9.e-]+)", text, re.MULTILINE)
        assert found is not None
        assert float(found[1]) >= seconds
