"""The nginx example, with a real nginx before a real gateway: TLS, streams, sizes, and who counts as local."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon_gateway.config.file import load_config
from gateway.http.test_tls import write_certificate
from gateway.rig import serving
from support.waiting import free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

EXAMPLE = Path(__file__).parent.parent.parent / "deploy" / "nginx.conf"
CONFIG = """[gateway]
port = 0
format_port = 0
log_level = "warning"
client_keys = ["env:CLIENT"]
[[providers]]
name = "offline"
[[models]]
name = "*"
targets = ["offline/plain"]
"""
KEY = "client-canary-0123456789"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[int]:
    write_certificate(tmp_path)
    file = tmp_path / "antiphon.toml"
    file.write_text(CONFIG)
    environ = {"CLIENT": KEY}
    with serving(load_config(file, environ), environ, file) as (gateway, _):
        port = free_port()
        text = EXAMPLE.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{gateway}")
        text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;").replace(
            "/etc/nginx/antiphon", str(tmp_path)
        )
        folders = "".join(
            f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        whole = tmp_path / "nginx.conf"
        whole.write_text(
            f"daemon off; worker_processes 1; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off; {folders}\n{text}\n}}\n"
        )
        assert NGINX is not None
        process = subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(whole)], stderr=subprocess.PIPE)
        try:
            wait_until_open(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(20)
            assert process.stderr is not None
            process.stderr.close()


def wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read() if process.stderr else b""
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("nginx did not open its port")


def request(port: int, folder: Path, method: str, path: str, body: bytes = b"", key: str = "") -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=str(folder / "server.pem"))
    connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_stream_through_nginx(proxy: int, tmp_path: Path) -> None:
    asked = {"model": "plain", "stream": True, "messages": [{"role": "user", "content": "x" * 2_000_000}]}
    status, body = request(proxy, tmp_path, "POST", "/v1/chat/completions", json.dumps(asked).encode(), KEY)
    assert status == 200
    assert body.rstrip().endswith(b"data: [DONE]")


def test_a_request_through_nginx_is_not_local(proxy: int, tmp_path: Path) -> None:
    assert request(proxy, tmp_path, "GET", "/healthz")[0] == 200
    assert request(proxy, tmp_path, "GET", "/v1/models")[0] == 401
    for path in ("/metrics", "/status"):
        assert request(proxy, tmp_path, "GET", path)[0] in (401, 403)


def test_the_limit_of_nginx_is_the_default_of_the_gateway() -> None:
    found = re.search(r"client_max_body_size (\d+)m;", EXAMPLE.read_text())
    assert found is not None
    assert int(found[1]) * 1024 * 1024 == load_defaults()


def load_defaults() -> int:
    from antiphon_gateway.config.settings import GatewaySettings

    return GatewaySettings().max_body_bytes
