"""The cache doctor in the gateway: header, status, log and page; nothing without the option; no text is kept."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from antiphon.logs import configure_logs
from antiphon.parts import TokenUsage
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.config.settings import CacheDoctorSettings, ClientKeySettings
from gateway.rig import FAST, Client, Got, Rig, rig
from gateway.strict_upstream import echo
from support.waiting import until

RULES = "Secret rules: answer in one sentence, and name the source of every number. " * 200
NORMALISE = CacheDoctorSettings(enabled=True, normalise=("clock", "billing-header"))
STRICT = ClientKeySettings(name="strict", key="env:STRICT_KEY", strict=True)
PLAIN = ClientKeySettings(name="plain", key="env:PLAIN_KEY", admin=True)
OTHER = ClientKeySettings(name="other", key="env:OTHER_KEY")
ENVIRON = {"STRICT_KEY": "sk-strict-0123456789", "PLAIN_KEY": "sk-plain-0123456789", "OTHER_KEY": "sk-other-0123456789"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig(cache_doctor=NORMALISE, keys=[STRICT, PLAIN, OTHER], environ=ENVIRON) as served:
        yield served


@pytest.fixture
def client(gateway: Rig) -> Iterator[Client]:
    gateway.clear()
    with gateway.client(ENVIRON["PLAIN_KEY"]) as client:
        yield client


def body(*texts: str, system: str = RULES) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"max_tokens": 9, "system": system, "cache_control": {"type": "ephemeral"}, "messages": messages}


def with_cached(tokens: int) -> Any:
    """An answer that reports how much of 4,000 tokens was read from the cache."""

    def answer(request: ModelRequest) -> ModelOutput:
        usage = TokenUsage(prompt_tokens=4_000, completion_tokens=2, cached_tokens=tokens)
        return structs.replace(echo(request), usage=usage)

    return answer


def record_of(client: Client, got: Got) -> dict[str, Any]:
    """What /status has about a request."""

    def found() -> list[dict[str, Any]]:
        records = client.get("/status?format=json").json["requests"]
        return [one for one in records if one["id"] == got.headers["x-request-id"]]

    until(lambda: bool(found()))
    return found()[0]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("client_format", ["anthropic", "openai-chat"])
def test_each_answer_has_the_prediction(gateway: Rig, client: Client, client_format: str, streams: bool) -> None:
    """A body that is passed on and one that is translated; what counts is what is sent upstream."""
    target = "to-anthropic" if client_format == "anthropic" else "to-openai-chat"
    name = f"{client_format} {streams}"
    sent = [
        body(f"Hi {name}."),
        body(f"Hi {name}.", "Yes?", "Go."),
        body(f"Hi {name}.", "Yes?", "Go.", system=name + RULES),
    ]
    if client_format == "openai-chat":
        sent = [{"messages": [{"role": "system", "content": one["system"]}, *one["messages"]]} for one in sent]
    upstream = gateway.upstreams[client_format]
    headers = []
    for cached, one in zip((0, 3_900, 0), sent, strict=True):
        upstream.answer = with_cached(cached)
        got = client.ask(client_format, target, one, streams=streams)
        assert got.status == 200, got.body
        headers.append(got.headers["x-antiphon-cache"])
    field = "system" if client_format == "anthropic" else "messages[0].content"
    assert headers[0].startswith("first; predicted=")
    assert headers[1].startswith("hit; predicted=3")
    assert "; field=" not in headers[1]
    assert headers[2].startswith("changed; predicted=0; prompt=")
    assert f"; field={field}; byte=" in headers[2]
    cache = record_of(client, got)["cache"]
    assert (cache["verdict"], cache["field"], cache["change"]) == ("changed", field, "changed")
    assert cache["lost_tokens"] > 3_000
    assert float(cache["lost_usd"]) > 0
    assert "Secret rules" not in json.dumps(cache)


def test_a_translated_request_is_judged_as_it_is_sent(gateway: Rig, client: Client) -> None:
    got = client.ask("openai-chat", "to-anthropic", {"messages": [{"role": "user", "content": RULES}]}, streams=False)
    assert got.headers["x-antiphon-cache"].startswith("no_breakpoints; predicted=0")


def test_clients_are_not_compared_with_each_other(gateway: Rig, client: Client) -> None:
    client.ask("anthropic", "to-anthropic", body("Between us."), streams=False)
    with gateway.client(ENVIRON["OTHER_KEY"]) as other:
        got = other.ask("anthropic", "to-anthropic", body("Between us.", system="X" + RULES), streams=False)
    assert got.headers["x-antiphon-cache"].startswith("first; ")


def test_a_failed_request_has_no_prediction_and_stores_nothing(gateway: Rig, client: Client) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(400, "invalid_request", "no"))
    failed = client.ask("anthropic", "to-anthropic", body("This question fails the first time."), streams=False)
    assert (failed.status, failed.headers.get("x-antiphon-cache")) == (400, None)
    assert record_of(client, failed)["cache"] is None
    again = client.ask(
        "anthropic", "to-anthropic", body("This question fails the first time.", "Yes?", "Go."), streams=False
    )
    assert again.headers["x-antiphon-cache"].startswith("first; ")


def test_the_log_line_has_the_finding(client: Client) -> None:
    stream = io.StringIO()
    root, ours = logging.getLogger(), logging.getLogger("antiphon")
    levels = root.level, ours.level
    handler = configure_logs("json", "info", stream=stream)
    try:
        got = client.ask("anthropic", "to-anthropic", body("For the log."), streams=False)
        until(lambda: got.headers["x-request-id"] in stream.getvalue())
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
    [line] = [json.loads(one) for one in stream.getvalue().splitlines() if got.headers["x-request-id"] in one]
    assert line["cache_doctor"]["verdict"] in ("first", "too_short")
    assert "Secret rules" not in stream.getvalue()


def test_the_status_shows_it(gateway: Rig, client: Client) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.answer = with_cached(0)
    for system in (RULES, "X" + RULES):
        got = client.ask("anthropic", "to-anthropic", body("A status.", system=system), streams=False)
    found = record_of(client, got)["cache"]
    assert (found["verdict"], found["field"]) == ("changed", "system")
    assert found["lost_tokens"] > 0


LINES = "x-anthropic-billing-header: cc_version=2; cch={};\nCurrent time: 2026-11-16 10:{}:00\n"


def test_volatile_lines_are_made_stable_and_reported(gateway: Rig, client: Client) -> None:
    headers = []
    for number in (10, 11):
        system = LINES.format(f"a{number}", number) + RULES
        got = client.ask("anthropic", "to-anthropic", body("Hi, lines.", system=system), streams=False)
        headers.append(got.headers)
    first, second = gateway.upstreams["anthropic"].bodies
    assert first["system"] == second["system"]
    assert first["system"].startswith("x-anthropic-billing-header: cc_version=2;\nCurrent time: 2026-11-16\n")
    assert headers[1]["x-antiphon-losses"] == "2; system clock, system billing-header"
    assert headers[1]["x-antiphon-cache"].startswith("hit; ")
    assert "cache_doctor.normalise" in record_of(client, got)["losses"][0]


def test_a_strict_key_is_left_alone(gateway: Rig, client: Client) -> None:
    system = LINES.format("a", 10) + RULES
    with gateway.client(ENVIRON["STRICT_KEY"]) as strict:
        got = strict.ask("anthropic", "to-anthropic", body("Hi, strict.", system=system), streams=False)
    assert got.status == 200
    assert gateway.upstreams["anthropic"].bodies[-1]["system"] == system


def test_nothing_happens_without_the_options() -> None:
    system = LINES.format("a", 10) + RULES
    with rig(FAST) as served, served.client() as client:
        got = client.ask("anthropic", "to-anthropic", body("Hi.", system=system), streams=False)
        assert not {"x-antiphon-cache", "x-antiphon-losses"} & set(got.headers)
        assert served.upstreams["anthropic"].bodies[-1]["system"] == system
        assert record_of(client, got)["cache"] is None
