"""The list of models: where each host has it, and what its answer says about a key."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import Timeouts
from antiphon.providers.engine.model_list import KeyTrial, fetch_models, models_url, try_key
from antiphon.providers.engine.provider import Provider
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.presets import PRESETS
from antiphon.providers.retry import RetryPolicy
from providers.scripted_server import Received, Reply, ScriptedServer

KEY = "sk-a-secret-key-of-the-test-0123"
AZURE = "https://mine.openai.azure.com"


@pytest.mark.parametrize(
    ("preset", "base_url", "expected"),
    [
        ("openai", "https://api.openai.com/v1", "https://api.openai.com/v1/models"),
        ("openai-responses", "https://api.openai.com/v1", "https://api.openai.com/v1/models"),
        ("anthropic", "https://api.anthropic.com", "https://api.anthropic.com/v1/models"),
        ("anthropic", "https://host/anthropic/v1", "https://host/anthropic/v1/models"),
        ("gemini", "https://generativelanguage.googleapis.com", None),
        ("gemini-interactions", "https://generativelanguage.googleapis.com", None),
        ("azure-openai", AZURE, f"{AZURE}/openai/models?api-version=2024-10-21"),
        ("azure-openai", f"{AZURE}/openai", f"{AZURE}/openai/models?api-version=2024-10-21"),
        ("azure-openai", f"{AZURE}/openai/v1", f"{AZURE}/openai/v1/models"),
        ("azure-openai", f"{AZURE}/openai/deployments/gpt", f"{AZURE}/openai/models?api-version=2024-10-21"),
        ("ollama", "http://localhost:11434", "http://localhost:11434/v1/models"),
        ("mistral", "https://api.mistral.ai", "https://api.mistral.ai/v1/models"),
        ("groq", "https://api.groq.com", "https://api.groq.com/openai/v1/models"),
        ("compatible", "http://127.0.0.1:1/v1?a=b", "http://127.0.0.1:1/v1/models?a=b"),
    ],
)
def test_the_url_of_the_model_list_of_each_host(preset: str, base_url: str, expected: str | None) -> None:
    found = models_url(PRESETS[preset].at_host(base_url))
    assert found == (expected or "https://generativelanguage.googleapis.com/v1beta/models")


def test_every_preset_has_a_list_or_says_that_it_has_none() -> None:
    without = {
        name for name, preset in PRESETS.items() if models_url(preset.at_host(preset.base_url or "http://h")) is None
    }
    assert "vertex-anthropic" in without
    assert not without & {"openai", "anthropic", "gemini", "openrouter", "deepseek", "vllm"}


def provider_at(server: ScriptedServer, preset: str, transport: HttpClient) -> Provider:
    return Provider(
        "mine",
        PRESETS[preset],
        server.url,
        keys=KeyRing([KEY]),
        transport=transport,
        headers={},
        timeouts=Timeouts(),
        retry=RetryPolicy(),
    )


def trial_of(preset: str, answer: Reply, public: Reply | None = None) -> tuple[KeyTrial, list[Received]]:
    """What a host that answers so says to the key; `public` is its answer to requests without one."""

    def reply(received: Received) -> Reply:
        return answer if KEY in str(received.headers) or public is None else public

    async def run(server: ScriptedServer) -> KeyTrial:
        transport = HttpClient()
        try:
            return await try_key(provider_at(server, preset, transport), "env:MINE")
        finally:
            await transport.aclose()

    with ScriptedServer(reply) as server:
        return asyncio.run(run(server)), list(server.received)


REFUSALS = {
    "openai": (401, b'{"error": {"message": "Incorrect API key provided: %s", "code": "invalid_api_key"}}'),
    "openai-responses": (401, b'{"error": {"message": "Incorrect API key provided: %s", "code": "invalid_api_key"}}'),
    "anthropic": (401, b'{"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}'),
    "gemini": (
        400,
        b'{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", '
        b'"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}',
    ),
    "azure-openai": (401, b'{"error": {"code": "401", "message": "Access denied due to invalid subscription key"}}'),
}


@pytest.mark.parametrize("preset", REFUSALS)
def test_a_rejected_key_is_reported_without_the_key(preset: str) -> None:
    status, body = REFUSALS[preset]
    body = body.replace(b"%s", KEY.encode())
    trial, received = trial_of(preset, Reply(status=status, body=body, content_type="application/json"))
    assert (trial.verdict, trial.status) == ("rejected", status), trial
    assert trial.text.endswith("; replace the key in env:MINE")
    assert KEY not in trial.text
    assert [(one.method, KEY in str(one.headers)) for one in received] == [("GET", True)]


@pytest.mark.parametrize("preset", [*REFUSALS, "gemini-interactions", "openrouter"])
def test_a_key_that_works(preset: str) -> None:
    listed = Reply(body=b'{"data": [{"id": "m"}]}', content_type="application/json")
    trial, received = trial_of(preset, listed, public=Reply(status=401))
    assert (trial.verdict, trial.text) == ("works", "ok (200)")
    if preset == "openrouter":
        assert [one.target for one in received] == ["/key"]


def test_a_model_list_without_a_key_does_not_verify_the_key() -> None:
    listed = Reply(body=b'{"data": []}', content_type="application/json")
    trial, received = trial_of("ollama", listed)
    assert trial.verdict == "no list"
    assert [KEY in str(one.headers) for one in received] == [True, False]


def test_a_host_without_a_list_is_not_asked() -> None:
    trial, received = trial_of("vertex-anthropic", Reply())
    assert (trial.verdict, received) == ("no list", [])


def test_names_of_every_shape_are_read() -> None:
    bodies = {
        "openai": b'{"data": [{"id": "a"}, {"id": "a"}, {"id": "b"}]}',
        "gemini": b'{"models": [{"name": "models/a"}, {"name": "b"}]}',
        "anthropic": b'{"data": [{"id": "a"}, {"nothing": 1}, {"id": "b"}]}',
    }

    async def run(server: ScriptedServer, preset: str) -> tuple[str, ...]:
        transport = HttpClient()
        try:
            return await fetch_models(provider_at(server, preset, transport))
        finally:
            await transport.aclose()

    for preset, body in bodies.items():
        with ScriptedServer(Reply(body=body, content_type="application/json")) as server:
            assert asyncio.run(run(server, preset)) == ("a", "b")
