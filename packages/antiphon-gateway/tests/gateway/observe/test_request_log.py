"""The log of a request: every fact is a field, a rejected key and a fallback each get one warning, nothing comes twice."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from antiphon.logs import LogHandler, configure_logs
from antiphon_gateway.app import HANDLERS
from antiphon_gateway.generate.generation import Generation
from gateway.rig import FAST, KEY, Client, Got, Rig, rig
from gateway.strict_upstream import cut, hang
from support.repository import ROOT
from support.waiting import until

DOCS = ROOT / "docs"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
ANTHROPIC_HELLO = {**HELLO, "max_tokens": 50}
PATIENT = structs.replace(FAST, hold_seconds=60.0)
EARLY = structs.replace(FAST, hold_seconds=0.05, keep_alive_seconds=0.05)
SHORT = structs.replace(PATIENT, request_seconds=1.0)


class GatewayLog:
    """A gateway whose lines are read as they are written."""

    def __init__(self, gateway: Rig, stream: io.StringIO) -> None:
        self.gateway = gateway
        self._stream = stream

    def lines(self, request_id: str) -> list[dict[str, Any]]:
        """Every line of a request."""
        lines = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in lines if line.get("request_id") == request_id]

    def of(self, got: Got) -> list[dict[str, Any]]:
        """The lines of a request, its own last."""
        request_id = got.headers["x-request-id"]
        until(lambda: any("outcome" in line for line in self.lines(request_id)))
        return self.lines(request_id)

    def warnings(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in lines if line["level"] == "warning"]


@pytest.fixture
def gateway_log(request: pytest.FixtureRequest) -> Iterator[GatewayLog]:
    """A gateway with its log; the parameter, if there is one, has its settings."""
    stream = io.StringIO()
    root, ours = logging.getLogger(), logging.getLogger("antiphon")
    levels = root.level, ours.level
    models = {"with-backup": ["anthropic/claude-sonnet-4-5", "openai-chat/gpt-4o"]}
    with rig(getattr(request, "param", PATIENT), models=models) as gateway:
        handler = configure_logs("json", "info", stream=stream)
        yield GatewayLog(gateway, stream)
    root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def client(gateway_log: GatewayLog) -> Iterator[Client]:
    with gateway_log.gateway.client() as client:
        yield client


def test_an_answered_request_is_one_line_with_every_fact(gateway_log: GatewayLog, client: Client) -> None:
    got = client.ask("openai-chat", "to-anthropic", HELLO, streams=True)
    [line] = gateway_log.of(got)
    expected = {
        "level": "info",
        "status": 200,
        "outcome": "answered",
        "operation": "chat",
        "client_format": "openai-chat",
        "upstream_format": "anthropic",
        "key": "",
        "model": "to-anthropic",
        "provider": "anthropic",
        "target_model": "claude-sonnet-4-5",
        "streamed": True,
        "attempts": 1,
        "credential": "env:KEY_ANTHROPIC",
        "input_tokens": 11,
        "output_tokens": 7,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
        "repairs": [],
        "losses": [],
    }
    assert line.items() >= expected.items()
    assert 0 < line["ttft_seconds"] <= line["seconds"]
    assert line["overhead_ms"] > 0
    assert not {"error", "fallback_reason", "attempt_outcomes", "began_early"} & set(line)


def test_every_field_is_documented_in_both_languages(gateway_log: GatewayLog, client: Client) -> None:
    upstream = gateway_log.gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(529, "overloaded", "Overloaded"))
    upstream.faults.append(cut(300))
    seen: set[str] = set()
    for model in ("with-backup", "to-anthropic", "to-anthropic", "unknown-model"):
        [*_, line] = gateway_log.of(client.ask("openai-chat", model, HELLO, streams=True))
        seen |= set(line)
    english, chinese = map(documented_fields, ("gateway/monitoring.md", "zh/gateway.md"))
    assert chinese == english
    assert seen - {"time", "level", "logger", "message"} <= set(english)
    assert seen >= set(english) - {"began_early", "cache_doctor"}, "a listed field is never written"


def documented_fields(page: str) -> list[str]:
    """The fields in the first table after the mark on a page."""
    _, table, _ = (DOCS / page).read_text().partition("<!-- log fields -->")[2].split("\n\n", 2)
    return re.findall(r"^\| `(\w+)` \| ", table, re.MULTILINE)


def test_a_rejected_key_is_one_warning(gateway_log: GatewayLog, client: Client) -> None:
    upstream = gateway_log.gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(401, "authentication", "invalid x-api-key"))
    got = client.ask("anthropic", "to-anthropic", ANTHROPIC_HELLO, streams=False)
    assert got.status == 502
    warning, line = gateway_log.of(got)
    assert (warning["event"], warning["credential"], warning["upstream_status"]) == (
        "key_rejected",
        "env:KEY_ANTHROPIC",
        401,
    )
    assert "rejected key env:KEY_ANTHROPIC (401); replace the key" in warning["message"]
    assert (line["outcome"], line["error_kind"]) == ("failed", "authentication")
    assert [one["status"] for one in line["attempt_outcomes"]] == [401]
    assert KEY.format("anthropic") not in json.dumps([warning, line])


def test_a_rejected_key_of_a_token_count_is_one_warning(gateway_log: GatewayLog, client: Client) -> None:
    upstream = gateway_log.gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(401, "authentication", "invalid x-api-key"))
    body = {**HELLO, "model": "to-anthropic"}
    got = client.post("/v1/messages/count_tokens", body)
    assert got.status == 502
    warning, line = gateway_log.of(got)
    assert warning["event"] == "key_rejected"
    assert (line["operation"], line["provider"], line["outcome"]) == ("count_tokens", "anthropic", "failed")


def test_a_fallback_is_one_warning_and_a_field(gateway_log: GatewayLog, client: Client) -> None:
    upstream = gateway_log.gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(529, "overloaded", "Overloaded"))
    got = client.ask("openai-chat", "with-backup", HELLO, streams=False)
    assert got.status == 200
    warning, line = gateway_log.of(got)
    assert (warning["level"], warning["event"]) == ("warning", "fallback")
    assert (warning["failed_target"], warning["target"]) == ("anthropic/claude-sonnet-4-5", "openai-chat/gpt-4o")
    assert "overloaded: Overloaded" in line["fallback_reason"]
    assert (line["level"], line["outcome"], line["provider"], line["attempts"]) == (
        "info",
        "answered",
        "openai-chat",
        2,
    )
    assert [one["error"][:10] for one in line["attempt_outcomes"]] == ["overloaded", ""]


def test_a_target_without_a_usable_key_is_a_reason_for_a_fallback(gateway_log: GatewayLog, client: Client) -> None:
    switch = {"provider": "anthropic", "credential": "env:KEY_ANTHROPIC", "enabled": False}
    assert client.post("/credentials", switch).status == 200
    _, line = gateway_log.of(client.ask("openai-chat", "with-backup", HELLO, streams=False))
    assert "env:KEY_ANTHROPIC is disabled" in line["fallback_reason"]
    assert line["attempts"] == 1


def test_a_repair_is_reported_once(gateway_log: GatewayLog, client: Client) -> None:
    orphan = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
    body = {"messages": [{"role": "user", "content": "2+2?"}, orphan]}
    [line] = gateway_log.of(client.ask("openai-chat", "to-anthropic", body, streams=False))
    assert line["repairs"]


def test_a_mistake_of_the_client_is_not_a_warning(gateway_log: GatewayLog, client: Client) -> None:
    [line] = gateway_log.of(client.ask("openai-chat", "unknown-model", HELLO, streams=False))
    assert (line["level"], line["status"], line["outcome"], line["error_kind"]) == (
        "info",
        404,
        "refused",
        "not_found",
    )


@pytest.mark.parametrize("gateway_log", [EARLY], indirect=True)
def test_a_stream_that_began_early_and_failed_is_logged_as_failed(gateway_log: GatewayLog, client: Client) -> None:
    upstream, gate = gateway_log.gateway.upstreams["anthropic"], threading.Event()
    late = structs.replace(upstream.error(529, "overloaded", "Overloaded"), gate=gate)
    upstream.faults.append(late)
    timer = threading.Timer(0.5, gate.set)
    timer.start()
    got = client.ask("openai-chat", "to-anthropic", HELLO, streams=True)
    timer.join()
    assert got.status == 200
    [line] = gateway_log.of(got)
    assert (line["level"], line["status"], line["outcome"]) == ("warning", 200, "failed")
    assert (line["began_early"], line["error_kind"]) == (True, "overloaded")


@pytest.mark.parametrize("gateway_log", [EARLY], indirect=True)
def test_an_answer_in_the_background_does_not_begin_early(gateway_log: GatewayLog, client: Client) -> None:
    gate = threading.Event()
    gateway_log.gateway.upstreams["anthropic"].faults.append(lambda reply: structs.replace(reply, gate=gate))
    timer = threading.Timer(0.5, gate.set)
    timer.start()
    got = client.post("/v1/responses", {"model": "to-anthropic", "input": "Hello", "background": True})
    timer.join()
    [line] = gateway_log.of(got)
    assert (line["status"], line["streamed"]) == (200, True)
    assert "began_early" not in line, "no client got its head"


@pytest.mark.parametrize("gateway_log", [SHORT], indirect=True)
@pytest.mark.parametrize("streams", [True, False])
def test_a_timeout_is_logged_once(gateway_log: GatewayLog, client: Client, streams: bool) -> None:
    gateway_log.gateway.upstreams["anthropic"].faults.append(hang())
    got = client.ask("anthropic", "to-anthropic", ANTHROPIC_HELLO, streams=streams)
    [line] = gateway_log.of(got)
    assert (line["status"], line["outcome"], line["error_kind"]) == (504, "failed", "timeout")


def test_the_console_form_has_the_same_fields(gateway_log: GatewayLog, client: Client) -> None:
    stream = io.StringIO()
    handler = configure_logs("console", "info", stream=stream)
    client.ask("openai-chat", "to-anthropic", HELLO, streams=False)
    line = until(lambda: stream.getvalue())
    assert isinstance(handler, LogHandler)
    for part in ("openai-chat to-anthropic -> anthropic/claude", "outcome=answered", "attempts=1", "input_tokens=11"):
        assert part in line


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("streams", [False, True])
def test_an_internal_error_is_one_line_with_the_traceback(
    gateway_log: GatewayLog, client: Client, monkeypatch: pytest.MonkeyPatch, path: str, streams: bool
) -> None:
    """Also of an answer that is generated in the background."""
    is_background = path == "/v1/responses"

    async def fail(_: object) -> None:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr(Generation, "answer", fail)
    body = {"model": "to-openai-chat", "stream": streams, **HELLO}
    if is_background:
        body = {"model": "to-openai-chat", "stream": streams, "input": "Hello", "background": True}
    got = client.post(path, body)
    assert got.status == (200 if is_background else 500)
    [line] = gateway_log.of(got)
    assert (line["level"], line["status"], line["error_kind"]) == ("error", 500, "server")
    assert "ZeroDivisionError: a defect of ours" in line["exception"]


def test_an_error_of_an_endpoint_without_a_request_line_is_logged_once(
    gateway_log: GatewayLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setitem(HANDLERS, "list_models", fail)
    got = client.get("/v1/models")
    assert got.status == 500
    [line] = gateway_log.lines(got.headers["x-request-id"])
    assert "ZeroDivisionError: a defect of ours" in line["exception"]
