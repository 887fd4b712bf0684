"""Vertex AI, by google-auth, against a stand-in that verifies assertions and tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import CredentialError, ProviderSetupError
from antiphon.http.client.client import HttpClient
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.http_provider import HttpProviderClient, provider
from antiphon.providers.router import ProviderRouter
from antiphon.wire.output import ProviderError
from providers.cloud.stand_in import PRIVATE_PEM, GoogleStandIn, json_reply
from providers.http_client import ONCE
from providers.sample_answers import deltas_from, error_of, text_of
from providers.scripted_server import Reply, ScriptedServer

BASE = {"GOOGLE_CLOUD_PROJECT": "my-project", "GOOGLE_CLOUD_LOCATION": "us-east5", "HOME": "/nonexistent"}


class Vertex:
    """A stand-in with its server and a service account."""

    def __init__(self, host: GoogleStandIn, server: ScriptedServer, folder: Path) -> None:
        self.host = host
        self.server = server
        self.account: dict[str, Any] = {
            "type": "service_account",
            "project_id": "project-of-the-file",
            "private_key_id": "key-1",
            "private_key": PRIVATE_PEM,
            "client_email": "robot@my-project.iam.gserviceaccount.com",
            "token_uri": f"{server.url}/token",
        }
        self.path = folder / "account.json"
        self.write(self.account)

    def write(self, account: Any) -> None:
        self.path.write_text(json.dumps(account))

    @property
    def environ(self) -> dict[str, str]:
        return {**BASE, "GOOGLE_APPLICATION_CREDENTIALS": str(self.path)}

    def client(self, preset: str = "vertex", environ: dict[str, str] | None = None, **more: Any) -> HttpProviderClient:
        given = {"retry": ONCE, "transport": HttpClient({}), **more}
        return provider(preset, environ=self.environ if environ is None else environ, base_url=self.server.url, **given)

    def ask(self, client: HttpProviderClient, model: str = "gemini-3-pro") -> str:
        return text_of(asyncio.run(deltas_from(client, ProviderCallOptions(model=model))))

    def error(self, client: HttpProviderClient, model: str = "gemini-3-pro") -> ProviderError:
        return error_of(asyncio.run(deltas_from(client, ProviderCallOptions(model=model))))


@pytest.fixture
def vertex(tmp_path: Path) -> Iterator[Vertex]:
    host = GoogleStandIn()
    with ScriptedServer(host) as server:
        yield Vertex(host, server, tmp_path)


def test_gemini_with_a_service_account(vertex: Vertex) -> None:
    client = vertex.client()
    assert [vertex.ask(client), vertex.ask(client)] == ["Rain.", "Rain."]
    path = (
        "/v1/projects/my-project/locations/us-east5/publishers/google/models/gemini-3-pro:streamGenerateContent?alt=sse"
    )
    assert [request.target for request in vertex.server.received] == ["/token", path, path]  # one token for both


def test_claude_on_vertex(vertex: Vertex) -> None:
    assert vertex.ask(vertex.client("vertex-anthropic"), "claude-sonnet-4-5@20250929") == "Rain."
    request = vertex.server.received[-1]
    models = "/v1/projects/my-project/locations/us-east5/publishers/anthropic/models"
    assert request.target == f"{models}/claude-sonnet-4-5@20250929:streamRawPredict"
    body = json.loads(request.body)
    assert (body["anthropic_version"], body["stream"]) == ("vertex-2023-10-16", True)


@pytest.mark.parametrize(
    ("preset", "model", "other"),
    [("vertex", "claude-sonnet-4-5", "vertex-anthropic"), ("vertex-anthropic", "gemini-3-pro", "vertex")],
)
def test_a_model_of_the_other_format_is_refused_with_the_right_preset(
    vertex: Vertex, preset: str, model: str, other: str
) -> None:
    error = vertex.error(vertex.client(preset), model)
    assert (error.kind, error.code) == ("not_found", "other_preset")
    assert f"use {other}/{model}" in error.message
    assert vertex.server.received == []  # not even a token was requested


def test_a_router_falls_back_from_a_model_of_the_other_format(vertex: Vertex) -> None:
    clients = {name: vertex.client(name) for name in ("vertex", "vertex-anthropic")}
    router = ProviderRouter(clients, fallbacks=["vertex-anthropic/claude-sonnet-4-5"], environ={})
    options = ProviderCallOptions(model="vertex/claude-sonnet-4-5")
    assert text_of(asyncio.run(deltas_from(router, options))) == "Rain."
    assert vertex.server.received[-1].target.endswith("/anthropic/models/claude-sonnet-4-5:streamRawPredict")


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_hosts_of_regions(region: str, host: str) -> None:
    client = provider("vertex-anthropic", environ=BASE, region=region)
    assert client.base_url == f"https://{host}"


def test_a_project_is_required_and_may_come_from_the_file(vertex: Vertex) -> None:
    with pytest.raises(
        ProviderSetupError, match=r"vertex needs a project: set GOOGLE_CLOUD_PROJECT or project = \"my-project\""
    ):
        provider("vertex", environ={"HOME": "/nonexistent"})
    client = vertex.client(environ={"GOOGLE_APPLICATION_CREDENTIALS": str(vertex.path)})
    assert vertex.ask(client) == "Rain."
    assert "/projects/project-of-the-file/locations/global/" in vertex.server.received[-1].target
    with pytest.raises(ProviderSetupError, match="project 'a/b' is not valid"):
        provider("vertex", environ=BASE, project="a/b")


def test_a_rejected_token_is_fetched_again_once(vertex: Vertex) -> None:
    client = vertex.client()
    assert vertex.ask(client) == "Rain."
    vertex.host.valid = "revoked"
    assert vertex.ask(client) == "Rain."
    assert vertex.host.issued == 2
    vertex.host.refusal = json_reply({"access_token": "never-valid-canary", "expires_in": 3600})
    vertex.host.valid = "revoked"
    count = len(vertex.server.received)
    error = vertex.error(client)
    assert error.kind == "authentication"
    assert len(vertex.server.received) - count == 3  # rejected, one new token, rejected again


def test_a_token_that_expires_is_replaced_before(vertex: Vertex) -> None:
    now = [1000.0]
    client = vertex.client(clock=lambda: now[0])
    vertex.ask(client)
    now[0] += 3601
    vertex.ask(client)
    assert vertex.host.issued == 2
    assert [request.headers.get("authorization") for request in vertex.server.received[1::2]] == [
        "Bearer token-canary-00000001",
        "Bearer token-canary-00000002",
    ]


def test_a_users_own_login(vertex: Vertex, monkeypatch: pytest.MonkeyPatch) -> None:
    # google-auth asks Google, whatever the file says.
    monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", vertex.account["token_uri"])
    user = {"type": "authorized_user", "client_id": "c", "client_secret": "client-secret-canary"}
    vertex.write(
        {
            **user,
            "refresh_token": "refresh-canary",
            "quota_project_id": "quota",
        }
    )
    assert vertex.ask(vertex.client()) == "Rain."
    assert vertex.server.received[-1].headers["x-goog-user-project"] == "quota"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"private_key": "not a key"}, "check that the file is current and its account enabled"),
        ({"client_email": None}, "client_email"),
        ({"type": "unheard_of"}, "its type is 'unheard_of'; known: service_account"),
    ],
)
def test_bad_files(vertex: Vertex, changes: dict[str, Any], message: str) -> None:
    account = {name: value for name, value in {**vertex.account, **changes}.items() if value is not None}
    vertex.write(account)
    error = vertex.error(vertex.client())
    assert error.kind == "authentication"
    assert f"google: {vertex.path}: " in error.message
    assert message in error.message
    assert "PRIVATE KEY" not in error.message


def test_a_refused_account_is_reported_with_googles_words(vertex: Vertex) -> None:
    vertex.host.refusal = json_reply(
        {"error": "invalid_grant", "error_description": "Invalid grant: account not found"}, 400
    )
    error = vertex.error(vertex.client())
    assert error.kind == "authentication"
    assert "invalid_grant: Invalid grant: account not found" in error.message


def test_an_endpoint_that_is_down_is_not_the_keys_fault(vertex: Vertex) -> None:
    vertex.host.refusal = Reply(status=503, body=b"down")
    client = vertex.client()
    assert vertex.error(client).kind == "server"
    assert client.credentials is not None
    assert [status.state for status in client.credentials.status()] == ["healthy"]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(
        CredentialError, match=r"no credentials file /no/such.json \(named by GOOGLE_APPLICATION_CREDENTIALS\)"
    ):
        provider("vertex", environ={**BASE, "GOOGLE_APPLICATION_CREDENTIALS": "/no/such.json"})
