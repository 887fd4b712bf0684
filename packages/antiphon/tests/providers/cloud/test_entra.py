"""Azure OpenAI with Entra ID, by msal, against a stand-in that verifies the grant."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
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
from antiphon.providers.http_provider import HttpProviderClient, provider
from antiphon.wire.output import ProviderError
from providers.cloud.stand_in import RSA_KEY, AzureStandIn, json_reply, own_certificate, process_environment
from providers.http_client import ONCE
from providers.sample_answers import deltas_from, error_of, text_of
from providers.scripted_server import ScriptedServer


class Azure:
    """A stand-in with its servers: one for tokens, by TLS, and one for the API."""

    def __init__(self, host: AzureStandIn, login: ScriptedServer, server: ScriptedServer) -> None:
        self.host = host
        self.login = login
        self.server = server
        self.authority = f"https://127.0.0.1:{login.port}"
        self.environ = {
            "AZURE_TENANT_ID": "tenant-1",
            "AZURE_CLIENT_ID": "client-1",
            "AZURE_CLIENT_SECRET": "entra-secret-canary",
            "AZURE_AUTHORITY_HOST": self.authority,
        }

    def client(self, environ: Mapping[str, str] | None = None, path: str = "", **more: Any) -> HttpProviderClient:
        given = {"retry": ONCE, "transport": HttpClient({}), **more}
        return provider("azure-openai", environ=environ or self.environ, base_url=f"{self.server.url}{path}", **given)

    def ask(self, client: HttpProviderClient) -> str:
        return text_of(asyncio.run(deltas_from(client, ProviderCallOptions(model="my-deployment"))))

    def error(self, client: HttpProviderClient) -> ProviderError:
        return error_of(asyncio.run(deltas_from(client, ProviderCallOptions(model="my-deployment"))))


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    host, (tls, trusted) = AzureStandIn(), own_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    with ScriptedServer(host, tls=tls) as login, ScriptedServer(host) as server:
        yield Azure(host, login, server)


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
    asked = [request.target for request in azure.login.received]
    assert asked == ["/tenant-1/v2.0/.well-known/openid-configuration", "/tenant-1/oauth2/v2.0/token"]
    assert [request.target for request in azure.server.received] == [target, target]
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


def certificate_file(
    folder: Path, kind: str = "pem", password: str = "", key: RSAPrivateKey = RSA_KEY
) -> tuple[Path, Certificate]:
    """A new certificate; making a key takes long, so most have the same."""
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
    azure.host.audience = f"{azure.authority}/tenant-1/oauth2/v2.0/token"
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
    explicit = {"AZURE_AUTHORITY_HOST": azure.authority, "PASSWORD": password}
    assert azure.ask(azure.client(explicit, keys=[written])) == "Rain."


def test_a_certificate_that_the_app_does_not_have_is_refused(azure: Azure, tmp_path: Path) -> None:
    file, _ = certificate_file(tmp_path, key=generate_private_key(65537, 2048))
    _, azure.host.certificate = certificate_file(tmp_path, "pkcs12")
    azure.host.audience = f"{azure.authority}/tenant-1/oauth2/v2.0/token"
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
            expected = f"cannot read {file}: No such file"
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
    values = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": url, "AZURE_CLIENT_ID": "client-1"}
    if kind == "app service":
        values = {"IDENTITY_ENDPOINT": f"{url}/msi/token", "IDENTITY_HEADER": "identity-canary"}
    with process_environment(**values) as environ:
        assert azure.ask(azure.client(environ)) == "Rain."
        assert azure.ask(azure.client({**azure.environ, **values}, keys=["entra:managed"])) == "Rain."
    assert azure.host.issued == 2


def test_a_token_service_that_is_down_is_not_the_keys_fault(azure: Azure) -> None:
    azure.host.refusal = json_reply({"error": "temporarily_unavailable"}, 503)
    client = azure.client()
    assert azure.error(client).kind == "server"
    nowhere = azure.client({**azure.environ, "AZURE_AUTHORITY_HOST": "https://127.0.0.1:9"})
    error = azure.error(nowhere)
    assert error.kind == "server"
    assert "the token service is not available" in error.message


def test_two_identities_are_written_out(azure: Azure) -> None:
    environ = {"AZURE_AUTHORITY_HOST": azure.authority, "ONE": "entra-secret-canary"}
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
