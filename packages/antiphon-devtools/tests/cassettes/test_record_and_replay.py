"""A gateway records what clients ask and get; a replay answers the same bytes, without a provider."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.errors import TapeError
from antiphon.parts import text_of
from antiphon.wire import FORMATS
from antiphon_devtools.cassettes.matching import MatchRules
from antiphon_devtools.cassettes.player import ReplayOptions, TapePlayer, player_of, replay_config
from antiphon_devtools.cassettes.recorder import recorder_to
from antiphon_devtools.cassettes.tape import Exchange, Tape
from antiphon_gateway.config.settings import GatewaySettings, LedgerSettings
from gateway.rig import FAST, Client, Got, Rig, rig, serving
from gateway.strict_upstream import cut, hang, late, text_answer
from support.waiting import until

NO_LEDGER = LedgerSettings(enabled=False)
CLIENT_KEY = "sk-client-0123456789abcdef"


def ask(format_name: str, text: str = "Hi.") -> dict[str, Any]:
    if format_name == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    if format_name == "gemini-interactions":
        return {"input": text}
    if format_name == "openai-responses":
        return {"input": text}
    limit = {"max_tokens": 100} if format_name == "anthropic" else {}
    return {"messages": [{"role": "user", "content": text}], **limit}


def send(client: Client, format_name: str, text: str = "Hi.", *, streams: bool = False) -> Got:
    return client.ask(format_name, f"to-{format_name}", ask(format_name, text), streams=streams)


@contextmanager
def recording(path: Path, settings: GatewaySettings = FAST, names: tuple[str, ...] = ()) -> Iterator[Rig]:
    with rig(settings, tape=recorder_to(path, names), ledger=NO_LEDGER) as gateway:
        yield gateway


@contextmanager
def replaying(path: Path, speed: float = inf, *, once: bool = False, rules: MatchRules | None = None) -> Iterator[int]:
    options = ReplayOptions(speed, once, rules or MatchRules())
    config = replay_config({}, {"port": 0, "format_port": 0, "log_level": "warning"})
    with serving(config, {}, tape=player_of(path, options)) as (port, _):
        yield port


@contextmanager
def connected(port: int) -> Iterator[Client]:
    client = Client(port, CLIENT_KEY)
    try:
        yield client
    finally:
        client.close()


def exchanges(path: Path) -> list[Exchange]:
    tape = Tape(path)
    try:
        return list(tape.exchanges())
    finally:
        tape.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.db"


def other_requests(client: Client) -> list[Got]:
    """Requests beside those that generate."""
    form = '--xyz\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz--\r\n'
    return [
        client.get("/v1/models"),
        client.post("/v1/embeddings", {"model": "to-openai-chat", "input": "Hi."}),
        client.post("/v1/messages/count_tokens", {"model": "to-anthropic", **ask("anthropic")}),
        client.post("/v1/chat/completions", {"model": "no-such-model", **ask("openai-chat")}),
        client.request(
            "POST",
            "/v1/files?provider=openai-chat",
            form.encode(),
            {"content-type": "multipart/form-data; boundary=xyz"},
        ),
    ]


def test_every_endpoint_is_replayed_byte_for_byte_and_no_secret_is_recorded(path: Path) -> None:
    with recording(path) as gateway, gateway.client(CLIENT_KEY) as client:
        live = [send(client, name, streams=streams) for name in FORMATS for streams in (False, True)]
        live += other_requests(client)
        own = ("/healthz", "/status", "/status/page/main.js", "/status/login")
        assert [client.request("GET", page, headers={"accept": "text/html"}).status for page in own] == [200] * 4
    assert [got.status for got in live] == [200] * 13 + [404, live[-1].status]
    with replaying(path) as port, connected(port) as client:
        played = [send(client, name, streams=streams) for name in FORMATS for streams in (False, True)]
        played += other_requests(client)
        assert client.get("/readyz").json == {"status": "ok", "exchanges": len(live)}
        assert [client.request("GET", page, headers={"accept": "text/html"}).status for page in own] == [200] * 4
    for before, now in zip(live, played, strict=True):
        assert (now.status, now.body) == (before.status, before.body)
        volatile = {"date", "x-request-id", "x-antiphon-tape"}
        assert {name: value for name, value in now.headers.items() if name not in volatile} == {
            name: value for name, value in before.headers.items() if name not in volatile
        }
    assert [now.headers["x-antiphon-tape"] for now in played] == [str(n + 1) for n in range(len(live))]
    stored = repr(exchanges(path))
    assert CLIENT_KEY not in stored
    assert "canary" not in stored
    assert CLIENT_KEY.encode() not in path.read_bytes()


def test_answers_to_the_same_request_are_played_in_order(path: Path) -> None:
    with recording(path) as gateway, gateway.client() as client:
        upstream = gateway.upstreams["openai-chat"]
        answers = iter(["answer 0", "answer 1", "answer 2"])
        upstream.answer = lambda _: text_answer(next(answers))
        for _ in range(3):
            send(client, "openai-chat")

    def text(got: Got) -> str:
        found: str = got.json["choices"][0]["message"]["content"]
        return found

    with replaying(path) as port, connected(port) as client:
        assert [text(send(client, "openai-chat")) for _ in range(4)] == ["answer 0", "answer 1", "answer 2", "answer 2"]
    with replaying(path, once=True) as port, connected(port) as client:
        assert [send(client, "openai-chat").status for _ in range(4)] == [200, 200, 200, 404]
        message = send(client, "openai-chat").error("openai-chat").message
    assert "were all played (exchange 1, 2, 3), and --replay-once forbids to repeat the last" in message


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_miss_is_404_in_the_client_s_format_with_the_nearest_request(path: Path, format_name: str) -> None:
    with recording(path) as gateway, gateway.client() as client:
        send(client, format_name, "Is it raining in Oslo?")
        received = len(gateway.upstreams[format_name].received)
        assert received == 1
        with replaying(path) as port, connected(port) as player:
            got = send(player, format_name, "Is it raining in Bergen?")
        assert len(gateway.upstreams[format_name].received) == 1
    assert (got.status, got.headers["x-antiphon-tape"]) == (404, "miss")
    error = got.error(format_name)
    assert error.kind == "not_found"
    assert error.message.startswith("no recorded answer for POST /v1")
    assert "nearest is exchange 1" in error.message
    assert 'recorded "Is it raining in Oslo?", sent "Is it raining in Bergen?"' in error.message


def test_fields_can_be_left_out_of_the_comparison(path: Path) -> None:
    with recording(path) as gateway, gateway.client() as client:
        client.post(
            "/v1/chat/completions", {"model": "to-openai-chat", "user": "a", **ask("openai-chat", "on 2026-11-16")}
        )
    other = {"model": "to-openai-chat", "user": "b", **ask("openai-chat", "on 2026-11-17")}
    for rules, status in (
        (MatchRules(), 404),
        (MatchRules("loose"), 404),
        (MatchRules("loose", ("user",)), 200),
        (MatchRules(ignore=("user", "messages[*].content")), 200),
        (MatchRules("path"), 200),
    ):
        with replaying(path, rules=rules) as port, connected(port) as client:
            assert client.post("/v1/chat/completions", other).status == status, rules


def http_request(body: bytes) -> bytes:
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def read_to_the_end(port: int, body: bytes) -> bytes:
    """All that a server sends until it closes, as it comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(http_request(body))
        received = b""
        try:
            while data := raw.recv(65536):
                received += data
                if received.endswith(b"0\r\n\r\n"):
                    break
        except ConnectionResetError:
            pass
        return received


STREAM = msgspec.json.encode({"model": "to-openai-chat", "stream": True, **ask("openai-chat", "a longer text " * 20)})


def test_a_stream_that_the_upstream_cut_is_played_as_it_was(path: Path) -> None:
    with recording(path) as gateway:
        gateway.upstreams["openai-chat"].faults.append(cut(600))
        with gateway.client() as client:
            live = client.post("/v1/chat/completions", STREAM)
    assert b"error" in live.body
    with replaying(path) as port, connected(port) as client:
        assert client.post("/v1/chat/completions", STREAM).body == live.body


def test_a_stream_that_the_client_left_is_played_as_cut(path: Path) -> None:
    with recording(path) as gateway:
        upstream = gateway.upstreams["openai-chat"]
        upstream.faults.append(hang(600))
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as raw:
            raw.sendall(http_request(STREAM))
            seen = b""
            while b"data:" not in seen:
                seen += raw.recv(65536)
        assert upstream.gone.wait(20)
        until(lambda: exchanges(path))
    (exchange,) = exchanges(path)
    assert exchange.answer.is_cut
    with replaying(path) as port:
        received = read_to_the_end(port, STREAM)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert b"data:" in received
    assert not received.endswith(b"0\r\n\r\n")


def test_a_request_that_got_no_answer_is_not_recorded(path: Path) -> None:
    with recording(path) as gateway:
        upstream = gateway.upstreams["openai-chat"]
        upstream.faults.append(hang())
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as raw:
            raw.sendall(http_request(STREAM))
            until(lambda: upstream.received)
        assert upstream.gone.wait(20)
    assert exchanges(path) == []


def test_a_stream_that_was_begun_early_is_recorded_from_its_head_on(path: Path) -> None:
    settings = structs.replace(FAST, hold_seconds=0.05, keep_alive_seconds=1.0)
    with recording(path, settings) as gateway, gateway.client() as client:
        gateway.upstreams["openai-chat"].faults.append(late(0.4))
        live = client.post("/v1/chat/completions", STREAM)
    (exchange,) = exchanges(path)
    assert live.status == 200
    assert exchange.answer.body == live.body
    assert exchange.answer.body.startswith(b":")  # the keep-alive
    with replaying(path) as port, connected(port) as client:
        assert client.post("/v1/chat/completions", STREAM).body == live.body


def test_the_recorded_times_are_kept_and_can_be_played(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(path) as gateway, gateway.client() as client:
        send(client, "openai-chat", streams=True)
    tape = Tape(path, records=True)
    (exchange,) = tape.exchanges()
    first, *rest = exchange.answer.pieces
    pieces = [first, *((300_000, data) for _, data in rest)]
    tape.delete([1])
    tape.add(structs.replace(exchange, answer=structs.replace(exchange.answer, head_after=100_000, pieces=pieces)))
    tape.close()
    waited: list[float] = []

    async def note(_: TapePlayer, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(TapePlayer, "_wait", note)
    for speed, expected in ((1.0, [0.1]), (4.0, [0.025]), (inf, [])):
        waited.clear()
        with replaying(path, speed) as port, connected(port) as client:
            assert send(client, "openai-chat", streams=True).body == exchange.answer.body
        assert waited == expected


def test_named_headers_and_fields_are_removed_and_still_match(path: Path) -> None:
    body = {"model": "to-openai-chat", "user": "Ada Lovelace", **ask("openai-chat")}
    with recording(path, names=("user", "X-Team")) as gateway, gateway.client() as client:
        client.post("/v1/chat/completions", body, {"x-team": "blue"})
    (exchange,) = exchanges(path)
    assert exchange.request.headers["x-team"] == "[removed]"
    assert json.loads(exchange.request.body)["user"] == "[removed]"
    with replaying(path) as port, connected(port) as client:
        assert client.post("/v1/chat/completions", {**body, "user": "Grace Hopper"}).status == 200


def test_a_tape_that_cannot_be_written_does_not_fail_the_client(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        raise TapeError("no space left")

    with recording(path) as gateway, gateway.client() as client:
        monkeypatch.setattr(Tape, "add", fails)
        assert send(client, "openai-chat", streams=True).status == 200
        monkeypatch.undo()
        assert send(client, "openai-chat").status == 200
    assert len(exchanges(path)) == 1


def test_only_this_machine_may_read_a_tape_without_a_client_key(path: Path) -> None:
    Tape(path, records=True).close()
    with replaying(path) as port, connected(port) as client:
        got = client.request("GET", "/v1/models", headers={"host": "evil.example"})
        page = client.request("GET", "/v1/models", headers={"origin": "https://evil.example"})
    assert (got.status, page.status) == (403, 403)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_key_that_the_answer_repeats_is_not_recorded(path: Path, format_name: str) -> None:
    """The upstream repeats the prompt, five characters at a time in a stream."""
    secret = "sk-proj-AbCd1234efgh5678ijkl"
    with recording(path) as gateway, gateway.client() as client:
        live = [send(client, format_name, f"my key is {secret}", streams=streams) for streams in (False, True)]
    assert secret in live[0].body.decode()
    stored = exchanges(path)
    assert secret not in repr(stored)
    texts = []
    for exchange, streams in zip(stored, (False, True), strict=True):
        got = Got(200, {}, exchange.answer.body)
        texts.append(text_of(got.output(format_name, streams=streams).parts))
    assert texts == ["echo: my key is [removed]"] * 2
    with replaying(path) as port, connected(port) as client:
        assert send(client, format_name, "my key is sk-proj-Another1234Key5678xyz").status == 200
