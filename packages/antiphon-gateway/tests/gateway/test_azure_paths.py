"""The paths of Azure and of `/anthropic`, with the official clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import Rig, rig

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig(keys=[ClientKeySettings(name="azure", key=hash_key("sk-azure"))]) as started:
        yield started


@pytest.mark.parametrize("model", ["to-openai-chat", "to-anthropic", "to-gemini"])
def test_azure_client(gateway: Rig, model: str) -> None:
    openai = pytest.importorskip("openai")
    with openai.AzureOpenAI(
        azure_endpoint=gateway.url, api_key="sk-azure", api_version="2024-10-21", max_retries=0
    ) as client:
        answer = client.chat.completions.create(model=model, messages=MESSAGES)
        pieces = list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True))
    assert answer.choices[0].message.content
    assert any(piece.choices and piece.choices[0].delta.content for piece in pieces)


def test_the_deployment_is_the_model(gateway: Rig) -> None:
    path = "/openai/deployments/to-anthropic/chat/completions?api-version=2024-10-21"
    with gateway.client() as client:
        for body in ({"messages": MESSAGES}, {"messages": MESSAGES, "model": "another"}):
            answer = client.post(path, body, {"api-key": "sk-azure"})
            assert answer.headers["x-antiphon-target"] == "anthropic/claude-sonnet-4-5"
        refused = client.post(path, {"messages": MESSAGES}, {"api-key": "sk-wrong"})
        malformed = client.post(path, b"[]", {"api-key": "sk-azure"})
    assert (refused.status, malformed.status) == (401, 400)


def test_the_v1_api_of_azure(gateway: Rig) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{gateway.url}/openai/v1", api_key="sk-azure", max_retries=0) as client:
        assert client.responses.create(model="to-anthropic", input="hello").output_text
        assert client.models.list().data


def test_anthropic_client_below_a_prefix(gateway: Rig) -> None:
    anthropic = pytest.importorskip("anthropic")

    async def ask() -> str:
        async with anthropic.AsyncAnthropic(
            base_url=f"{gateway.url}/anthropic", api_key="sk-azure", max_retries=0
        ) as client:
            message = await client.messages.create(model="to-openai-chat", max_tokens=100, messages=MESSAGES)
            assert [model.type async for model in client.models.list()]
            return str(message.content[0].text)

    assert asyncio.run(ask())
