"""Azure OpenAI with Entra ID, against a stand-in that verifies the grant; the requests of msal are the judge of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import Certificate, CertificateBuilder, Name, NameAttribute
from cryptography.x509.oid import NameOID

from antiphon.errors import CredentialError
from antiphon.http.client.client import HttpClient
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.cloud.client_certificate import ClientCertificate
from antiphon.providers.http_provider import HttpProviderClient, provider
from antiphon.wire.output import ProviderError
from providers.cloud.stand_in import AzureStandIn, _unbase64
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


def certificate_file(folder: Path, kind: str = "pem", password: str = "") -> tuple[Path, Certificate]:
    """A new certificate with its key."""
    key = generate_private_key(65537, 2048)
    name, now = Name([NameAttribute(NameOID.COMMON_NAME, "app")]), datetime.now(UTC)
    builder = CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    made = builder.sign(key, SHA256())
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    if kind == "pkcs12":
        data = serialize_key_and_certificates(b"app", key, made, None, encryption)
    else:
        data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + made.public_bytes(Encoding.PEM)
    file = folder / f"app.{kind}"
    file.write_bytes(data)
    return file, made


@pytest.mark.parametrize("kind", ["pem", "pkcs12"])
@pytest.mark.parametrize("password", ["", "password-canary"])
def test_a_client_certificate(azure: Azure, tmp_path: Path, kind: str, password: str) -> None:
    file, azure.host.certificate = certificate_file(tmp_path, kind, password)
    azure.host.audience = f"{azure.server.url}/tenant-1/oauth2/v2.0/token"
    environ = {**azure.environ, "AZURE_CLIENT_SECRET": "", "AZURE_CLIENT_CERTIFICATE_PATH": str(file)}
    if password:
        environ["AZURE_CLIENT_CERTIFICATE_PASSWORD"] = password
    client = azure.client(environ)
    assert azure.ask(client) == "Rain."
    azure.host.valid = "revoked"
    assert azure.ask(client) == "Rain.", "another assertion, with an id of its own"
    assert len(azure.host.token_ids) == 2
    # a renewed certificate is used without a restart
    _, azure.host.certificate = certificate_file(tmp_path, kind, password)
    azure.host.valid = "revoked"
    assert azure.ask(client) == "Rain."
    written = f"entra:tenant=tenant-1,client=client-1,certificate={file}"
    written += ",certificate_password=env:PASSWORD" if password else ""
    explicit = {"AZURE_AUTHORITY_HOST": azure.server.url, "PASSWORD": password}
    assert azure.ask(azure.client(explicit, keys=[written])) == "Rain."


def test_a_certificate_that_the_app_does_not_have_is_refused(azure: Azure, tmp_path: Path) -> None:
    file, _ = certificate_file(tmp_path)
    _, azure.host.certificate = certificate_file(tmp_path, "pkcs12")
    azure.host.audience = f"{azure.server.url}/tenant-1/oauth2/v2.0/token"
    environ = {**azure.environ, "AZURE_CLIENT_SECRET": "", "AZURE_CLIENT_CERTIFICATE_PATH": str(file)}
    error = azure.error(azure.client(environ))
    assert error.kind == "authentication"
    assert "certificate of the app registration" in error.message


@pytest.mark.parametrize("problem", ["missing", "text", "no key", "wrong password", "no password"])
def test_a_certificate_that_cannot_be_read(azure: Azure, tmp_path: Path, problem: str) -> None:
    password = "right" if "password" in problem else ""
    file, made = certificate_file(tmp_path, "pem", password)
    expected = "is not a PEM or PKCS#12 file with a certificate and its RSA private key"
    match problem:
        case "missing":
            file.unlink()
            expected = f"cannot read the certificate {file}: No such file"
        case "text":
            file.write_text("hello")
        case "no key":
            file.write_bytes(made.public_bytes(Encoding.PEM))
        case _:
            expected += "; if it is encrypted, check certificate_password"
    environ = {**azure.environ, "AZURE_CLIENT_SECRET": "", "AZURE_CLIENT_CERTIFICATE_PATH": str(file)}
    if problem == "wrong password":
        environ["AZURE_CLIENT_CERTIFICATE_PASSWORD"] = "wrong-canary"
    error = azure.error(azure.client(environ))
    assert expected in error.message
    assert "canary" not in error.message


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
        ("entra:certificate=c.pem,certificate_password=literal", "certificate_password contains a literal key"),
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
    """Replaces the network of msal and keeps the form it posts."""

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


def test_msal_makes_the_same_assertion(azure: Azure, tmp_path: Path) -> None:
    from msal import ConfidentialClientApplication

    file, _ = certificate_file(tmp_path)
    network = MsalNetwork()
    application = ConfidentialClientApplication(
        "client-1",
        authority="https://login.microsoftonline.com/tenant-1",
        client_credential={"private_key": file.read_text(), "public_certificate": file.read_text()},
        http_client=network,
        instance_discovery=False,
    )
    application.acquire_token_for_client([azure.host.scope])
    given: Any = network.form["client_assertion"]
    given = given.decode() if isinstance(given, bytes) else given
    theirs = [json.loads(_unbase64(part)) for part in given.split(".")[:2]]
    ours = ClientCertificate(str(file)).assertion("client-1", network.url, 0.0)
    header, claims = [json.loads(_unbase64(part)) for part in ours.split(".")[:2]]
    assert {name: theirs[0][name].rstrip("=") for name in header} == header  # msal pads the thumbprint
    assert {name: theirs[1][name] for name in ("aud", "iss", "sub")} == {
        name: claims[name] for name in ("aud", "iss", "sub")
    }
    assert {"exp", "jti"} <= theirs[1].keys() & claims.keys()
