"""Logins that only the vendors' libraries know, in a process as a gateway has it: SSO, assumed roles, external accounts.

The process gets nothing but a home folder and addresses of stand-ins on this machine. It prints the headers of a signed request.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.cloud.stand_in import (
    ACCESS_KEY,
    PRIVATE_PEM,
    REGION,
    SESSION_TOKEN,
    AzureStandIn,
    GoogleStandIn,
    own_certificate,
)
from providers.cloud.test_aws import CredentialsService
from providers.scripted_server import ScriptedServer

SIGN = """
import asyncio, json, os, sys
from antiphon.http.client.request import HttpRequest
from antiphon.providers.cloud.signers import make_signer
from antiphon.providers.presets import PRESETS

name, reference, values = sys.argv[1:]
preset = PRESETS[name].with_settings(json.loads(values))
signer = make_signer(reference, preset, environ=os.environ)
token = asyncio.run(signer.tokens.get())
signed = signer.sign(HttpRequest(url="https://host/v1/m", headers={}, body=(b"{}",)), token)
print(json.dumps(dict(signed.headers)))
"""
ROLE = "arn:aws:iam::123456789012:role/r"


def signed_headers(home: Path, preset: str, reference: str, values: dict[str, str], **environ: str) -> dict[str, str]:
    """The headers of a request that a process with this home and environment signs."""
    done = subprocess.run(
        [sys.executable, "-c", SIGN, preset, reference, json.dumps(values)],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture
def aws() -> Iterator[ScriptedServer]:
    with ScriptedServer(CredentialsService()) as server:
        yield server


def aws_files(home: Path, config: str, credentials: str = "") -> None:
    (home / ".aws").mkdir()
    (home / ".aws" / "config").write_text(config)
    (home / ".aws" / "credentials").write_text(credentials)


def check_aws(headers: dict[str, str]) -> None:
    assert f"Credential={ACCESS_KEY}/" in headers["authorization"]
    assert headers["x-amz-security-token"] == SESSION_TOKEN


def test_aws_with_a_login_by_sso(tmp_path: Path, aws: ScriptedServer) -> None:
    aws_files(
        tmp_path,
        "[profile work]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = reader\n"
        "[sso-session corp]\nsso_region = eu-north-1\nsso_start_url = https://corp.example/start\n",
    )
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    token = {"accessToken": "sso-token-canary", "expiresAt": "2099-01-01T00:00:00Z", "region": "eu-north-1"}
    (cache / f"{hashlib.sha1(b'corp').hexdigest()}.json").write_text(json.dumps(token))  # as `aws sso login` leaves it
    check_aws(signed_headers(tmp_path, "bedrock", "aws:profile=work", {"region": REGION}, AWS_ENDPOINT_URL_SSO=aws.url))


def test_aws_with_an_assumed_role(tmp_path: Path, aws: ScriptedServer) -> None:
    aws_files(
        tmp_path,
        f"[profile role]\nrole_arn = {ROLE}\nsource_profile = base\n",
        "[base]\naws_access_key_id = BASE\naws_secret_access_key = secret\n",
    )
    environ = {"AWS_ENDPOINT_URL_STS": aws.url}
    check_aws(signed_headers(tmp_path, "bedrock", "aws:profile=role", {"region": REGION}, **environ))
    check_aws(signed_headers(tmp_path, "bedrock", "aws:", {"region": REGION}, AWS_PROFILE="role", **environ))


def test_aws_with_a_web_identity(tmp_path: Path, aws: ScriptedServer) -> None:
    (tmp_path / "token").write_text("web-token")
    environ = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ROLE_ARN": ROLE,
        "AWS_ENDPOINT_URL_STS": aws.url,
    }
    check_aws(signed_headers(tmp_path, "bedrock", "aws:", {"region": REGION}, **environ))


@pytest.mark.parametrize("reference", ["google:", "google:metadata"])
def test_google_with_the_metadata_server(tmp_path: Path, reference: str) -> None:
    host = GoogleStandIn()
    with ScriptedServer(host) as server:
        address = server.url.removeprefix("http://")
        headers = signed_headers(
            tmp_path, "vertex", reference, {"project": "p", "region": "global"}, GCE_METADATA_HOST=address
        )
    assert headers["authorization"] == f"Bearer {host.valid}"


@pytest.mark.parametrize("impersonates", [False, True])
def test_google_with_an_external_account(tmp_path: Path, impersonates: bool) -> None:
    """Workload identity federation: the token of another identity provider, from a file that something renews."""
    host = GoogleStandIn()
    (tmp_path / "subject").write_text("subject-canary")
    with ScriptedServer(host) as server:
        account = {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/p",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{server.url}/sts",
            "credential_source": {"file": str(tmp_path / "subject")},
        }
        if impersonates:
            name = "robot@my-project.iam.gserviceaccount.com"
            account["service_account_impersonation_url"] = f"{server.url}/v1/{name}:generateAccessToken"
        path = tmp_path / "external.json"
        path.write_text(json.dumps(account))
        headers = signed_headers(tmp_path, "vertex", f"google:{path}", {"project": "p", "region": "global"})
    assert headers["authorization"] == f"Bearer {host.valid if impersonates else 'federated-canary'}"


def test_google_with_a_service_account(tmp_path: Path) -> None:
    host = GoogleStandIn()
    with ScriptedServer(host) as server:
        account = {
            "type": "service_account",
            "private_key_id": "key-1",
            "private_key": PRIVATE_PEM,
            "client_email": "robot@my-project.iam.gserviceaccount.com",
            "token_uri": f"{server.url}/token",
        }
        path = tmp_path / "account.json"
        path.write_text(json.dumps(account))
        values = {"project": "p", "region": "global"}
        headers = signed_headers(tmp_path, "vertex", "google:", values, GOOGLE_APPLICATION_CREDENTIALS=str(path))
    assert headers["authorization"] == f"Bearer {host.valid}"


def test_azure_with_a_workload_identity(tmp_path: Path) -> None:
    host, (tls, trusted) = AzureStandIn(), own_certificate(tmp_path)
    host.assertion = "assertion-canary"
    (tmp_path / "federated").write_text("assertion-canary")
    with ScriptedServer(host, tls=tls) as login:
        headers = signed_headers(
            tmp_path,
            "azure-openai",
            "entra:",
            {"resource": "r"},
            AZURE_TENANT_ID="tenant-1",
            AZURE_CLIENT_ID="client-1",
            AZURE_FEDERATED_TOKEN_FILE=str(tmp_path / "federated"),
            AZURE_AUTHORITY_HOST=f"https://127.0.0.1:{login.port}",
            REQUESTS_CA_BUNDLE=str(trusted),
        )
    assert headers["authorization"] == f"Bearer {host.valid}"
