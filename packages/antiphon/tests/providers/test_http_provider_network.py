"""Redirects, proxies, certificates, and that no key appears in any output."""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest

from antiphon.http.client.client import HttpClient
from antiphon.http.client.environment import NetworkEnvironment
from antiphon.http.client.request import HttpRequest, Origin
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.retry import RetryPolicy
from providers.http_client import CHAT, KEY, ONCE, ask, asked, client_of
from providers.sample_answers import error_of, text_of
from providers.scripted_server import Reply, ScriptedServer

# Where it goes.


def test_a_redirect_within_the_same_place_is_followed() -> None:
    there = Reply(status=308, headers={"location": "/moved/chat"})
    with ScriptedServer(there, Reply(body=CHAT)) as server:
        assert text_of(ask(client_of(server))) == "Rain."
        first, second = server.received
    assert second.target == "/moved/chat"
    assert (second.body, second.headers["authorization"]) == (first.body, first.headers["authorization"])


def test_a_circle_of_redirects_is_left() -> None:
    with ScriptedServer(Reply(status=307, headers={"location": "/again"})) as server:
        assert error_of(ask(client_of(server))).code == "redirect_loop"


def test_a_redirect_to_another_port_gets_no_key() -> None:
    with ScriptedServer(Reply(body=CHAT)) as other:
        reply = Reply(status=307, headers={"location": f"{other.url}/v1"})
        with ScriptedServer(reply) as server:
            assert error_of(ask(client_of(server))).code == "redirected"
        assert other.received == []


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://[bad", "redirects to an invalid URL; keys are not sent there"),
        ("/\udcff", "/?; keys are not sent there"),
        ("http://h\udcff/v1", "redirects to http://h?/v1; keys"),
    ],
)
@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_to_an_invalid_url_is_an_error(status: int, location: str, words: str) -> None:
    with ScriptedServer(Reply(status=status, headers={"location": location}), Reply(status=302)) as server:
        error = error_of(ask(client_of(server)))
    assert error.code == "redirected"
    assert words in error.message


@pytest.mark.parametrize(
    ("environ", "is_used"),
    [
        ({"HTTP_PROXY": "{url}"}, True),
        ({"http_proxy": "{url}"}, True),
        ({"ALL_PROXY": "{url}"}, True),
        ({"HTTPS_PROXY": "{url}"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "model.test"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "other.test, .test"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "*"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "odel.test"}, True),
        ({"HTTP_PROXY": "{url}", "REQUEST_METHOD": "GET"}, False),
    ],
)
def test_the_proxy_of_the_environment_is_used(environ: dict[str, str], is_used: bool) -> None:
    with ScriptedServer(Reply(body=CHAT)) as server:
        filled = {name: value.format(url=server.url) for name, value in environ.items()}
        client = client_of("http://model.test/v1", transport=HttpClient(filled), retry=ONCE)
        deltas = ask(client)
        targets = [received.target for received in server.received]
    if is_used:
        assert text_of(deltas) == "Rain."
        assert targets == ["http://model.test/v1/chat/completions"]
    else:
        assert error_of(deltas).code == "dns_failed"
        assert targets == []


@pytest.mark.parametrize(
    ("host", "is_direct"),
    [("169.254.169.254", True), ("metadata.google.internal", True), ("fd00:ec2::254", True), ("api.test", False)],
)
def test_metadata_services_are_reached_without_a_proxy(host: str, is_direct: bool) -> None:
    environment = NetworkEnvironment({"HTTP_PROXY": "http://proxy.test:3128"})
    assert (environment.proxy_for(Origin("http", host, 80)) is None) is is_direct


def test_a_proxy_that_cannot_be_used_is_named_without_its_password() -> None:
    for proxy in (f"socks5://me:{KEY}@127.0.0.1:1", f"http://me:{KEY}@127.0.0.1:1"):
        client = client_of("http://model.test/v1", transport=HttpClient({"ALL_PROXY": proxy}), retry=ONCE)
        error = error_of(ask(client))
        assert error.code == "proxy_failed"
        assert KEY not in error.message


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += [
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(chain),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl is not here")
    return key, chain


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", None])
def test_a_custom_certificate(certificate: tuple[Path, Path], variable: str | None) -> None:
    key, chain = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain, key)
    environ = {variable: str(chain)} if variable else {}
    with ScriptedServer(Reply(body=CHAT), tls=tls) as server:
        client = client_of(server, transport=HttpClient(environ))
        deltas, again = ask(client), ask(client)
    if variable:
        assert (text_of(deltas), text_of(again)) == ("Rain.", "Rain.")
    else:
        error = error_of(deltas)
        assert (error.code, error.kind) == ("tls_failed", "server")
        assert "set SSL_CERT_FILE" in error.message


def test_certificates_that_cannot_be_read_fail_the_attempt() -> None:
    """Another target may have no TLS; it was an exception, which no fallback follows."""
    client = HttpProviderClient(
        "openai",
        keys=[KEY],
        base_url="https://127.0.0.1:1/v1",
        transport=HttpClient({"SSL_CERT_FILE": "/nowhere/ca.pem"}),
    )
    options = asked()
    error = error_of(ask(client, options))
    assert (error.code, error.kind) == ("tls_failed", "server")
    assert "cannot read the certificates in /nowhere/ca.pem (No such file or directory); correct SSL" in error.message
    assert len(options.report.attempts) == 1


# Law L10.


def test_a_key_appears_in_no_output(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret_header = "hidden-header-0000000000000000"
    echo = msgspec.json.encode({"error": {"message": f"no such key {KEY} {secret_header}", "detail": [KEY]}})
    for status in (400, 401, 429, 500, 200):
        options = asked()
        with ScriptedServer(Reply(status=status, body=echo, headers={"x-request-id": "r"})) as server:
            client = client_of(server, headers={"X-Team-Token": secret_header}, retry=RetryPolicy(retries=1))
            deltas = ask(client, options)
            assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
            assert server.received[0].headers["x-team-token"] == secret_header
        assert client.credentials is not None
        shown = [
            deltas,
            options.report,
            client,
            client.credentials,
            client.credentials.status(),
            client._provider.transport,
        ]
        shown += [msgspec.json.encode(options.report), error_of(deltas).message]
        for text in (*map(repr, shown), *map(str, shown), caplog.text):
            assert KEY not in text
            assert secret_header not in text
        assert "no such key sk-…wxyz" in error_of(deltas).message
    assert "[request-1] openai/m: no such key sk-…wxyz" in caplog.text


def test_the_repr_of_a_request_shows_only_its_address() -> None:
    request = HttpRequest(url=f"https://me:{KEY}@h:1/v1?key={KEY}", headers={"authorization": KEY}, body=[KEY.encode()])
    assert repr(request) == "<HttpRequest POST to h:1>"
