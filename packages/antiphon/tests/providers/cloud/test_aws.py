"""Bedrock and the Claude Platform on AWS, against a stand-in that verifies signatures with botocore."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from antiphon.errors import CredentialError, ProviderSetupError
from antiphon.http.client.client import HttpClient
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.cloud.signers import parse_options
from antiphon.providers.cloud.sigv4 import AwsKeys
from antiphon.providers.cloud.token_cache import Fetched, TokenError
from antiphon.providers.cloud.tokens import AWS, AWS_OPTIONS, AwsSource
from antiphon.providers.engine.model_list import KeyTrial, try_key
from antiphon.providers.http_provider import HttpProviderClient, provider
from antiphon.wire.output import ProviderError
from providers.cloud.stand_in import (
    ACCESS_KEY,
    FRAMES,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    AwsStandIn,
    aws_error,
    exception,
    json_reply,
    process_environment,
)
from providers.http_client import ONCE
from providers.sample_answers import deltas_from, error_of, text_of
from providers.scripted_server import Received, Reply, ScriptedServer

ENVIRON = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": SESSION_TOKEN,
    "AWS_REGION": REGION,
    "HOME": "/nonexistent",
}
MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


class Bedrock:
    """A stand-in with its server."""

    def __init__(self, host: AwsStandIn, server: ScriptedServer) -> None:
        self.host = host
        self.server = server

    def client(
        self, environ: Mapping[str, str] | None = None, preset: str = "bedrock", **more: Any
    ) -> HttpProviderClient:
        given = {"retry": ONCE, "transport": HttpClient({}), **more}
        return provider(preset, environ=environ or ENVIRON, base_url=self.server.url, **given)

    def ask(self, client: HttpProviderClient, model: str = MODEL) -> str:
        return text_of(asyncio.run(deltas_from(client, ProviderCallOptions(model=model))))

    def error(self, client: HttpProviderClient, model: str = MODEL) -> ProviderError:
        return error_of(asyncio.run(deltas_from(client, ProviderCallOptions(model=model))))


@pytest.fixture
def bedrock() -> Iterator[Bedrock]:
    host = AwsStandIn()
    with ScriptedServer(host) as server:
        yield Bedrock(host, server)


@pytest.mark.parametrize("model", [MODEL, "arn:aws:bedrock:us-east-1:123:application-inference-profile/a1b2", "a b~c"])
def test_a_signed_stream(bedrock: Bedrock, model: str) -> None:
    assert bedrock.ask(bedrock.client(), model) == "Rain."
    (request,) = bedrock.server.received
    assert bedrock.host.rejected == []
    assert request.target.startswith("/model/")
    assert json.loads(request.body)["anthropic_version"] == "bedrock-2023-05-31"
    assert "anthropic-version" not in request.headers


def test_a_bearer_key_needs_no_signature(bedrock: Bedrock) -> None:
    bedrock.host.bearer = "bedrock-api-key-canary"
    environ = {"AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key-canary", "AWS_REGION": REGION}
    assert bedrock.ask(bedrock.client(environ)) == "Rain."
    error = bedrock.error(bedrock.client({**environ, "AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key-wrong1"}))
    assert error.kind == "authentication"


@pytest.mark.parametrize(
    ("preset", "service", "more"),
    [
        ("anthropic-aws", "aws-external-anthropic", {"workspace": "wrkspc_1"}),
        ("bedrock-mantle", "bedrock-mantle", {}),
    ],
)
def test_hosts_with_the_messages_api(bedrock: Bedrock, preset: str, service: str, more: dict[str, Any]) -> None:
    bedrock.host.service = service
    assert bedrock.ask(bedrock.client(preset=preset, **more), "claude-sonnet-5") == "Rain."
    (request,) = bedrock.server.received
    assert request.target == "/v1/messages"
    assert request.headers.get("anthropic-workspace-id") == more.get("workspace")
    assert json.loads(request.body)["model"] == "claude-sonnet-5"


def test_a_workspace_is_required(bedrock: Bedrock) -> None:
    with pytest.raises(ProviderSetupError, match=r"anthropic-aws needs a workspace: set ANTHROPIC_AWS_WORKSPACE_ID or"):
        bedrock.client(preset="anthropic-aws")


def test_another_region_is_refused_with_the_hosts_own_words(bedrock: Bedrock) -> None:
    error = bedrock.error(bedrock.client({**ENVIRON, "AWS_REGION": "eu-west-1"}))
    assert (error.kind, error.status) == ("authentication", 403)
    assert "Credential should be scoped to a valid region" in error.message
    assert len(bedrock.server.received) == 1  # another signature would not help


def test_a_wrong_secret_is_refused_and_not_shown(bedrock: Bedrock) -> None:
    wrong = "wrong-secret-canary-0000000"
    error = bedrock.error(bedrock.client({**ENVIRON, "AWS_SECRET_ACCESS_KEY": wrong}))
    assert error.kind == "authentication"
    assert wrong not in str(error)


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_a_wrong_clock_is_corrected_by_the_hosts(bedrock: Bedrock, ahead: float) -> None:
    bedrock.host.ahead = ahead
    client = bedrock.client()
    assert bedrock.ask(client) == "Rain."
    assert bedrock.host.rejected == ["InvalidSignatureException"]
    assert bedrock.ask(client) == "Rain."  # from now on by the host's clock
    assert len(bedrock.host.rejected) == 1


def test_keys_that_expire_are_fetched_again_once(bedrock: Bedrock, tmp_path: Path) -> None:
    container = CredentialsService()
    with (
        ScriptedServer(container) as service,
        process_environment(
            AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{service.url}/role", AWS_REGION=REGION, HOME=str(tmp_path)
        ) as environ,
    ):
        client = bedrock.client(environ)
        assert bedrock.ask(client) == "Rain."
        assert bedrock.ask(client) == "Rain."
        assert len(service.received) == 1  # not once per request
        bedrock.host.session_token = container.token = "session-canary-0002"
        assert bedrock.ask(client) == "Rain."
        assert bedrock.host.rejected == ["ExpiredTokenException"]
        bedrock.host.session_token = "session-canary-0003"  # the service still gives the old one
        error = bedrock.error(client)
    assert (error.kind, error.message) == ("authentication", "The security token included in the request is expired")
    assert len(service.received) == 3


def test_a_stream_that_is_cut(bedrock: Bedrock) -> None:
    bedrock.host.cut_after = len(b"".join(FRAMES[:3])) + 20
    deltas = asyncio.run(deltas_from(bedrock.client(), ProviderCallOptions(model=MODEL)))
    assert error_of(deltas).kind == "stream_cut"


def test_an_exception_in_the_stream(bedrock: Bedrock) -> None:
    bedrock.host.frames = [
        FRAMES[0],
        exception("throttlingException", "Too many tokens, please wait before trying again."),
    ]
    assert bedrock.error(bedrock.client()).kind == "rate_limit"


@pytest.mark.parametrize(
    ("status", "name", "message", "kind"),
    [
        (429, "ThrottlingException", "Too many requests, please wait before trying again.", "rate_limit"),
        (400, "ValidationException", "The provided model identifier is invalid.", "not_found"),
        (400, "ValidationException", "max_tokens: Field required", "invalid_request"),
        (403, "AccessDeniedException", "You don't have access to the model with the specified model ID.", "permission"),
        (404, "ResourceNotFoundException", "This Model is marked by provider as Legacy", "not_found"),
        (408, "ModelTimeoutException", "Read timed out", "timeout"),
        (424, "ModelErrorException", "The system encountered an unexpected error", "server"),
        (503, "ServiceUnavailableException", "Bedrock is unable to process your request.", "overloaded"),
        (400, "Something\udcff", "", "invalid_request"),  # a name that is not UTF-8
    ],
)
def test_errors_of_bedrock(bedrock: Bedrock, status: int, name: str, message: str, kind: str) -> None:
    bedrock.host.refusals = [aws_error(status, name, message)]
    error = bedrock.error(bedrock.client())
    assert (error.kind, error.status) == (kind, 500 if status == 424 else status)
    assert message in error.message


def test_every_retry_is_signed_again(bedrock: Bedrock) -> None:
    bedrock.host.refusals = [aws_error(503, "ServiceUnavailableException", "later")] * 2

    async def no_wait(_: float) -> None:
        pass

    from antiphon.providers.retry import RetryPolicy

    client = bedrock.client(retry=RetryPolicy(retries=2), sleep=no_wait)
    assert bedrock.ask(client) == "Rain."
    assert len(bedrock.server.received) == 3
    assert bedrock.host.rejected == []


class CredentialsService:
    """The container service, IMDSv2 and STS."""

    def __init__(self) -> None:
        self.token = SESSION_TOKEN
        self.seen: list[str] = []

    def __call__(self, request: Received) -> Reply:
        self.seen.append(f"{request.method} {request.target}")
        keys = {
            "AccessKeyId": ACCESS_KEY,
            "SecretAccessKey": SECRET_KEY,
            "Token": self.token,
            "Expiration": in_an_hour(),
        }
        if request.target == "/latest/api/token":
            assert request.method == "PUT"
            assert request.headers["x-aws-ec2-metadata-token-ttl-seconds"] == "21600"
            return Reply(body=b"imds-token", content_type="text/plain", has_length=True)
        if request.target.startswith("/latest/meta-data/"):
            assert request.headers["x-aws-ec2-metadata-token"] == "imds-token"
            if request.target.endswith("/security-credentials/"):
                return Reply(body=b"my-role\n", content_type="text/plain", has_length=True)
            return json_reply({"Code": "Success", **keys})
        if request.method == "POST":
            form = dict(parse_qsl(request.body.decode()))
            action = form["Action"]
            assert form["RoleArn"] == "arn:aws:iam::123456789012:role/r"
            if action == "AssumeRoleWithWebIdentity":
                assert form["WebIdentityToken"] == "web-token"
            else:
                assert "Credential=BASE/" in request.headers["authorization"], "signed with the keys of the source"
            fields = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items()).replace(
                "Token>", "SessionToken>"
            )
            result = f"<{action}Result><Credentials>{fields}</Credentials></{action}Result>"
            xml = f"<{action}Response>{result}</{action}Response>"
            return Reply(body=xml.encode(), content_type="text/xml", has_length=True)
        if request.target.startswith("/federation/credentials?"):
            assert request.headers["x-amz-sso_bearer_token"] == "sso-token-canary"
            assert dict(parse_qsl(request.target.partition("?")[2]))["role_name"] == "reader"
            found = {"accessKeyId": ACCESS_KEY, "secretAccessKey": SECRET_KEY, "sessionToken": self.token}
            return json_reply({"roleCredentials": {**found, "expiration": int(time.time() + 3600) * 1000}})
        return json_reply(keys)


def in_an_hour() -> str:
    return datetime.fromtimestamp(time.time() + 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def fetched(reference: str, values: dict[str, str]) -> Fetched[AwsKeys]:
    with process_environment(**values) as environ:
        source = AwsSource(parse_options(reference, AWS, AWS_OPTIONS), REGION, environ=environ)
        return asyncio.run(source.fetch())


TEMPORARY = AwsKeys(ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)


def test_the_instance_role_by_imdsv2() -> None:
    service = CredentialsService()
    with ScriptedServer(service) as server:
        got = fetched("aws:", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url})
    assert got.value == TEMPORARY
    assert 1800 <= got.lifetime <= 3600
    role = "/latest/meta-data/iam/security-credentials/"
    assert service.seen == ["PUT /latest/api/token", f"GET {role}", f"GET {role}my-role"]


def test_profiles(tmp_path: Path) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = D\naws_secret_access_key = DS\n[team]\naws_access_key_id=T\naws_secret_access_key=a%b\n"
    )
    keys = json.dumps({"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "PS", "SessionToken": "PT"})
    (tmp_path / "keys.json").write_text(keys)
    (folder / "config").write_text(
        f"[default]\nregion = eu-north-1\n[profile process]\ncredential_process = cat {tmp_path / 'keys.json'}\n"
        "[profile sso]\nsso_session = s\nregion = eu-west-2\n"
    )
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    assert fetched("aws:", environ).value == AwsKeys("D", "DS")
    assert fetched("aws:", {**environ, "AWS_PROFILE": "team"}).value == AwsKeys("T", "a%b")
    assert fetched("aws:profile=team", environ).value == AwsKeys("T", "a%b")
    assert fetched("aws:profile=process", environ).value == AwsKeys("P", "PS", "PT")
    assert fetched(f"aws:process=cat {tmp_path / 'keys.json'}", environ).value == AwsKeys("P", "PS", "PT")
    with pytest.raises(TokenError, match=r"aws: The config profile \(other\) could not be found"):
        fetched("aws:profile=other", environ)
    assert provider("bedrock", environ=environ).base_url == "https://bedrock-runtime.eu-north-1.amazonaws.com"
    client = provider("bedrock", environ=environ, keys=["aws:profile=sso"])
    assert client.base_url == "https://bedrock-runtime.eu-west-2.amazonaws.com"


def test_keys_by_name() -> None:
    environ = {"A": "ID", "B": "SECRET"}
    assert fetched("aws:id=env:A,secret=env:B", environ).value == AwsKeys("ID", "SECRET")
    with pytest.raises(CredentialError, match="secret contains a literal key; use secret=env:NAME"):
        fetched("aws:id=env:A,secret=SECRET", environ)
    with pytest.raises(CredentialError, match="id and secret belong together"):
        fetched("aws:id=env:A", environ)
    with pytest.raises(CredentialError, match="unknown option 'region'; known: profile"):
        fetched("aws:region=x", environ)


def test_missing_aws_keys_name_the_places_searched() -> None:
    with pytest.raises(TokenError, match=r"no credentials in the environment, in ~/\.aws .* attach a role"):
        fetched("aws:", {"AWS_EC2_METADATA_DISABLED": "true"})
    with (
        ScriptedServer(Reply(status=0)) as server,
        pytest.raises(TokenError, match="no credentials from the iam-role service"),
    ):
        fetched("aws:instance", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url})


@pytest.mark.parametrize("url", ["http://example.com/keys", "http://10.0.0.1/keys"])
def test_keys_are_not_requested_from_another_machine(url: str) -> None:
    with pytest.raises(TokenError, match="Can only retrieve metadata from a loopback address"):
        fetched("aws:container", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url})


@pytest.mark.parametrize("reference", ["aws:", "aws:instance", "aws:container", "aws:profile=sso"])
def test_the_extra_is_named_where_it_is_needed(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.providers.cloud.tokens.find_spec", lambda _: None)
    with pytest.raises(CredentialError, match=r"needs the package botocore; run pip install 'antiphon\[aws\]'"):
        fetched(reference, {})
    static = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}
    assert fetched("aws:", static).value == AwsKeys("A", "B")
    assert fetched("aws:id=env:AWS_ACCESS_KEY_ID,secret=env:AWS_SECRET_ACCESS_KEY", static).value == AwsKeys("A", "B")


def test_other_presets_have_no_signatures() -> None:
    with pytest.raises(
        CredentialError, match="aws: signs requests to AWS, and preset openai is not one of its services"
    ):
        HttpProviderClient("openai", keys=["aws:"])


def trial(preset: str, environ: dict[str, str], url: str, **more: Any) -> KeyTrial:
    client = provider(preset, environ=environ, base_url=url, transport=HttpClient({}), **more)
    return asyncio.run(try_key(client._provider, "aws:"))


def test_the_doctor_tries_the_token(bedrock: Bedrock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    without = {"AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}
    assert trial("bedrock", ENVIRON, bedrock.server.url).verdict == "works"
    refused = trial("bedrock", without, bedrock.server.url)
    assert refused.verdict == "rejected"
    assert "no credentials in the environment" in refused.text
    assert bedrock.server.received == []
    bedrock.host.service = "aws-external-anthropic"
    assert trial("anthropic-aws", without, bedrock.server.url, workspace="w").verdict == "rejected"
    trial("anthropic-aws", ENVIRON, bedrock.server.url, workspace="w")
    assert bedrock.server.received[0].target == "/v1/models"
    assert "AWS4-HMAC-SHA256" in bedrock.server.received[0].headers["authorization"]
    assert bedrock.host.rejected in ([], ["MissingAuthenticationTokenException"])  # with the key, and then without
