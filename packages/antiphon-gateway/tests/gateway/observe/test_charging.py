"""What a request is charged to a client with `tokens_per_minute`, whether the provider reports it or not."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon.parts import Image, Text, TokenUsage, text_of
from antiphon.prices import PriceOverride, PriceTable
from antiphon.providers.call import Attempt
from antiphon.wire import FORMATS, formats
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.generate.channels import without_usage
from antiphon_gateway.observe.record import Record, metered_usage, prompt_estimate, tokens_of, usage_rows
from antiphon_gateway.runtime.body_fields import stream_options, with_usage_requested
from gateway.rig import Client, Got, Rig, path_of, rig
from gateway.strict_upstream import cut, text_answer
from support.waiting import until

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
CHAT = {"messages": [{"role": "user", "content": "Is it raining?"}]}
LIMIT = 18
"""What one answer of an upstream costs."""
LONG = "One more word, ein Wort, 一个字. " * 20


@pytest.fixture
def gateway() -> Iterator[Rig]:
    keys = [
        ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True),
        ClientKeySettings(name="tight", key=hash_key("sk-tight"), tokens_per_minute=LIMIT),
    ]
    with rig(keys=keys) as running:
        yield running


def chunks(got: Got) -> list[Any]:
    """The chunks of a stream of Chat Completions."""
    assert got.status == 200, got.body
    lines = [line for line in got.body.split(b"\n") if line.startswith(b"data: {")]
    assert b"data: [DONE]" in got.body
    return [msgspec.json.decode(line.removeprefix(b"data: ")) for line in lines]


def test_usage_that_the_client_did_not_ask_for_is_charged_and_hidden(gateway: Rig) -> None:
    upstream = gateway.upstreams["openai-chat"]
    with gateway.client("sk-tight") as client:
        got = client.ask("openai-chat", "to-openai-chat", CHAT, streams=True)
        assert text_of(got.output("openai-chat", streams=True).parts) == "echo: Is it raining?"
        assert all(chunk["choices"] for chunk in chunks(got))
        assert not any(chunk.get("usage") for chunk in chunks(got))
        assert upstream.bodies[0]["stream_options"] == {"include_usage": True}
        limited = client.ask("openai-chat", "to-openai-chat", CHAT, streams=True)
        assert limited.status == 429


@pytest.mark.parametrize("piece", [1, 7, 0])
def test_the_usage_chunk_is_hidden_for_any_chunking(gateway: Rig, piece: int) -> None:
    gateway.upstreams["openai-chat"].piece = piece
    with gateway.client("sk-tight") as client:
        got = client.ask("openai-chat", "to-openai-chat", CHAT, streams=True)
        assert all(chunk["choices"] for chunk in chunks(got))


def test_usage_that_the_client_asked_for_is_passed_on(gateway: Rig) -> None:
    body = {**CHAT, "stream_options": {"include_usage": True}}
    with gateway.client("sk-tight") as client:
        got = client.ask("openai-chat", "to-openai-chat", body, streams=True)
        assert chunks(got)[-1]["usage"]["total_tokens"] == LIMIT
        assert client.ask("openai-chat", "to-openai-chat", body, streams=True).status == 429


def test_a_client_without_a_limit_sends_its_own_bytes_where_usage_is_not_recorded() -> None:
    body = b'{"model": "to-openai-chat",  "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
    with rig(ledger=LedgerSettings(enabled=False)) as gateway, gateway.client() as client:
        assert client.post("/v1/chat/completions", body).status == 200
        assert "stream_options" not in gateway.upstreams["openai-chat"].bodies[0]


def test_a_host_that_does_not_know_the_option_is_asked_without_it_and_the_stream_is_estimated(gateway: Rig) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.faults.append(upstream.error(400, "invalid_request", "Unrecognized request argument: stream_options"))
    with gateway.client("sk-tight") as client:
        got = client.ask("openai-chat", "to-openai-chat", CHAT, streams=True)
        assert text_of(got.output("openai-chat", streams=True).parts) == "echo: Is it raining?"
        assert ["stream_options" in body for body in upstream.bodies] == [True, False]
        assert client.ask("openai-chat", "to-openai-chat", CHAT, streams=True).status == 429
    with gateway.client("sk-operator") as client:
        client.ask("openai-chat", "to-openai-chat", CHAT, streams=True)
        assert ["stream_options" in body for body in upstream.bodies] == [True, False, False], "it is not asked again"


def records(gateway: Rig) -> list[Any]:
    with gateway.client("sk-operator") as client:
        return list(client.get("/status").json["requests"])


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", ["same", "other"])
def test_an_abandoned_stream_is_charged(gateway: Rig, target: str, source: str) -> None:
    source = target if source == "same" else ("anthropic" if target != "anthropic" else "openai-chat")
    upstream = gateway.upstreams[target]
    upstream.answer = lambda _: text_answer(LONG)
    upstream.faults.append(lambda reply: structs.replace(reply, body=reply.body[: len(reply.body) // 2], hangs=True))
    model = f"to-{target}"
    named = structs.replace(QUESTION, model=model, stream=None if source == "gemini" else True)
    body, _ = formats[source].encode_request(named)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    headers = {"content-type": "application/json", "authorization": "Bearer sk-tight"}
    connection.request("POST", path_of(source, model, streams=True), body, headers)
    response = connection.getresponse()
    received = b""
    while b"One" not in received:
        received += response.read1(100)
    response.close()
    connection.close()
    until(lambda: [record["status"] for record in records(gateway)] == [499], "the stream is recorded as abandoned")
    client = Client(gateway.port, "sk-tight")
    assert client.ask(source, model, QUESTION, streams=True).status == 429
    client.close()


@pytest.mark.parametrize("target", FORMATS)
def test_a_stream_that_breaks_is_charged(gateway: Rig, target: str) -> None:
    upstream = gateway.upstreams[target]
    upstream.answer = lambda _: text_answer(LONG)
    upstream.faults.append(lambda reply: cut(len(reply.body) // 2)(reply))  # type: ignore[operator]
    with gateway.client("sk-tight") as client:
        assert client.ask(target, f"to-{target}", QUESTION, streams=True).assembler(target).error is not None
        assert client.ask(target, f"to-{target}", QUESTION, streams=True).status == 429


@pytest.mark.parametrize("streams", [False, True])
def test_an_unanswered_request_is_not_charged(gateway: Rig, streams: bool) -> None:
    upstream = gateway.upstreams["anthropic"]
    with gateway.client("sk-tight") as client:
        for _ in range(3):
            upstream.faults.append(upstream.error(500, "server", "our fault"))
            assert client.ask("anthropic", "to-anthropic", QUESTION, streams=streams).status == 502
        assert client.ask("anthropic", "to-anthropic", QUESTION, streams=streams).status == 200


PRICES = (("first", 2), ("second", 3), ("third", 5))


def record(**fields: Any) -> Record:
    return Record(
        request_id="r", client_format="anthropic", prompt_estimate=10, **{"status": 200, "provider": "p", **fields}
    )


@pytest.mark.parametrize(
    ("given", "tokens", "metering"),
    [
        (record(usage=TokenUsage(10, 5, total_tokens=15), output_bytes=99), 15, "reported"),
        (record(output_bytes=41), 21, "estimated"),
        (record(status=499, client_left=True), 10, "estimated"),
        (record(status=499, client_left=True, provider=""), 0, "free"),
        (record(status=499, client_left=True, usage=TokenUsage(30, 1), output_bytes=40), 40, "estimated"),
        (record(error=ProviderError("cut"), first_token_seconds=1.0, output_bytes=40), 20, "estimated"),
        (record(status=502, error=ProviderError("no")), 0, "free"),
        (record(charges="unknown"), 0, "unknown"),
        (record(charges="free"), 0, "free"),
        (record(charges="free", usage=TokenUsage(3, 4)), 7, "reported"),
    ],
)
def test_charged_tokens_by_outcome(given: Record, tokens: int, metering: str) -> None:
    usage, source = metered_usage(given)
    assert (usage.total, source) == (tokens, metering)


def test_media_in_a_body_is_not_counted_by_its_bytes() -> None:
    words = b'{"messages": [{"content": "' + b"four " * 2000 + b'"}]}'
    assert 2500 <= prompt_estimate(words) <= 2520
    picture = b'{"messages": [{"content": [{"data": "' + b"A" * 4_000_000 + b'"}]}]}'
    assert 1000 <= prompt_estimate(picture) <= 1020
    pictures = b'{"url":"data:image/png;base64,%b", "text": "%b", "data" :\n"%b"}'
    known = prompt_estimate(pictures % (b"A" * 10_000, b"four " * 2000, b"B" * 9_000))
    assert 2 * MEDIA_TOKENS + 2500 <= known <= 2 * MEDIA_TOKENS + 2540
    listed = b'{"images": [' + b", ".join([b'"' + b"A" * 20_000 + b'"'] * 3) + b"]}"
    assert 3 * MEDIA_TOKENS <= prompt_estimate(listed) <= 3 * MEDIA_TOKENS + 20
    assert prompt_estimate(b"A" * 9000) == 2250
    assert prompt_estimate(b"") == 0


CHINESE = "今天天气很好，我们决定去公园散步，顺便讨论一下这个项目的进展和下一步的计划。"
LONG_TEXTS = {
    "chinese": CHINESE * 4000,
    "japanese": "今日は天気がとても良いので、公園に散歩に行きました。" * 4000,
    "thai": "วันนี้อากาศดีมากเราจึงตัดสินใจไปเดินเล่นที่สวนสาธารณะ" * 2000,
    "words without blanks": "hello_world_" * 20_000,
    "base64 as text": "QUJDREVGR0hJ" * 20_000,
    "text that looks like a field of media": '"data":"' + "QUJDREVGR0hJ" * 20_000,
    "english": "The quick brown fox jumps over the lazy dog. " * 4000,
}


def test_escaped_characters_of_a_long_body_are_estimated_from_samples() -> None:
    """Chinese between English, in turns that are no multiple of the distance of the samples."""
    text = "".join("The weather is fine today. " * 30 + "今天天气很好。" * (40 + number % 7) for number in range(400))
    plain, escaped = (json.dumps({"text": text}, ensure_ascii=is_escaped).encode() for is_escaped in (False, True))
    assert len(escaped) > 500_000
    assert prompt_estimate(escaped) == pytest.approx(prompt_estimate(plain), rel=0.1)


@pytest.mark.parametrize("kind", LONG_TEXTS)
@pytest.mark.parametrize("escaped", [False, True])
def test_a_prompt_is_estimated_by_its_text_whatever_its_script(escaped: bool, kind: str) -> None:
    text = LONG_TEXTS[kind]
    parts: list[Any] = [{"type": "text", "text": text}, {"type": "text", "text": "short"}]
    request = {"messages": [{"role": "user", "content": parts}], "model": "m", "stream": True}
    body = json.dumps(request, ensure_ascii=escaped).encode()
    tokens = len(text.encode()) / 4
    assert tokens <= prompt_estimate(body) <= tokens * 1.01 + 50


def test_an_abandoned_prompt_without_blanks_is_charged_as_the_text_it_is() -> None:
    keys = [
        ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True),
        ClientKeySettings(name="tight", key=hash_key("sk-tight"), tokens_per_day=50_000),
    ]
    body = {"model": "to-anthropic", "max_tokens": 5, "stream": True}
    body["messages"] = [{"role": "user", "content": CHINESE * 3000}]
    with rig(keys=keys) as gateway:
        gateway.upstreams["anthropic"].faults.append(lambda reply: structs.replace(reply, body=b"", hangs=True))
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        headers = {"content-type": "application/json", "authorization": "Bearer sk-tight"}
        connection.request("POST", "/v1/messages", json.dumps(body), headers)
        until(lambda: gateway.upstreams["anthropic"].bodies, "the provider has the request")
        connection.close()
        until(lambda: [record["status"] for record in records(gateway)] == [499], "it is recorded as abandoned")
        with gateway.client("sk-tight") as client:
            assert client.ask("anthropic", "to-anthropic", QUESTION, streams=True).status == 429


@pytest.mark.parametrize("source", ["openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"])
def test_media_of_every_format_are_recognised(source: str) -> None:
    picture = Image("image/png", base64.b64encode(b"\x89PNG\r\n" + bytes(range(256)) * 400).decode())
    message = Message("user", (Text(CHINESE * 1000), picture, Text(CHINESE * 1000), picture, Text(CHINESE)))
    body, losses = formats[source].encode_request(ModelRequest(model="m", messages=(message,)))
    assert not losses
    tokens = len(CHINESE.encode()) * 2001 / 4 + 2 * MEDIA_TOKENS
    assert tokens <= prompt_estimate(body) <= tokens * 1.01 + 200


@pytest.mark.slow
def test_the_estimate_is_linear() -> None:
    """Many long strings, with and without quotes inside: no part of a body is read once per string."""
    for pattern in ("字" * 2000 + '"', "字" * 2000, '"' * 3 + "x" * 5000, "x" * 4095 + '"'):
        seconds = []
        for repeats in (1000, 4000):
            body = json.dumps({"messages": [pattern] * repeats}, ensure_ascii=False).encode()
            began = time.process_time()
            for _ in range(5):
                prompt_estimate(body)
            seconds.append(time.process_time() - began)
        assert seconds[1] < 16 * seconds[0] + 0.05, (pattern[:3], seconds)


def test_asking_for_usage_changes_only_the_usage() -> None:
    body = b'{"model": "m", "stream_options": {"include_obfuscation": false}, "x": {"a" : 1.0}}'
    asked = with_usage_requested(body, stream_options(body))
    assert stream_options(asked) == {"include_obfuscation": False, "include_usage": True}
    assert stream_options(body) == {"include_obfuscation": False}
    assert b'"x":{"a" : 1.0}' in asked
    assert b'"include_obfuscation":false' in asked


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n"])
def test_only_the_chunk_of_usage_is_taken_out(blank: bytes) -> None:
    filters = b'data: {"choices": [], "prompt_filter_results": [{}]}'
    text = b'data: {"choices":[{"delta":{"content":"\\"choices\\":[]"}}],"usage":null}'
    usage = b'data: {"choices": [ ], "usage": {"total_tokens": 3}}'
    last = b"data: [DONE]"
    stream_bytes = blank.join([filters, text, usage, last, b""])
    assert without_usage(stream_bytes) == blank.join([filters, text, last, b""])
    assert without_usage(text + blank) == text + blank


def test_a_stream_that_another_target_finished_is_charged_too() -> None:
    """The second answer reports its usage; the first one was cut before it could, so it is estimated."""
    record = Record(request_id="r", client_format="openai-chat", prompt_estimate=8, status=200)
    record.usage, record.broken_tokens = TokenUsage(prompt_tokens=10, completion_tokens=5), 20
    record.attempts += [Attempt(provider="first", status=200), Attempt(provider="second", status=200)]
    broken, answered = rows = usage_rows(record, PriceTable())
    assert tokens_of(rows) == 35
    assert (broken.metering, broken.prompt_tokens, broken.completion_tokens) == ("estimated", 8, 12)
    assert (answered.metering, answered.prompt_tokens, answered.completion_tokens) == ("reported", 10, 5)


def test_budgets_are_charged_what_the_rows_of_the_ledger_have() -> None:
    table = PriceTable([PriceOverride(model="m", provider=name, input=price, output=price) for name, price in PRICES])
    lost = ProviderError("cut before anything was shown", "stream_cut")
    record = Record(request_id="r", client_format="openai-chat", prompt_estimate=8, status=200, provider="third")
    record.usage, record.broken_tokens, record.model = TokenUsage(prompt_tokens=10, completion_tokens=5), 20, "m"
    record.attempts += [
        Attempt(provider="first", model="m", status=200, error=lost),
        Attempt(provider="second", model="m", status=200),
        Attempt(provider="third", model="m", status=200),
    ]
    rows = usage_rows(record, table)
    assert [row.cost for row in rows] == [8 * 2_000, 20 * 3_000, 15 * 5_000]
    assert {row.price_version for row in rows} == {table.version}
    assert tokens_of(rows) == 8 + 20 + 15

    failed = Record(request_id="r", client_format="openai-chat", prompt_estimate=8, status=502, error=lost)
    failed.attempts.append(Attempt(provider="first", model="m", status=200, error=lost))
    (row,) = rows = usage_rows(failed, table)
    assert (tokens_of(rows), row.cost) == (8, 8 * 2_000)
    (row,) = usage_rows(failed, PriceTable())
    assert row.cost is None, "an unknown price is not 0"
