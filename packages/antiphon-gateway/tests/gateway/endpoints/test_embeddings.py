"""Embeddings: where they are made, what is sent there, and the errors where they are not supported."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.errors import WireError
from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import Timeouts
from antiphon.providers.call import CallReport
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.provider_call import ProviderCall
from antiphon.providers.engine.reply import UpstreamFailed, WholeReply
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.presets import PRESETS
from antiphon.providers.retry import RetryPolicy
from antiphon.providers.routes import Target
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, ModelSettings, ProviderSettings
from antiphon_gateway.endpoints.embeddings import embeddings_unsupported, embeddings_url
from antiphon_gateway.errors import error_response, provider_error_response
from antiphon_gateway.runtime.body_fields import read_model_name, replace_model
from gateway.rig import FAST, Rig, rig, serving
from gateway.strict_upstream import hang
from providers.scripted_server import Reply, ScriptedServer
from support.local_server import LocalServer

SECRET = "sk-a-secret-of-the-gateway"


@pytest.mark.parametrize(
    ("preset", "base_url", "address"),
    [
        ("openai", "https://api.openai.com/v1", "https://api.openai.com/v1/embeddings"),
        ("openai-responses", "https://api.openai.com/v1", "https://api.openai.com/v1/embeddings"),
        ("ollama", "http://localhost:11434", "http://localhost:11434/v1/embeddings"),
        ("ollama", "http://localhost:11434/v1", "http://localhost:11434/v1/embeddings"),
        ("azure-openai", "https://x.openai.azure.com/openai/v1", "https://x.openai.azure.com/openai/v1/embeddings"),
        (
            "azure-openai",
            "https://x.openai.azure.com",
            "https://x.openai.azure.com/openai/deployments/small/embeddings?api-version=2024-10-21",
        ),
        ("anthropic", "https://api.anthropic.com", None),
        (
            "gemini",
            "https://generativelanguage.googleapis.com",
            "https://generativelanguage.googleapis.com/v1beta/models/small:batchEmbedContents",
        ),
    ],
)
def test_the_upstream_url_of_embeddings(preset: str, base_url: str, address: str | None) -> None:
    assert embeddings_url(PRESETS[preset].at_host(base_url), "small") == address


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.format.startswith("openai")])
def test_every_provider_of_openais_formats_has_an_address(name: str) -> None:
    address = embeddings_url(PRESETS[name].at_host("https://host"), "small")
    assert address is not None
    assert "/embeddings" in address
    assert "chat" not in address


def test_everything_but_the_model_is_passed_on_as_it_was_written() -> None:
    body = b'{"input": ["\\u00e9", [1, 2]], "model": "mine", "dimensions": 1e2, "later": {"a" : null}}'
    assert read_model_name(body) == "mine"
    sent = replace_model(body, "theirs")
    assert sent == b'{"input":["\\u00e9", [1, 2]],"model":"theirs","dimensions":1e2,"later":{"a" : null}}'


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{", b'{"input": "x"}', b'{"model": 3}', b'{"model": ""}', b"\xff"]
)
def test_a_body_without_a_model_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        read_model_name(body)


def test_a_provider_without_embeddings_names_those_with_them() -> None:
    openai = pytest.importorskip("openai")
    answer = error_response("openai-chat", embeddings_unsupported("claude-5", "anthropic", ["openai", "ollama"]))
    assert isinstance(answer.body, bytes)
    with LocalServer() as server, openai.OpenAI(api_key="none", base_url=server.url, max_retries=0) as client:
        server.answer(answer.status, "application/json", answer.body)
        with pytest.raises(openai.NotFoundError, match="Providers with embeddings: openai, ollama") as raised:
            client.embeddings.create(model="claude-5", input="x")
    assert (raised.value.code, raised.value.param) == ("embeddings_not_supported", "model")
    assert "No provider of this gateway has one" in embeddings_unsupported("claude-5", "anthropic", []).message


def provider_at(url: str) -> Provider:
    return Provider(
        "openai",
        PRESETS["openai"],
        f"{url}/v1",
        keys=KeyRing([SECRET]),
        transport=HttpClient({}),
        headers={},
        timeouts=Timeouts(),
        retry=RetryPolicy(retries=0, rotations=0),
    )


def embed(url: str, body: bytes) -> WholeReply:
    async def call() -> WholeReply:
        provider = provider_at(url)
        address = embeddings_url(provider.preset, "theirs")
        assert address is not None
        request = UpstreamRequest(provider, "theirs", address, [replace_model(body, "theirs")], streams=False)

        async def prepare(_: Target) -> UpstreamRequest:
            return request

        try:
            reply = await ProviderCall([Target("openai", "theirs")], prepare, CallReport()).reply()
        finally:
            await provider.transport.aclose()
        assert isinstance(reply, WholeReply)
        return reply

    return asyncio.run(call())


def test_through_an_upstream_and_back_to_the_official_client() -> None:
    openai = pytest.importorskip("openai")
    vector = [0.25, -1.5]
    encoded = base64.b64encode(struct.pack("<2f", *vector)).decode()
    made: dict[str, Any] = {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": encoded}],
        "model": "theirs",
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }
    reply = Reply(body=msgspec.json.encode(made), content_type="application/json", has_length=True)
    with LocalServer() as server, openai.OpenAI(api_key="none", base_url=server.url, max_retries=0) as client:
        server.answer(200, "application/json", msgspec.json.encode(made))
        found = client.embeddings.create(model="mine", input=["x"])
        asked = server.received
    assert found.data[0].embedding == vector
    with ScriptedServer(reply) as provider:
        assert embed(provider.url, asked).body == reply.body
        (received,) = provider.received
    assert received.target == "/v1/embeddings"
    assert received.headers["authorization"] == f"Bearer {SECRET}"
    assert msgspec.json.decode(received.body) == {**msgspec.json.decode(asked), "model": "theirs"}


def test_a_provider_error_has_openais_shape_without_the_key() -> None:
    refusal_body = {
        "error": {"message": f"`input` is too long. Key: {SECRET}", "type": "invalid_request_error", "code": None}
    }
    reply = Reply(status=400, body=msgspec.json.encode(refusal_body), content_type="application/json")
    with ScriptedServer(reply) as provider, pytest.raises(UpstreamFailed) as failed:
        embed(provider.url, b'{"model": "mine", "input": []}')
    answer = provider_error_response("openai-chat", failed.value.error, "openai")
    assert answer.status == 400
    assert isinstance(answer.body, bytes)
    error = msgspec.json.decode(answer.body)["error"]
    assert error["message"].startswith("`input` is too long.")
    assert SECRET not in error["message"]


# Through a gateway.


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    keys = [
        ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True),
        ClientKeySettings(name="tight", key=hash_key("sk-tight"), tokens_per_minute=5),
    ]
    models = {
        "small": ["openai-chat/embed-small"],
        "both": ["openai-chat/embed-small", "openai-responses/embed-large"],
        "mixed": ["anthropic/claude-sonnet-4-5", "openai-responses/embed-large"],
        "none": ["anthropic/claude-sonnet-4-5"],
    }
    with rig(keys=keys, models=models) as running:
        yield running


def test_embeddings_are_logged_counted_and_name_the_provider(gateway: Rig) -> None:
    gateway.clear()
    with gateway.client("sk-operator") as client:
        got = client.post("/v1/embeddings", {"model": "small", "input": "rain"})
        assert got.status == 200
        assert got.json["data"][0]["embedding"] == [0.25, -1.5]
        assert got.headers["x-antiphon-target"] == "openai-chat/embed-small"
        record = client.get("/status").json["requests"][0]
        assert (record["model"], record["target"], record["status"]) == ("small", "openai-chat/embed-small", 200)
        assert (record["prompt_tokens"], record["key"], len(record["attempts"])) == (5, "operator", 1)
        metrics = client.get("/metrics").body.decode()
        assert 'antiphon_tokens_total{kind="prompt",provider="openai-chat",model="small",key="operator"} 5' in metrics


def test_embeddings_are_failed_over_and_skip_targets_that_make_none(gateway: Rig) -> None:
    gateway.clear()
    failing = gateway.upstreams["openai-chat"]
    with gateway.client("sk-operator") as client:
        for fault in (failing.error(500, "server", "our fault"), Reply(body=b"<html>", content_type="text/html")):
            failing.faults.append(fault)
            got = client.post("/v1/embeddings", {"model": "both", "input": "rain"})
            assert (got.status, got.headers["x-antiphon-target"]) == (200, "openai-responses/embed-large")
            assert len(client.get("/status").json["requests"][0]["attempts"]) == 2
        got = client.post("/v1/embeddings", {"model": "mixed", "input": "rain"})
        assert got.headers["x-antiphon-target"] == "openai-responses/embed-large"
        got = client.post("/v1/embeddings", {"model": "none", "input": "rain"})
        assert got.status == 404
        assert "Providers with embeddings: openai-chat, openai-responses, gemini" in got.json["error"]["message"]
        failing.faults.append(failing.error(400, "invalid_request", "input must be text"))
        got = client.post("/v1/embeddings", {"model": "both", "input": "rain"})
        assert got.status == 400
        failing.faults.append(Reply(body=b'{"object": "list"}', content_type="application/json", has_length=True))
        assert client.post("/v1/embeddings", {"model": "small", "input": "rain"}).status == 502


def test_embeddings_are_charged(gateway: Rig) -> None:
    gateway.clear()
    with gateway.client("sk-tight") as client:
        assert client.post("/v1/embeddings", {"model": "small", "input": "rain"}).status == 200
        assert client.post("/v1/embeddings", {"model": "small", "input": "rain"}).status == 429


def test_embeddings_use_the_configured_api_version() -> None:
    made = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m"}'
    with ScriptedServer(Reply(body=made, content_type="application/json", has_length=True)) as azure:
        provider = ProviderSettings(
            name="azure", preset="azure-openai", base_url=azure.url, keys=("env:K",), api_version="2025-01-01-preview"
        )
        models = (ModelSettings(name="small", targets=("azure/deployed",)),)
        config = Config(gateway=FAST, providers=(provider,), models=models)
        with serving(config, {"K": SECRET}) as ports, Rig({}, ports).client() as client:
            assert client.post("/v1/embeddings", {"model": "small", "input": "rain"}).body == made
        (received,) = azure.received
    assert received.target == "/openai/deployments/deployed/embeddings?api-version=2025-01-01-preview"


@pytest.mark.parametrize("limit", ["read_seconds", "request_seconds"])
def test_an_embeddings_request_that_takes_too_long_is_a_504(limit: str) -> None:
    """Whether the provider's timeout ends it or the request's own: the client gets a 504, and a 504 is recorded."""
    settings = structs.replace(FAST, request_seconds=0.5) if limit == "request_seconds" else FAST
    provider: dict[str, Any] = {"read_seconds": 0.5} if limit == "read_seconds" else {}
    with rig(settings, models={"small": ["openai-chat/embed-small"]}, **provider) as running:
        running.upstreams["openai-chat"].faults.append(hang())
        with running.client() as client:
            got = client.post("/v1/embeddings", {"model": "small", "input": "rain"})
            assert got.status == 504
            assert got.error("openai-chat").message
        with running.client() as client:
            record = client.get("/status").json["requests"][0]
            assert (record["target"], record["status"]) == ("openai-chat/embed-small", 504)
            assert 'status="504"' in client.get("/metrics").body.decode()
