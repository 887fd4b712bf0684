"""A gateway in front of Bedrock, Vertex AI and Azure: any client's format, streams and whole answers, tokens that expire."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon_gateway.config.file import load_config, read_config
from gateway.rig import Client, serving
from providers.cloud.stand_in import (
    ACCESS_KEY,
    FRAMES,
    PRIVATE_PEM,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    AwsStandIn,
    AzureStandIn,
    GoogleStandIn,
    exception,
    model_in,
    own_certificate,
    process_environment,
)
from providers.scripted_server import ScriptedServer

AWS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": SESSION_TOKEN,
    "HOME": "/nonexistent",
}
QUESTION = {"max_tokens": 100, "messages": [{"role": "user", "content": "Is it raining?"}]}
MODEL = "anthropic.claude-sonnet-4-5-20250929-v1:0"
GATEWAY = '[gateway]\nport = 0\nformat_port = 0\nlog_level = "warning"\n'


@contextmanager
def gateway(folder: Path, provider: str, environ: Mapping[str, str]) -> Iterator[Client]:
    file = folder / "antiphon.toml"
    routes = f'[[models]]\nname = "my-claude"\ntargets = ["cloud/{MODEL}"]\n'
    routes += '[[models]]\nname = "*"\ntargets = ["cloud/*"]\n'
    file.write_text(f"{GATEWAY}[[providers]]\n{provider}\nretries = 0\n{routes}")
    config = load_config(file, environ)
    with serving(config, environ, file) as (port, _):
        client = Client(port)
        try:
            yield client
        finally:
            client.close()


def bedrock(url: str, **more: str) -> str:
    settings = {"name": "cloud", "preset": "bedrock", "region": REGION, "base_url": url, **more}
    return "\n".join(f'{name} = "{value}"' for name, value in settings.items())


@pytest.mark.parametrize("client_format", ["anthropic", "openai-chat", "gemini", "openai-responses"])
@pytest.mark.parametrize("streams", [True, False])
def test_every_client_reaches_bedrock(tmp_path: Path, client_format: str, streams: bool) -> None:
    question: dict[str, Any] = dict(QUESTION)
    if client_format == "gemini":
        question = {"contents": [{"role": "user", "parts": [{"text": "Is it raining?"}]}]}
    elif client_format == "openai-responses":
        question = {"input": "Is it raining?"}
    host = AwsStandIn()
    with ScriptedServer(host) as server, gateway(tmp_path, bedrock(server.url), AWS) as client:
        for _ in range(2):
            output = client.ask(client_format, "my-claude", question, streams=streams).output(
                client_format, streams=streams
            )
            assert [getattr(part, "text", "") for part in output.parts] == ["Rain."]
        assert host.rejected == []
        assert {model_in(request.target) for request in server.received} == {MODEL}


def test_an_unchanged_body_keeps_its_betas_and_version(tmp_path: Path) -> None:
    with ScriptedServer(AwsStandIn()) as server, gateway(tmp_path, bedrock(server.url), AWS) as client:
        headers = {"anthropic-beta": "context-1m-2025-08-07, other", "anthropic-version": "2023-06-01"}
        body = {**QUESTION, "model": MODEL, "stream": True, "metadata": {"user_id": "u"}}
        got = client.post("/v1/messages", body, headers)
        assert got.status == 200
        assert got.headers["content-type"].startswith("text/event-stream")
        assert b"event: message_stop" in got.body
        sent = json.loads(server.received[0].body)
    assert sent["anthropic_beta"] == ["context-1m-2025-08-07", "other"]
    assert sent["metadata"] == {"user_id": "u"}
    assert "anthropic-beta" not in server.received[0].headers


def test_token_counts_are_estimated(tmp_path: Path) -> None:
    with ScriptedServer(AwsStandIn()) as server, gateway(tmp_path, bedrock(server.url), AWS) as client:
        got = client.post("/v1/messages/count_tokens", {"model": MODEL, "messages": QUESTION["messages"]})
        assert (got.status, got.headers["x-antiphon-estimate"]) == (200, "1")
        assert server.received == []


def test_a_stream_that_breaks_ends_with_an_error(tmp_path: Path) -> None:
    host = AwsStandIn()
    with ScriptedServer(host) as server, gateway(tmp_path, bedrock(server.url), AWS) as client:
        host.frames = [*FRAMES[:3], exception("modelStreamErrorException", "The model failed.")]
        error = client.ask("anthropic", MODEL, QUESTION, streams=True).assembler("anthropic").error
        assert error is not None
        assert (error.kind, error.message) == ("server", "The model failed.")
        host.frames, host.cut_after = list(FRAMES), len(b"".join(FRAMES[:3])) + 9
        error = client.ask("openai-chat", MODEL, QUESTION, streams=True).assembler("openai-chat").error
        assert error is not None
        host.cut_after = None
        assert client.ask("anthropic", MODEL, QUESTION, streams=False).status == 200


def service_account(folder: Path, server: ScriptedServer) -> dict[str, str]:
    """The environment of a gateway with a key file of a service account."""
    account = {"type": "service_account", "private_key": PRIVATE_PEM, "token_uri": f"{server.url}/token"}
    email = "robot@my-project.iam.gserviceaccount.com"
    (folder / "account.json").write_text(json.dumps({**account, "client_email": email}))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(folder / "account.json"), "HOME": "/nonexistent"}


def test_vertex_with_a_token_that_is_revoked(tmp_path: Path) -> None:
    host = GoogleStandIn()
    with ScriptedServer(host) as server:
        environ = service_account(tmp_path, server)
        provider = f'name = "cloud"\npreset = "vertex-anthropic"\nproject = "p"\nbase_url = "{server.url}"'
        with gateway(tmp_path, provider, environ) as client:
            for streams in (True, False, True):
                output = client.ask("anthropic", "claude-x", QUESTION, streams=streams).output(
                    "anthropic", streams=streams
                )
                assert len(output.parts) == 1
                host.valid = "revoked"
    assert host.issued == 3  # one, and one after each rejection
    assert model_in(server.received[-1].target) == "claude-x"


def test_claude_under_the_preset_of_gemini_is_refused_with_the_right_one(tmp_path: Path) -> None:
    with ScriptedServer(GoogleStandIn()) as server:
        environ = service_account(tmp_path, server)
        provider = f'name = "cloud"\npreset = "vertex"\nproject = "p"\nbase_url = "{server.url}"'
        with gateway(tmp_path, provider, environ) as client:
            for streams in (True, False):
                got = client.ask("anthropic", "claude-x", QUESTION, streams=streams)
                assert got.status == 404
                assert 'preset = "vertex-anthropic"' in got.error("anthropic").message
        assert server.received == []


def test_azure_with_a_client_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, (tls, trusted) = AzureStandIn(), own_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    with ScriptedServer(host, tls=tls) as login, ScriptedServer(host) as server:
        environ = {"AZURE_AUTHORITY_HOST": f"https://127.0.0.1:{login.port}", "S": "entra-secret-canary"}
        keys = 'keys = ["entra:tenant=tenant-1,client=client-1,secret=env:S"]'
        provider = f'name = "cloud"\npreset = "azure-openai"\nbase_url = "{server.url}/openai/v1"\n{keys}'
        with gateway(tmp_path, provider, environ) as client:
            for _ in range(3):
                got = client.ask("openai-chat", "my-deployment", QUESTION, streams=True)
                assert got.output("openai-chat", streams=True).parts
    assert host.issued == 1


def test_an_identity_without_a_token_is_a_clear_answer(tmp_path: Path) -> None:
    with (
        process_environment(AWS_EC2_METADATA_DISABLED="true") as environ,
        ScriptedServer(AwsStandIn()) as server,
        gateway(tmp_path, bedrock(server.url), environ) as client,
    ):
        got = client.ask("anthropic", MODEL, QUESTION, streams=False)
        assert server.received == []
    assert got.status in (401, 502)
    assert "no credentials in the environment" in got.error("anthropic").message


@pytest.mark.parametrize(
    ("lines", "key", "reason"),
    [
        (
            'preset = "bedrock"',
            "providers[0].region",
            'required: set AWS_REGION, AWS_DEFAULT_REGION or region = "us-east-1"',
        ),
        ('preset = "vertex"', "providers[0].project", "required: set GOOGLE_CLOUD_PROJECT or"),
        ('preset = "azure-openai"\nkeys = ["env:K"]', "providers[0].resource", "base_url (AZURE_OPENAI_ENDPOINT)"),
        ('preset = "bedrock"\nregion = "a/b"', "providers[0].region", "not valid; use letters, digits"),
        (
            'preset = "openai"\nkeys = ["env:K"]\nregion = "x"',
            "providers[0].region",
            "has no effect with preset openai",
        ),
        ('preset = "openai"\nkeys = ["aws:"]', "providers[0].keys[0]", "preset openai is not one of its services"),
        (
            'preset = "openai"\nkeys = ["command:no-such-program-x y"]',
            "providers[0].keys[0]",
            "cannot find the program",
        ),
        ('preset = "openai"\nkeys = ["command:"]', "providers[0].keys[0]", "names no program"),
        ('preset = "vertex"\nproject = "p"\nkeys = ["google:/no/file"]', "providers[0].keys[0]", "no credentials file"),
        (
            'preset = "openai"\nkeys = ["env:K"]\n[[keys]]\nname = "c"\nkey = "command:x"',
            "keys[0].key",
            "names a token source, which only keys of providers may",
        ),
    ],
)
def test_missing_cloud_settings_are_named_with_their_place(tmp_path: Path, lines: str, key: str, reason: str) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(f'{GATEWAY}[[providers]]\nname = "cloud"\n{lines}\n')
    problems = read_config(file, {"K": "some-key-000000", "HOME": "/nonexistent", "PATH": "/usr/bin"}).problems
    assert [problem.key for problem in problems] == [key]
    assert reason in problems[0].reason
