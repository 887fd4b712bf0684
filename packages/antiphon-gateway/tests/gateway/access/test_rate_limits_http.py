"""Clients that misbehave, over raw sockets: each gets the right status, and no other client notices."""

from __future__ import annotations

import gzip
import http.client
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Text, text_of
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import FAST, Client, Rig, path_of, rig
from gateway.strict_upstream import hang, text_answer, trickle
from providers.scripted_server import Reply
from support.cases import each_case

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
BODY = b'{"model":"to-gemini","messages":[{"role":"user","content":"hi"}]}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
LENGTH = b"content-length: %d\r\n" % len(BODY)
KIB = 1024


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    settings = structs.replace(FAST, header_seconds=0.5, body_seconds=0.5, max_body_bytes=256 * KIB)
    with rig(settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _forgotten(gateway: Rig) -> None:
    gateway.clear()


@pytest.fixture
def client(gateway: Rig) -> Iterator[Client]:
    with gateway.client() as client:
        yield client


def sent(port: int, data: bytes, *, is_over: bool = False) -> bytes:
    """Everything that comes back until the gateway closes the connection; it must."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(data)
        if is_over:
            raw.shutdown(socket.SHUT_WR)
        came = b""
        while piece := raw.recv(65_536):
            came += piece
        return came


CHUNKED = b"transfer-encoding: chunked\r\n"


def test_a_malformed_request_is_not_repeated_to_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with rig(structs.replace(FAST, log_level="debug")) as gateway:
        came = sent(gateway.port, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer can\x01ary\r\n\r\n")
    reported = capsys.readouterr().err
    assert b"ary" not in came
    assert "ary" not in reported.replace("library", "")
    assert "Traceback" not in reported


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        HEAD + b"x-a: " + b"a" * 70_000 + b"\r\n\r\n",
        HEAD + b"".join(b"x-%d: a\r\n" % number for number in range(2000)) + b"\r\n",
    ],
    ids=["line", "header", "headers"],
)
def test_a_head_that_is_too_large_is_431(gateway: Rig, head: bytes) -> None:
    assert sent(gateway.port, head).split()[1] == b"431"


def test_a_head_that_does_not_come_is_not_waited_for(gateway: Rig, client: Client) -> None:
    assert sent(gateway.port, b"POST /v1/chat/comp") == b""
    assert client.get("/healthz").status == 200


def test_an_incomplete_body_is_408_and_reaches_no_provider(gateway: Rig) -> None:
    assert sent(gateway.port, HEAD + b"content-length: 1000\r\n\r\n" + BODY).split()[1] == b"408"
    sent(gateway.port, HEAD + b"content-length: 1000\r\n\r\n" + BODY, is_over=True)
    sent(gateway.port, HEAD + CHUNKED + b"\r\n41\r\n" + BODY + b"\r\n", is_over=True)
    assert gateway.upstreams["gemini"].received == []


def test_a_body_is_sent_once_it_is_asked_for(gateway: Rig) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as raw:
        raw.sendall(HEAD + LENGTH + b"expect: 100-continue\r\nconnection: close\r\n\r\n")
        assert raw.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(BODY)
        came = raw.recv(65_536)
    assert came.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("name", FORMATS)
def test_a_body_that_is_too_large_is_413(gateway: Rig, name: str) -> None:
    path = path_of(name, "to-gemini", streams=False)
    with gateway.client() as client:
        got = client.post(path, b"[" * (300 * KIB))
        assert got.status == 413
        assert "262,144" in got.error(name).message


def test_70_megabytes_are_refused_before_they_are_read() -> None:
    with rig() as gateway:
        reported = HEAD + b"content-length: %d\r\n\r\n" % (70 * KIB * KIB)
        assert sent(gateway.port, reported + b"[" * KIB).split()[1] == b"413"
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as raw:
            raw.sendall(HEAD + CHUNKED + b"\r\n")
            megabyte = b"100000\r\n" + b" " * KIB * KIB + b"\r\n"
            for _ in range(65):
                raw.sendall(megabyte)
            assert raw.recv(1000).split()[1] == b"413"


def test_a_decompression_bomb_is_413(gateway: Rig, client: Client) -> None:
    bomb = gzip.compress(b" " * (100 * KIB * KIB), 9)
    assert len(bomb) < 256 * KIB
    got = client.request("POST", "/v1/chat/completions", bomb, {"content-encoding": "gzip"})
    assert got.status == 413


def test_a_compressed_body_is_read(gateway: Rig, client: Client) -> None:
    headers = {"content-encoding": "gzip"}
    assert client.request("POST", "/v1/chat/completions", gzip.compress(BODY), headers).status == 200
    assert client.request("POST", "/v1/chat/completions", b"no gzip at all", headers).status == 400
    assert msgspec.json.decode(gateway.upstreams["gemini"].received[0].body)["contents"]


UNREADABLE = {
    "nothing": b"",
    "no JSON": b"hello",
    "half": BODY[:30],
    "no object": b"[1, 2]",
    "null": b"null",
    "invalid UTF-8": BODY.replace(b"hi", b"\xff\xfe\xc3("),
    "lone surrogate": BODY.replace(b"hi", b"\\ud800\xff"),
    "NaN": BODY.replace(b'"hi"', b"NaN"),
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "deep messages": b'{"model":"to-gemini","messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
}


@each_case("source", FORMATS)
@each_case("name", UNREADABLE)
def test_a_body_that_cannot_be_read_is_400(gateway: Rig, client: Client, name: str, source: str) -> None:
    got = client.post(path_of(source, "to-gemini", streams=False), UNREADABLE[name])
    assert got.status == 400
    assert got.error(source).message
    assert all(upstream.received == [] for upstream in gateway.upstreams.values())


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/html", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]
)
def test_a_body_of_another_content_type_is_415(client: Client, kind: str) -> None:
    got = client.request("POST", "/v1/messages", BODY, {"content-type": kind})
    assert got.status == 415
    assert got.error("anthropic").message


@pytest.mark.parametrize("source", FORMATS)
def test_an_unknown_model_error_lists_the_models(client: Client, source: str) -> None:
    got = client.ask(source, "to-unknown", QUESTION, streams=True)
    assert got.status == 404
    assert all(f"to-{name}" in got.error(source).message for name in FORMATS)


def test_paths_and_methods_that_are_not_there(client: Client) -> None:
    assert client.get("/v1/nothing").status == 404
    wrong = client.get("/v1/chat/completions")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert client.request("HEAD", "/healthz").status == 200
    assert client.get("/readyz").status == 200


@pytest.mark.parametrize(("given", "is_taken"), [("mine-1", True), ("x" * 129, False), ("a b", False), ("é", False)])
def test_a_request_id_is_taken_if_it_can_be(client: Client, given: str, is_taken: bool) -> None:
    for path in ("/healthz", "/v1/models", "/nowhere"):
        reported = client.request("GET", path, headers={"x-request-id": given}).headers["x-request-id"]
        assert (reported == given) is is_taken
        assert reported


def test_keys_models_and_limits() -> None:
    keys = [
        ClientKeySettings(name="narrow", key=hash_key("sk-narrow"), models=("to-gemini",)),
        ClientKeySettings(name="slow", key=hash_key("sk-slow"), requests_per_minute=2),
        ClientKeySettings(name="small", key=hash_key("sk-small"), tokens_per_minute=5),
    ]
    with rig(keys=keys) as gateway:
        answers = []
        for name, headers in [
            ("openai-chat", {}),
            ("openai-chat", {"authorization": "Bearer sk-wrong"}),
            ("anthropic", {"x-api-key": "sk-narro"}),
            ("gemini", {"x-goog-api-key": "sk-narrow2"}),
        ]:
            with gateway.client() as client:
                got = client.ask(name, "to-gemini", QUESTION, streams=False, headers=headers)
            assert got.status == 401
            answers.append(got.error(name).message)
        assert len(set(answers)) == 1  # no response reveals how close a guess was
        assert "narrow" not in answers[0]
        with gateway.client("sk-narrow") as client:
            assert client.ask("openai-chat", "to-gemini", QUESTION, streams=False).status == 200
            refused = client.ask("openai-chat", "to-anthropic", QUESTION, streams=False)
            assert refused.status == 403
            assert [model["id"] for model in client.get("/v1/models").json["data"]] == ["to-gemini"]
        for key, allowed in [("sk-slow", 2), ("sk-small", 1)]:
            with gateway.client(key) as client:
                for _ in range(allowed):
                    assert client.ask("anthropic", "to-gemini", QUESTION, streams=True).status == 200
                limited = client.ask("anthropic", "to-gemini", QUESTION, streams=True)
                assert limited.status == 429
                assert int(limited.headers["retry-after"]) >= 1
                assert limited.json["error"]["type"] == "rate_limit_error"


def test_more_connections_than_allowed_are_503() -> None:
    with rig(structs.replace(FAST, max_connections=3)) as gateway:
        held = [socket.create_connection(("127.0.0.1", gateway.port), timeout=20) for _ in range(3)]
        try:
            deadline = time.monotonic() + 20
            while not (came := refused_connection(gateway.port)) and time.monotonic() < deadline:
                pass
            assert came.startswith(b"HTTP/1.1 503")
        finally:
            for raw in held:
                raw.close()
        deadline = time.monotonic() + 20
        while (status := status_of(gateway.port)) == 503 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert status == 200


def refused_connection(port: int) -> bytes:
    """What a silent connection receives: nothing, if it is admitted."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.settimeout(0.2)
        try:
            return raw.recv(1000)
        except TimeoutError:
            return b""


def status_of(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    except (ConnectionError, http.client.HTTPException):
        return 503
    finally:
        connection.close()


def test_a_request_has_its_time() -> None:
    with rig(structs.replace(FAST, request_seconds=0.6, hold_seconds=5)) as gateway:
        upstream = gateway.upstreams["anthropic"]
        upstream.answer = lambda _: text_answer("word " * 200)
        for source in FORMATS:
            upstream.faults.append(hang())
            with gateway.client() as client:
                late = client.ask(source, "to-anthropic", QUESTION, streams=False)
                assert late.status == 504
                assert "0.6 s" in late.error(source).message
        upstream.faults.append(trickle(500, 0.05))
        with gateway.client() as client, pytest.raises((http.client.IncompleteRead, ConnectionError)):
            client.ask("openai-chat", "to-anthropic", QUESTION, streams=True)


def _hang_after_first_word(reply: Reply) -> Reply:
    end = reply.body.index(b"\n\n", reply.body.index(b"text_delta")) + 2
    return structs.replace(reply, body=reply.body[:end], hangs=True)


def idle_streams(count: int) -> None:
    """So many clients wait for the next word; others are served meanwhile, and every one of them gets its end."""
    body, _ = formats["openai-chat"].encode_request(structs.replace(QUESTION, model="to-anthropic", stream=True))
    connections: list[http.client.HTTPConnection] = []
    with rig(structs.replace(FAST, keep_alive_seconds=0.5)) as gateway:
        upstream = gateway.upstreams["anthropic"]
        upstream.answer = lambda _: text_answer("word " * 20)
        upstream.faults.extend([_hang_after_first_word] * count)
        try:
            responses = []
            for _ in range(count):
                connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
                connections.append(connection)
                connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
                responses.append(connection.getresponse())
            for response in responses:
                assert response.status == 200
                while b"data: " not in response.read1(200):  # or a keep-alive, if the machine is busy
                    assert not response.closed
            with gateway.client() as client:
                got = client.ask("gemini", "to-openai-chat", QUESTION, streams=True)
                assert text_of(got.output("gemini", streams=True).parts) == "echo: Is it raining?"
                assert client.get("/healthz").status == 200
            stream_bytes = b""
            while b": keep-alive" not in stream_bytes:
                stream_bytes += responses[0].read1(200)
        finally:
            for response in responses:
                response.close()
            for connection in connections:
                connection.close()
        assert upstream.gone.wait(10)


def test_300_concurrent_idle_streams() -> None:
    idle_streams(300)


@pytest.mark.slow
def test_1000_concurrent_idle_streams() -> None:
    idle_streams(1000)
