"""Ledger rows of endpoints that are passed on and of responses over a WebSocket: their sums equal the upstream's own count."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import TokenUsage
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.config.settings import Config, LedgerSettings, ProviderSettings
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.spend import spend
from gateway.endpoints.test_pass_through import host
from gateway.rig import FAST, Client, rig, serving
from gateway.strict_upstream import ERROR_PAGE, hang, text_answer

COLUMNS = "operation, provider, model_asked, model_served, status, outcome, metering, prompt_tokens, completion_tokens"


def rows(path: Path) -> list[tuple[Any, ...]]:
    """The rows of a gateway that has stopped, in their order. The daily sums must equal them."""
    database = open_operator_database(str(path), create=False, read_only=True)
    try:
        found = list(database.rows(f"SELECT {COLUMNS} FROM attempts ORDER BY request_id, attempt"))
        sums = spend(database, ("provider",))
        assert sum(row.calls for row in sums) == len(found)
        assert sum(row.usage.total_tokens for row in sums) == sum(row[7] + row[8] for row in found)
        return found
    finally:
        database.close()


@contextmanager
def client_of(port: int) -> Iterator[Client]:
    client = Client(port)
    try:
        yield client
    finally:
        client.close()


def test_requests_that_are_passed_on_have_the_rows_of_the_upstream(tmp_path: Path) -> None:
    counted: Counter[str] = Counter()

    def reply(method: str, path: str) -> tuple[int, dict[str, str], bytes] | None:
        counted["calls"] += 1
        if not path.endswith(("/images/generations", "/audio/transcriptions")) or method != "POST":
            return None
        if counted["calls"] % 4 == 0:
            return 500, {"content-type": "application/json"}, b'{"error":{"message":"not now"}}'
        prompt, completion = 10 * counted["calls"], counted["calls"]
        counted["prompt"] += prompt
        counted["completion"] += completion
        usage = {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}
        body = {"created": 1, "data": [], "text": "hello", "usage": usage}
        return 200, {"content-type": "application/json"}, msgspec.json.encode(body)

    ledger = tmp_path / "ledger.db"
    with host() as (url, seen):
        seen.reply = reply
        provider = ProviderSettings(name="images", preset="openai", base_url=f"{url}/v1", keys=("env:KEY",), retries=0)
        config = Config(gateway=FAST, providers=(provider,), ledger=LedgerSettings(address=str(ledger)))
        with serving(config, {"KEY": "sk-up"}) as (port, _), client_of(port) as client:
            for number in range(12):
                path = "/v1/images/generations" if number % 2 else "/v1/audio/transcriptions"
                body = msgspec.json.encode({"model": "gpt-image-1", "prompt": "a cat"})
                client.request("POST", path, body)
            assert client.request("GET", "/v1/files").status == 200
            assert client.request("POST", "/v1/moderations", b'{"input":"hi"}').status == 200
            # an answer without usage
            assert client.request("POST", "/v1/batches", b'{"input_file_id":"file-1"}').status == 200
    found = rows(ledger)
    assert len(found) == counted["calls"] == 15
    assert sum(row[7] for row in found) == counted["prompt"] > 0
    assert sum(row[8] for row in found) == counted["completion"] > 0
    metering = Counter((row[0], row[4], row[6]) for row in found)
    assert metering["images", 200, "reported"] + metering["audio", 200, "reported"] == 9
    assert metering["images", 500, "free"] + metering["audio", 500, "free"] == 3
    assert [count for (operation, _, _), count in metering.items() if operation in ("files", "moderations")] == [1, 1]
    assert metering["batches", 200, "unknown"] == 1, "no usage is reported, and there is nothing to estimate it from"
    assert {row[1] for row in found} == {"images"}


def test_responses_over_a_websocket_have_the_rows_of_the_upstream(tmp_path: Path) -> None:
    pytest.importorskip("websockets.sync.client")
    pytest.importorskip("wsproto")
    from gateway.endpoints.responses_api.test_websocket import Connection

    counted: Counter[str] = Counter()

    def answer(request: ModelRequest) -> ModelOutput:
        counted["calls"] += 1
        prompt, completion = 100 + counted["calls"], 10 + counted["calls"]
        counted["prompt"] += prompt
        counted["completion"] += completion
        usage = TokenUsage(prompt_tokens=prompt, completion_tokens=completion)
        return structs.replace(text_answer("Well.", request.model), usage=usage)

    ledger = tmp_path / "ledger.db"
    models = {"with-backup": ["anthropic/claude-sonnet-4-5", "openai-chat/gpt-4o"]}
    with rig(models=models, ledger=LedgerSettings(address=str(ledger))) as gateway:
        for upstream in gateway.upstreams.values():
            upstream.answer = answer
        with Connection(gateway) as connection:
            for name in ("openai-responses", "anthropic", "gemini"):
                last = connection.ask(f"to-{name}", "Hi")
                assert last["type"] == "response.completed"
            connection.send(
                model="to-openai-chat", store=False, input="Hi", previous_response_id=last["response"]["id"]
            )
            assert connection.turn()[-1]["type"] == "response.completed"
            gateway.upstreams["anthropic"].faults.append(ERROR_PAGE)
            assert connection.ask("with-backup", "Hi")["type"] == "response.completed"
    found = rows(ledger)
    answered = [row for row in found if row[6] == "reported"]
    assert [row[1] for row in answered] == ["openai-responses", "anthropic", "gemini", "openai-chat", "openai-chat"]
    assert [row[4:7] for row in found if row not in answered] == [(502, "server", "free")]
    assert len(answered) == counted["calls"] == 5
    assert sum(row[7] for row in found) == counted["prompt"]
    assert sum(row[8] for row in found) == counted["completion"]


def test_a_websocket_that_is_closed_in_mid_answer_leaves_an_estimate(tmp_path: Path) -> None:
    pytest.importorskip("websockets.sync.client")
    pytest.importorskip("wsproto")
    from gateway.endpoints.responses_api.test_websocket import Connection

    ledger = tmp_path / "ledger.db"
    with rig(ledger=LedgerSettings(address=str(ledger))) as gateway:
        upstream = gateway.upstreams["anthropic"]
        upstream.answer = lambda request: text_answer("Word after word. " * 300, request.model)
        upstream.faults.append(hang(after=3_000))
        with Connection(gateway) as connection:
            connection.send(model="to-anthropic", store=False, input="Hi")
            while connection.receive()["type"] != "response.output_text.delta":
                pass
            connection.socket.socket.shutdown(socket.SHUT_RDWR)  # without the closing handshake, as a killed client
        deadline = time.monotonic() + 20
        while not upstream.gone.is_set():
            assert time.monotonic() < deadline, "the upstream was not left"
            time.sleep(0.01)
    (row,) = rows(ledger)
    assert row[4:7] == (200, "disconnected", "estimated")
    assert row[7] > 0
    assert row[8] > 0
