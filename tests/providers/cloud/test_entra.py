"""Azure OpenAI with Entra ID, against a stand-in that verifies the grant; the requests of msal are the judge of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest

from antiphon.errors import CredentialError
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.http_provider import HttpProviderClient, provider
from antiphon.providers.transport.client import HttpClient
from antiphon.wire.output import ProviderError
from providers.cloud.stand_in import AzureStandIn
from providers.http_client import ONCE
from providers.sample_answers import deltas_from, error_of, text_of
from providers.scripted_server import ScriptedServer


class Azure:
    """A stand-in with its server."""

    def __init__(self, host: AzureStandIn, server: ScriptedServer) -> None:
        self.host = host
        self.server = server
        self.environ = {
            "AZURE_TENANT_ID": "tenant-1",
            "AZURE_CLIENT_ID": "client-1",
            "AZURE_CLIENT_SECRET": "entra-secret-canary",
            "AZURE_AUTHORITY_HOST": server.url,
        }

    def client(self, environ: dict[str, str] | None = None, path: str = "", **more: Any) -> HttpProviderClient:
        given = {"retry": ONCE, "transport": HttpClient({}), **more}
        return provider("azure-openai", environ=environ or self.environ, base_url=f"{self.server.url}{path}", **given)

    def ask(self, client: HttpProviderClient) -> str:
        return text_of(asyncio.run(deltas_from(client, ProviderCallOptions(model="my-deployment"))))

    def error(self, client: HttpProviderClient) -> ProviderError:
        return error_of(asyncio.run(deltas_from(client, ProviderCallOptions(model="my-deployment"))))


@pytest.fixture
def azure() -> Iterator[Azure]:
    host = AzureStandIn()
    with ScriptedServer(host) as server:
        yield Azure(host, server)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"),
        ("/openai/v1", "/openai/v1/chat/completions"),
    ],
)
def test_a_client_secret(azure: Azure, path: str, target: str) -> None:
    client = azure.client(path=path)
    assert [azure.ask(client), azure.ask(client)] == ["Rain.", "Rain."]
    targets = [request.target for request in azure.server.received]
    assert targets == ["/tenant-1/oauth2/v2.0/token", target, target]
    assert all("api-key" not in request.headers for request in azure.server.received)


def test_a_federated_token_is_read_again_for_each_token(azure: Azure, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("assertion-canary-1\n")
    azure.host.assertion = "assertion-canary-1"
    environ = {**azure.environ, "AZURE_CLIENT_SECRET": "", "AZURE_FEDERATED_TOKEN_FILE": str(file)}
    client = azure.client(environ)
    assert azure.ask(client) == "Rain."
    file.write_text("assertion-canary-2")
    azure.host.assertion, azure.host.valid = "assertion-canary-2", "revoked"
    assert azure.ask(client) == "Rain."
    assert azure.host.issued == 2


@pytest.mark.parametrize("kind", ["machine", "app service"])
def test_a_managed_identity(azure: Azure, kind: str) -> None:
    url = azure.server.url
    environ = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": url, "AZURE_CLIENT_ID": "client-1"}
    if kind == "app service":
        environ = {"IDENTITY_ENDPOINT": f"{url}/msi/token", "IDENTITY_HEADER": "identity-canary"}
    assert azure.ask(azure.client(environ)) == "Rain."
    assert azure.ask(azure.client({**azure.environ, **environ}, keys=["entra:managed"])) == "Rain."
    assert azure.host.issued == 2


def test_two_identities_are_written_out(azure: Azure) -> None:
    environ = {"AZURE_AUTHORITY_HOST": azure.server.url, "ONE": "entra-secret-canary"}
    client = azure.client(environ, keys=["entra:tenant=tenant-1,client=client-1,secret=env:ONE"])
    assert azure.ask(client) == "Rain."


def test_a_rejected_token_is_fetched_again_once(azure: Azure) -> None:
    client = azure.client()
    assert azure.ask(client) == "Rain."
    azure.host.valid = "revoked"
    assert azure.ask(client) == "Rain."
    assert azure.host.issued == 2


def test_a_refused_secret_is_reported_with_entras_words(azure: Azure) -> None:
    error = azure.error(azure.client({**azure.environ, "AZURE_CLIENT_SECRET": "wrong-secret-canary"}))
    assert error.kind == "authentication"
    assert "AADSTS7000215: Invalid client secret provided." in error.message
    assert "Trace ID" not in error.message
    assert "wrong-secret" not in error.message


def test_an_api_key_is_used_if_it_is_set(azure: Azure) -> None:
    client = azure.client({**azure.environ, "AZURE_OPENAI_API_KEY": "azure-key-canary"})
    azure.error(client)
    assert azure.server.received[0].headers["api-key"] == "azure-key-canary"
    assert azure.host.issued == 0


def test_the_resource_is_enough() -> None:
    environ = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}
    client = provider("azure-openai", environ=environ, resource="my-resource")
    assert client.base_url == "https://my-resource.openai.azure.com"
    assert (
        provider("azure-anthropic", environ=environ, resource="r").base_url
        == "https://r.services.ai.azure.com/anthropic"
    )


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("entra:secret=literal-secret", "secret contains a literal key; use secret=env:NAME"),
        ("entra:secret=env:X", "the tenant is missing; set AZURE_TENANT_ID, or write entra:tenant="),
        ("entra:tenant=t,secret=env:X", "the client is missing; set AZURE_CLIENT_ID"),
        ("entra:tennant=t", "unknown option 'tennant'; known: tenant, client"),
        ("entra:tenant=t,tenant=u", "duplicate option 'tenant'"),
    ],
)
def test_bad_references(reference: str, message: str) -> None:
    with pytest.raises(CredentialError, match=message):
        provider("azure-openai", environ={"X": "y"}, keys=[reference], base_url="https://h")


class MsalNetwork:
    """Stands for the network of msal, and keeps the form it posts."""

    def __init__(self) -> None:
        self.url = ""
        self.form: dict[str, str] = {}

    def get(self, url: str, **_: Any) -> SimpleNamespace:
        authority = url.partition("/v2.0/")[0]
        known = {
            "token_endpoint": f"{authority}/oauth2/v2.0/token",
            "authorization_endpoint": f"{authority}/a",
            "issuer": authority,
        }
        return SimpleNamespace(status_code=200, text=json.dumps(known), headers={})

    def post(self, url: str, data: dict[str, str], **_: Any) -> SimpleNamespace:
        self.url, self.form = url, data
        return SimpleNamespace(status_code=400, text='{"error": "recorded"}', headers={})

    def close(self) -> None: ...


@pytest.mark.parametrize("kind", ["secret", "assertion"])
def test_msal_sends_the_same_form(azure: Azure, tmp_path: Path, kind: str) -> None:
    """msal makes the requests of azure-identity."""
    from msal import ConfidentialClientApplication

    file = tmp_path / "token"
    file.write_text("assertion-canary")
    environ = dict(azure.environ)
    credential: Any = "entra-secret-canary"
    if kind == "assertion":
        azure.host.assertion = "assertion-canary"
        environ |= {"AZURE_CLIENT_SECRET": "", "AZURE_FEDERATED_TOKEN_FILE": str(file)}
        credential = {"client_assertion": lambda: "assertion-canary"}
    network = MsalNetwork()
    application = ConfidentialClientApplication(
        "client-1",
        authority="https://login.microsoftonline.com/tenant-1",
        client_credential=credential,
        http_client=network,
        instance_discovery=False,
    )
    application.acquire_token_for_client([azure.host.scope])
    azure.ask(azure.client(environ))
    ours = dict(parse_qsl(azure.server.received[0].body.decode()))
    assert {name: network.form[name] for name in ours} == ours
    assert network.form.keys() - ours.keys() <= {"client_info", "claims"}  # what msal's own cache needs
    assert network.url == f"https://login.microsoftonline.com{azure.server.received[0].target}"
