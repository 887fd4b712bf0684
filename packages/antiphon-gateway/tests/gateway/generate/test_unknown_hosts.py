"""Requests that are translated for a Chat Completions host without an entry: it gets only what every host accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon_gateway.config.settings import Config, ModelSettings, ProviderSettings
from gateway.rig import FAST, Client, serving
from gateway.strict_upstream import StrictUpstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[StrictUpstream]:
    with StrictUpstream("openai-chat") as upstream:
        yield upstream


@pytest.fixture
def client(upstream: StrictUpstream) -> Iterator[Client]:
    upstream.clear()
    provider = ProviderSettings(name="house", format="openai-chat", base_url=upstream.base_url, retries=0)
    models = (ModelSettings(name="*", targets=("house/llama-9",)),)
    with serving(Config(gateway=FAST, providers=(provider,), models=models), {}) as (port, _):
        client = Client(port)
        yield client
        client.close()


def test_top_k_of_other_formats_is_not_sent(client: Client, upstream: StrictUpstream) -> None:
    body: dict[str, Any] = {"max_tokens": 50, "top_k": 40, "messages": [{"role": "user", "content": "Hello"}]}
    got = client.ask("anthropic", "llama-9", body, streams=False)
    assert (got.status, upstream.refused) == (200, [])
    assert "top_k" not in upstream.bodies[-1]
    assert "top_k" in got.headers["x-antiphon-losses"]


def test_developer_messages_and_custom_tools_become_what_every_host_has(
    client: Client, upstream: StrictUpstream
) -> None:
    body: dict[str, Any] = {
        "input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "tools": [{"type": "custom", "name": "patch"}],
    }
    assert client.ask("openai-responses", "llama-9", body, streams=False).status == 200
    sent = upstream.bodies[-1]
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert [tool["type"] for tool in sent["tools"]] == ["function"]


def test_unknown_fields_for_an_unknown_host_are_kept(client: Client, upstream: StrictUpstream) -> None:
    body: dict[str, Any] = {"top_k": 40, "messages": [{"role": "user", "content": "Hello"}]}
    client.ask("openai-chat", "llama-9", body, streams=False)
    assert upstream.bodies[-1]["top_k"] == 40
