"""The official SDKs, pointed at the stand-ins: what they send is accepted there, and ours has the same path, headers and body."""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from antiphon.http.client.client import HttpClient
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.http_provider import provider
from antiphon.providers.keys.ring import KeyRing
from providers.cloud.stand_in import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    AwsStandIn,
    AzureStandIn,
    GoogleStandIn,
    own_certificate,
)
from providers.sample_answers import deltas_from, text_of
from providers.scripted_server import Received, ScriptedServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of what they import themselves
    genai = pytest.importorskip("google.genai")
    pytest.importorskip("boto3")

MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
QUESTION: Any = [{"role": "user", "content": "Is it raining?"}]
AWS = {
    "aws_access_key": ACCESS_KEY,
    "aws_secret_key": SECRET_KEY,
    "aws_session_token": SESSION_TOKEN,
    "aws_region": REGION,
}
AWS_ENVIRON = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": SESSION_TOKEN,
    "AWS_REGION": REGION,
}


def ours(preset: str, url: str, model: str, environ: Mapping[str, str], **more: Any) -> str:
    """What our client says, asked the same."""
    client = provider(preset, environ=environ, base_url=url, transport=HttpClient({}), **more)
    return text_of(asyncio.run(deltas_from(client, ProviderCallOptions(model=model))))


def signed_parts(request: Received) -> tuple[str, str]:
    """The scope of a signature, and the headers that both sign in any case."""
    found = re.search(r"Credential=[^/]+/\d+/([^,]+), SignedHeaders=([^,]+)", request.headers["authorization"])
    assert found is not None
    assert {"host", "content-type", "x-amz-date"} <= set(found[2].split(";"))
    return found[1], request.headers["x-amz-security-token"]


def test_bedrock() -> None:
    from anthropic import AnthropicBedrock

    with ScriptedServer(AwsStandIn()) as server:
        sdk = AnthropicBedrock(base_url=server.url, max_retries=0, **AWS)
        arguments: dict[str, Any] = {"model": MODEL, "max_tokens": 4096, "messages": QUESTION}
        body = {"anthropic_version": "bedrock-2023-05-31"}
        with sdk.messages.create(stream=True, extra_body=body, **arguments) as stream:
            assert [event.type for event in stream][-1] == "message_stop"
        assert ours("bedrock", server.url, MODEL, AWS_ENVIRON) == "Rain."
        theirs, mine = server.received
    assert theirs.target == mine.target
    assert signed_parts(theirs) == signed_parts(mine)
    assert json.loads(theirs.body).keys() == json.loads(mine.body).keys()


def test_vertex_with_claude() -> None:
    from anthropic import AnthropicVertex

    host = GoogleStandIn()
    host.issue()
    with ScriptedServer(host) as server:
        sdk = AnthropicVertex(
            region="us-east5", project_id="p", access_token=host.valid, base_url=f"{server.url}/v1", max_retries=0
        )
        arguments: dict[str, Any] = {"model": "claude-sonnet-4-5@20250929", "max_tokens": 4096, "messages": QUESTION}
        body = {"anthropic_version": "vertex-2023-10-16"}
        with sdk.messages.create(stream=True, extra_body=body, **arguments) as stream:
            assert [event.type for event in stream][-1] == "message_stop"
        keys = KeyRing(["env:T"], environ={"T": host.valid})
        given = {"keys": keys, "region": "us-east5", "project": "p"}
        assert ours("vertex-anthropic", server.url, arguments["model"], {}, **given) == "Rain."
        theirs, mine = server.received
    assert theirs.target == mine.target
    assert theirs.headers["authorization"] == mine.headers["authorization"]
    assert json.loads(theirs.body).keys() == json.loads(mine.body).keys()


def test_vertex_with_gemini() -> None:
    from google.oauth2.credentials import Credentials

    host = GoogleStandIn()
    host.issue()
    with ScriptedServer(host) as server:
        sdk = genai.Client(
            vertexai=True,
            project="p",
            location="us-east5",
            credentials=Credentials(host.valid),  # type: ignore[no-untyped-call]
            http_options={"base_url": server.url, "api_version": "v1"},
        )
        with sdk:
            stream = sdk.models.generate_content_stream(model="gemini-3-pro", contents="Is it raining?")
            pieces = [chunk.text for chunk in stream]
        assert "".join(filter(None, pieces)) == "Rain."
        keys = KeyRing(["env:T"], environ={"T": host.valid})
        assert ours("vertex", server.url, "gemini-3-pro", {}, keys=keys, region="us-east5", project="p") == "Rain."
        theirs, mine = server.received
    assert theirs.target == mine.target
    assert theirs.headers["authorization"] == mine.headers["authorization"]
    assert json.loads(mine.body)["contents"] == json.loads(theirs.body)["contents"]


@pytest.mark.parametrize("path", ["", "/openai/v1"])
def test_azure_with_a_token(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from openai import AzureOpenAI, OpenAI

    host, (tls, trusted) = AzureStandIn(), own_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    with ScriptedServer(host, tls=tls) as login, ScriptedServer(host) as server:
        environ = {
            "AZURE_TENANT_ID": "tenant-1",
            "AZURE_CLIENT_ID": "client-1",
            "AZURE_CLIENT_SECRET": "entra-secret-canary",
            "AZURE_AUTHORITY_HOST": f"https://127.0.0.1:{login.port}",
        }
        assert ours("azure-openai", f"{server.url}{path}", "my-deployment", environ) == "Rain."
        if path:
            sdk: OpenAI = OpenAI(base_url=f"{server.url}{path}", api_key=lambda: host.valid, max_retries=0)
        else:
            sdk = AzureOpenAI(
                azure_endpoint=server.url,
                azure_ad_token_provider=lambda: host.valid,
                api_version="2024-10-21",
                max_retries=0,
            )
        with sdk:
            for _ in sdk.chat.completions.create(model="my-deployment", messages=QUESTION, stream=True):
                pass
        mine, theirs = server.received
    assert theirs.target == mine.target
    assert theirs.headers["authorization"] == mine.headers["authorization"]
