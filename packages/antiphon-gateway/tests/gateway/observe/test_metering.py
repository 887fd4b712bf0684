"""Every operation leaves one row for each attempt, with the tokens that the provider reported or an estimate."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct, structs

from antiphon.parts import Text, TokenUsage
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.spend import spend
from antiphon_gateway.observe.record import price_variant
from gateway.rig import FAST, MODELS, Rig, path_of, rig
from gateway.strict_upstream import CLOSED, cut, text_answer

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
CHAT = {"messages": [{"role": "user", "content": "Is it raining?"}]}
LONG = "One more word, ein Wort, 一个字. " * 40


class Row(Struct, frozen=True):
    """What a row of the view `attempts` says."""

    request_id: str
    attempt: int
    key_name: str
    client_format: str
    operation: str
    provider: str
    credential: str
    model_asked: str
    model_served: str
    metering: str
    status: int
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    price_version: str


@pytest.fixture(scope="module")
def ledger_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    open_operator_database(str(path)).close()
    return path


@pytest.fixture(scope="module")
def running(ledger_path: Path) -> Iterator[Rig]:
    models = {
        "with-fallback": [f"openai-chat/{MODELS['openai-chat']}", f"anthropic/{MODELS['anthropic']}"],
        "text-embedding-3-small": ["openai-chat/text-embedding-3-small"],
    }
    keys = [ClientKeySettings(name="alice", key=hash_key("sk-alice"), admin=True)]
    ledger = LedgerSettings(address=str(ledger_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            UsageLedger.__init__, "__kwdefaults__", {**(UsageLedger.__init__.__kwdefaults__ or {}), "interval": 0.02}
        )
        with rig(structs.replace(FAST, hold_seconds=5.0), models=models, keys=keys, ledger=ledger) as gateway:
            yield gateway


@pytest.fixture
def gateway(running: Rig) -> Rig:
    running.clear()
    return running


def rows_of(path: Path, request_id: str, count: int = 1) -> list[Row]:
    """The rows of a request, once there are `count`."""
    deadline = time.monotonic() + 30
    columns = ", ".join(Row.__struct_fields__)
    while True:
        database = open_operator_database(str(path), create=False, read_only=True)
        query = f"SELECT {columns} FROM attempts WHERE request_id = :id ORDER BY attempt"
        found = [Row(*row) for row in database.rows(query, id=request_id)]
        database.close()
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, f"no {count} rows of {request_id} within 30 s"
        time.sleep(0.02)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_generation_of_every_format_has_the_reported_tokens(
    gateway: Rig, ledger_path: Path, source: str, target: str, streams: bool
) -> None:
    with gateway.client("sk-alice") as client:
        got = client.ask(source, f"to-{target}", QUESTION, streams=streams)
        assert got.status == 200
    (row,) = rows_of(ledger_path, got.headers["x-request-id"])
    assert (row.key_name, row.client_format, row.operation) == ("alice", source, "chat")
    assert (row.provider, row.model_asked, row.model_served) == (target, f"to-{target}", MODELS[target])
    assert row.credential == f"env:KEY_{target.upper().replace('-', '_')}"
    assert (row.status, row.outcome, row.metering) == (200, "ok", "reported")
    assert (row.prompt_tokens, row.completion_tokens) == (11, 7)
    assert row.price_version.startswith("genai-prices")


def test_usage_is_requested_and_hidden_from_a_chat_client(gateway: Rig, ledger_path: Path) -> None:
    with gateway.client("sk-alice") as client:
        got = client.ask("openai-chat", "to-openai-chat", CHAT, streams=True)
    lines = [line for line in got.body.split(b"\n") if line.startswith(b"data: {")]
    assert all(msgspec.json.decode(line.removeprefix(b"data: "))["choices"] for line in lines)
    assert gateway.upstreams["openai-chat"].bodies[0]["stream_options"] == {"include_usage": True}
    assert rows_of(ledger_path, got.headers["x-request-id"])[0].metering == "reported"


def test_every_attempt_has_a_row_and_the_fallback_has_the_tokens(gateway: Rig, ledger_path: Path) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.faults.append(upstream.error(503, "overloaded", "try later"))
    with gateway.client("sk-alice") as client:
        got = client.ask("openai-chat", "with-fallback", QUESTION, streams=False)
        assert got.status == 200
    first, second = rows_of(ledger_path, got.headers["x-request-id"], 2)
    assert (first.attempt, first.provider, first.status, first.metering) == (1, "openai-chat", 503, "free")
    assert first.outcome == "overloaded"
    assert (second.attempt, second.provider, second.metering) == (2, "anthropic", "reported")
    assert first.prompt_tokens == 0
    assert second.prompt_tokens == 11


def test_a_request_that_no_target_answers_has_its_attempts(gateway: Rig, ledger_path: Path) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults += [CLOSED, CLOSED]  # a kept connection that was closed is replaced once, which is an attempt
    with gateway.client("sk-alice") as client:
        got = client.ask("anthropic", "to-anthropic", QUESTION, streams=False)
        assert got.status >= 500
    upstream.faults.clear()
    rows = rows_of(ledger_path, got.headers["x-request-id"])
    assert len(rows) == int(got.headers.get("x-antiphon-attempts", "1"))
    for row in rows:
        assert (row.status, row.metering) == (0, "free")
        assert row.outcome != "ok"


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", ["same", "other"])
def test_abandoned_streams_are_estimated(gateway: Rig, ledger_path: Path, source: str, target: str) -> None:
    source = target if source == "same" else ("anthropic" if target != "anthropic" else "openai-chat")
    upstream = gateway.upstreams[target]
    upstream.answer = lambda _: text_answer(LONG)
    upstream.faults.append(lambda reply: structs.replace(reply, body=reply.body[: len(reply.body) // 2], hangs=True))
    model = f"to-{target}"
    request = structs.replace(QUESTION, model=model, stream=None if source == "gemini" else True)
    body, _ = formats[source].encode_request(request)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    headers = {"content-type": "application/json", "authorization": "Bearer sk-alice"}
    connection.request("POST", path_of(source, model, streams=True), body, headers)
    response = connection.getresponse()
    received = b""
    while received.count("字".encode()) + received.count(b"\\u5b57") < 5:
        received += response.read1(1000)
    request_id = response.headers["x-request-id"]
    response.close()
    connection.close()
    (row,) = rows_of(ledger_path, request_id)
    assert (row.outcome, row.metering) == ("disconnected", "estimated")
    shown = len(LONG.encode()) // 2 // 4
    assert row.prompt_tokens > 0
    assert 0.3 * shown < row.completion_tokens < 1.5 * shown, "about half of the text was relayed"


@pytest.mark.parametrize("target", FORMATS)
def test_broken_streams_are_estimated(gateway: Rig, ledger_path: Path, target: str) -> None:
    upstream = gateway.upstreams[target]
    upstream.answer = lambda _: text_answer(LONG)
    upstream.faults.append(lambda reply: cut(len(reply.body) // 2)(reply))  # type: ignore[operator]
    with gateway.client("sk-alice") as client:
        got = client.ask(target, f"to-{target}", QUESTION, streams=True)
    (row,) = rows_of(ledger_path, got.headers["x-request-id"])
    assert (row.status, row.outcome, row.metering) == (200, "stream_cut", "estimated")
    assert row.completion_tokens > 0


def test_answers_without_usage_are_estimated_from_their_text(gateway: Rig, ledger_path: Path) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.answer = lambda _: structs.replace(text_answer("word " * 40), usage=None)
    found = {}
    with gateway.client("sk-alice") as client:
        for source in ("openai-chat", "anthropic"):
            got = client.ask(source, "to-openai-chat", QUESTION, streams=False)
            assert got.status == 200
            (found[source],) = rows_of(ledger_path, got.headers["x-request-id"])
    assert {row.metering for row in found.values()} == {"estimated"}
    assert {row.completion_tokens for row in found.values()} == {50}


def test_token_counts_and_embeddings_have_rows(gateway: Rig, ledger_path: Path) -> None:
    with gateway.client("sk-alice") as client:
        counted = client.post("/v1/messages/count_tokens", {"model": "to-anthropic", "max_tokens": 9, **CHAT})
        embedded = client.post("/v1/embeddings", {"model": "text-embedding-3-small", "input": "Is it raining?"})
    (row,) = rows_of(ledger_path, counted.headers["x-request-id"])
    assert (row.operation, row.provider, row.metering) == ("count_tokens", "anthropic", "free")
    (row,) = rows_of(ledger_path, embedded.headers["x-request-id"])
    assert (row.operation, row.model_served) == ("embeddings", "text-embedding-3-small")


def test_ollama_completions_and_background_answers_have_rows(gateway: Rig, ledger_path: Path) -> None:
    asked: dict[str, Callable[[Any], Any]] = {
        "ollama": lambda client: client.post("/api/chat", {"model": "to-openai-chat", "stream": False, **CHAT}),
        "openai-completions": lambda client: client.post(
            "/v1/completions", {"model": "to-openai-chat", "prompt": "Hi."}
        ),
        "openai-responses": lambda client: client.post(
            "/v1/responses", {"model": "to-openai-responses", "input": "Hi.", "background": True}
        ),
    }
    for client_format, ask in asked.items():
        with gateway.client("sk-alice") as client:
            got = ask(client)
            assert got.status == 200, got.body
        (row,) = rows_of(ledger_path, got.headers["x-request-id"])
        assert (row.client_format, row.metering, row.prompt_tokens) == (client_format, "reported", 11)


def test_refused_requests_have_no_rows(gateway: Rig, ledger_path: Path) -> None:
    with gateway.client("sk-alice") as client:
        refused = client.ask("openai-chat", "unknown-model", CHAT, streams=False)
        assert refused.status == 404
        answered = client.ask("openai-chat", "to-openai-chat", CHAT, streams=False)
    rows_of(ledger_path, answered.headers["x-request-id"])
    assert rows_of(ledger_path, refused.headers["x-request-id"], 0) == []


def test_spend_of_the_key_is_known(gateway: Rig, ledger_path: Path) -> None:
    with gateway.client("sk-alice") as client:
        got = client.ask("openai-chat", "to-openai-chat", CHAT, streams=False)
    rows_of(ledger_path, got.headers["x-request-id"])
    database = open_operator_database(str(ledger_path), create=False, read_only=True)
    (row,) = [row for row in spend(database, ("key", "model")) if row.model == "gpt-4o"]
    database.close()
    assert row.key == "alice"
    assert row.cost is not None
    assert row.cost > 0


def test_the_tier_that_changes_the_price_is_kept() -> None:
    assert price_variant(TokenUsage(), "flex") == '{"service_tier":"flex"}'
    assert price_variant(TokenUsage(raw={"service_tier": "standard"}), "priority") == ""
    assert price_variant(TokenUsage(raw={"service_tier": "batch"}), "") == '{"processing":"batch"}'
    assert price_variant(TokenUsage(), "auto") == ""
