"""Counting tokens: what is counted here, and what is sent to those who count for themselves."""

from __future__ import annotations

import contextlib
import http.client
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.errors import WireError
from antiphon.providers.presets import PRESETS
from antiphon_gateway.endpoints.tokens import (
    ESTIMATE_HEADER,
    count_here,
    count_url,
    read_count_request,
    request_tokens,
)
from antiphon_gateway.runtime.body_fields import rename_gemini_models, replace_model
from gateway.rig import FAST, rig
from gateway.strict_upstream import hang
from support.local_server import LocalServer
from support.waiting import until
from wire.gemini.official_sdk import Server

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Is it raining in Oslo?"}]}
TOOL = {
    "name": "weather",
    "description": "Current weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CONTENTS = [{"role": "user", "parts": [{"text": "Is it raining in Oslo?"}]}]


def tokens(body: dict[str, Any], format_name: str = "anthropic") -> int:
    return request_tokens(read_count_request(format_name, msgspec.json.encode(body)))


def test_system_prompt_and_tools_are_counted() -> None:
    plain = tokens(HELLO)
    assert 5 <= plain <= 30
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    longer: list[dict[str, Any]] = [
        {"system": "You are a meteorologist."},
        {"tools": [TOOL]},
        {"messages": [*HELLO["messages"], {"role": "assistant", "content": "No."}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Is it raining in Oslo?"}, image]}]},
    ]
    for more in longer:
        assert tokens({**HELLO, **more}) > plain, more
    twice = {**HELLO, "messages": [{"role": "user", "content": "Is it raining in Oslo? " * 100}]}
    assert 500 < tokens(twice) < 1500


def test_a_tool_costs_the_tokens_of_its_schema() -> None:
    wide = {**TOOL, "input_schema": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(50)}}}
    assert tokens({**HELLO, "tools": [wide]}) > tokens({**HELLO, "tools": [TOOL]}) + 200


@pytest.mark.parametrize("wrap", [False, True])
def test_gemini_may_wrap_the_request(wrap: bool) -> None:
    inner = {"contents": CONTENTS, "systemInstruction": {"parts": [{"text": "Be brief."}]}}
    body: dict[str, Any] = {"generateContentRequest": {"model": "models/m", **inner}} if wrap else inner
    assert tokens(body, "gemini") == tokens({**HELLO, "system": "Be brief."})


@pytest.mark.parametrize(
    ("format_name", "body"),
    [
        ("anthropic", b"{"),
        ("anthropic", b"[]"),
        ("anthropic", b"\xff"),
        ("gemini", b"[1]"),
        ("gemini", b'{"contents": 3}'),
        ("gemini", b'{"generateContentRequest": "text"}'),
        ("gemini", b"[" * 100_000),
    ],
)
def test_an_invalid_body_is_refused(format_name: str, body: bytes) -> None:
    with pytest.raises(WireError):
        read_count_request(format_name, body)


def test_the_answer_is_marked_as_an_estimate() -> None:
    answer = count_here("anthropic", read_count_request("anthropic", msgspec.json.encode(HELLO)))
    assert answer.headers[ESTIMATE_HEADER] == "1"
    assert answer.status == 200


def test_anthropic_reads_it() -> None:
    anthropic = pytest.importorskip("anthropic")
    with LocalServer() as server, anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0) as client:
        answer = count_here("anthropic", read_count_request("anthropic", msgspec.json.encode(HELLO)))
        assert isinstance(answer.body, bytes)
        server.answer(200, "application/json", answer.body)
        counted = client.messages.count_tokens(**HELLO)
        assert counted.input_tokens == tokens(HELLO)
        assert read_count_request("anthropic", server.received) == read_count_request(
            "anthropic", msgspec.json.encode(HELLO)
        )


def test_gemini_reads_it() -> None:
    with Server() as server:
        answer = count_here("gemini", read_count_request("gemini", msgspec.json.encode({"contents": CONTENTS})))
        assert isinstance(answer.body, bytes)
        server.answer(msgspec.json.decode(answer.body))
        counted = server.client.models.count_tokens(model="m", contents="Is it raining in Oslo?")
        assert counted.total_tokens == tokens({"contents": CONTENTS}, "gemini")
        assert tokens(server.requests[0], "gemini") == counted.total_tokens


@pytest.mark.parametrize(
    ("preset", "base_url", "address"),
    [
        ("anthropic", "https://api.anthropic.com", "https://api.anthropic.com/v1/messages/count_tokens"),
        ("anthropic", "https://host/v1", "https://host/v1/messages/count_tokens"),
        ("gemini", "https://host", "https://host/v1beta/models/some-model:countTokens"),
        ("gemini", "https://host/v1beta", "https://host/v1beta/models/some-model:countTokens"),
        ("openai", "https://api.openai.com/v1", None),
        ("openai-responses", "https://api.openai.com/v1", "https://api.openai.com/v1/responses/input_tokens"),
    ],
)
def test_the_url_of_a_token_count_upstream(preset: str, base_url: str, address: str | None) -> None:
    assert count_url(PRESETS[preset].at_host(base_url), "some-model") == address


@pytest.mark.parametrize(
    ("format_name", "body", "sent"),
    [
        ("anthropic", b'{"model": "a", "messages": [ 1.0 ]}', b'{"model":"b","messages":[ 1.0 ]}'),
        ("anthropic", b'{"model":"x","model":"a"}', b'{"model":"b"}'),
        ("gemini", b'{"contents": [ ]}', b'{"contents": [ ]}'),
        (
            "gemini",
            b'{"generateContentRequest": {"model": "models/a"}}',
            b'{"generateContentRequest":{"model":"models/b"}}',
        ),
        ("gemini", b'{"generateContentRequest": {"contents": []}}', b'{"generateContentRequest": {"contents": []}}'),
    ],
)
def test_the_body_of_a_token_count_upstream(format_name: str, body: bytes, sent: bytes) -> None:
    rename = rename_gemini_models if format_name == "gemini" else replace_model
    assert rename(body, "b") == sent


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/count_tokens", {"model": "to-anthropic", "messages": [{"role": "user", "content": "{text}"}]}),
        ("/api/embed", {"model": "embed", "input": "{text}"}),
    ],
)
def test_the_copies_of_a_body_are_counted_while_it_is_worked_on(path: str, body: dict[str, Any]) -> None:
    settings = structs.replace(FAST, max_buffered_bytes=1_000_000)
    question = {"model": "to-openai-chat", "messages": [{"role": "user", "content": "x" * 300_000}]}
    with rig(settings, models={"embed": ["openai-chat/text-embedding-3-small"]}) as gateway:
        upstream = gateway.upstreams["openai-chat"]
        upstream.faults.append(hang())
        with gateway.client() as first, gateway.client() as second, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(first.post, "/v1/chat/completions", question)
            until(lambda: upstream.received)
            long, short = (
                msgspec.json.encode(body).replace(b"{text}", b"word " * count) for count in (390_000 // 5, 100)
            )
            refused, answered = second.post(path, long), second.post(path, short)
            first._connection.sock.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError, http.client.HTTPException):
                waiting.result(10)
    assert refused.status == 503, refused.body[:300]
    assert answered.status != 503, answered.body[:300]
    assert b"max_buffered_bytes" in refused.body
