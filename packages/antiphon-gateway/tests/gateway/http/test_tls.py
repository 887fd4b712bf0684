"""TLS on the listeners: clients of every kind, renewal without a restart, and files that cannot be used."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from antiphon_gateway.config.file import load_config, read_config
from gateway.rig import serving
from support.installed import needs_chat

CONFIG = """[gateway]
port = 0
format_port = 0
log_level = "warning"
max_body_bytes = 2048
tls_cert = "server.pem"
tls_key = "server.key"
[[providers]]
name = "offline"
[[models]]
name = "*"
targets = ["offline/plain"]
"""

pytestmark = needs_chat  # a gateway without keys answers with the guided tour


def write_certificate(folder: Path, name: str = "server", *, password: bytes = b"") -> int:
    """A certificate for this machine and its key; the serial number."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now, serial = datetime.now(UTC), x509.random_serial_number()
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), serial, now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
    (folder / f"{name}.key").write_bytes(data)
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return serial


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_certificate(tmp_path)
    (tmp_path / "antiphon.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    file = folder / "antiphon.toml"
    with serving(load_config(file, {}), {}, file) as (port, _):
        yield port


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "server.pem"))


def serial_at(port: int) -> int:
    """The serial number of the certificate that a new connection gets."""
    pem = ssl.get_server_certificate(("localhost", port), timeout=10)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def metrics_at(port: int, context: ssl.SSLContext) -> bytes:
    connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    finally:
        connection.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


def test_an_sdk_over_https(port: int, folder: Path) -> None:
    from openai import DefaultHttpxClient, OpenAI

    client: Any = OpenAI(
        base_url=f"https://localhost:{port}/v1", api_key="none", http_client=DefaultHttpxClient(verify=trusting(folder))
    )
    messages = [{"role": "user", "content": "Hello"}]
    whole = client.chat.completions.create(model="plain", messages=messages)
    assert whole.choices[0].message.content
    pieces = list(client.chat.completions.create(model="plain", messages=messages, stream=True))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    client.close()


def test_a_refused_body_is_answered_and_the_connection_closed(port: int, folder: Path) -> None:
    connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=trusting(folder))
    try:
        connection.request("POST", "/v1/chat/completions", b"x" * 5000, {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 413
        assert response.read()
    finally:
        connection.close()


def test_plain_http_gets_no_answer(port: int) -> None:
    with socket.create_connection(("localhost", port), 10) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        received = plain.recv(1000)
    assert b"HTTP/1.1" not in received


def test_old_tls_versions_are_refused(port: int, folder: Path) -> None:
    context = trusting(folder)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("localhost", port), 10) as plain, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost").close()


def test_a_renewed_certificate_is_used_without_a_restart(port: int, folder: Path) -> None:
    before = serial_at(port)
    connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=trusting(folder))
    try:
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
        renewed = write_certificate(folder)
        wait_for(lambda: serial_at(port) == renewed)
        connection.request("GET", "/healthz")  # the open connection keeps the old one
        assert connection.getresponse().status == 200
    finally:
        connection.close()
    assert renewed != before


def test_a_key_that_does_not_match_changes_nothing(port: int, folder: Path) -> None:
    before = serial_at(port)
    write_certificate(folder, "other")
    (folder / "server.pem").write_bytes((folder / "other.pem").read_bytes())  # the key is still the old one
    insecure = ssl._create_unverified_context()
    wait_for(lambda: b'antiphon_reloads_total{outcome="refused"} 0' not in metrics_at(port, insecure))
    assert serial_at(port) == before
    renewed = write_certificate(folder)
    wait_for(lambda: serial_at(port) == renewed)


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('tls_key = "server.key"\n', "", "gateway.tls_key", "required: tls_cert has no effect without it"),
        ('tls_cert = "server.pem"\n', "", "gateway.tls_cert", "required: tls_key has no effect without it"),
        ("server.pem", "missing.pem", "gateway.tls_cert", "missing.pem: No such file or directory"),
        ("server.key", "other.key", "gateway.tls_cert", "does not belong to the certificate"),
        ("server.key", "server.pem", "gateway.tls_cert", "not a certificate and its key; both must be PEM files"),
        ("server.key", "locked.key", "gateway.tls_cert", "the key without a password"),
    ],
)
def test_files_that_cannot_be_used_are_named(folder: Path, old: str, new: str, key: str, reason: str) -> None:
    write_certificate(folder, "other")
    write_certificate(folder, "locked", password=b"secret")
    file = folder / "antiphon.toml"
    file.write_text(CONFIG.replace(old, new))
    (problem,) = read_config(file, {}).problems
    assert problem.key == key
    assert reason in problem.reason
