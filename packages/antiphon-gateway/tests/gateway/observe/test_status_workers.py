"""The status page of several workers: one login for all of them, and the figures of all of them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

from gateway.rig import ENVIRONMENT, KEY
from gateway.served import config_text, connected, served_gateway
from gateway.strict_upstream import StrictUpstream
from support.waiting import until

ADMIN = "sk-antiphon-the-admin-key-0001"
REQUESTS = 12


def test_every_worker_accepts_the_session_and_shows_all_requests(tmp_path: Path) -> None:
    config = tmp_path / "antiphon.toml"
    with StrictUpstream("anthropic", [KEY.format("anthropic")]) as upstream:
        config.write_text(
            config_text([upstream], {"m": "anthropic/claude-sonnet-4-5"})
            + '[[keys]]\nname = "chief"\nkey = "env:ADMIN"\nadmin = true\n'
        )
        environ = {**ENVIRONMENT, "ADMIN": ADMIN}
        with served_gateway(config, "--workers", "2", environ=environ) as running:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
            for _ in range(REQUESTS):
                with connected(running.port) as client:
                    assert client.post("/v1/chat/completions", body, {"x-api-key": ADMIN}).status == 200
            form = {"content-type": "application/x-www-form-urlencoded"}
            with connected(running.port) as client:
                got = client.request("POST", "/status/login", urlencode({"key": ADMIN}).encode(), form)
            cookie = got.headers["set-cookie"].partition(";")[0]

            def seen() -> set[int]:
                counts = set()
                for _ in range(12):
                    with connected(running.port) as client:
                        status = client.get("/status", cookie=cookie)
                    assert status.status == 200
                    counts.add(sum(record["operation"] == "chat" for record in status.json["requests"]))
                return counts

            assert until(lambda: seen() == {REQUESTS})
