"""The status of several workers: the same from each of them."""

from __future__ import annotations

from pathlib import Path

from gateway.rig import ENVIRONMENT, KEY
from gateway.served import config_text, connected, served_gateway
from gateway.strict_upstream import StrictUpstream
from support.waiting import until

ADMIN = "sk-antiphon-the-admin-key-0001"
REQUESTS = 12


def test_every_worker_shows_all_requests(tmp_path: Path) -> None:
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

            def seen() -> set[int]:
                counts = set()
                for _ in range(12):
                    with connected(running.port) as client:
                        status = client.get("/status", authorization=f"Bearer {ADMIN}")
                    assert status.status == 200
                    counts.add(sum(record["operation"] == "chat" for record in status.json["requests"]))
                return counts

            assert until(lambda: seen() == {REQUESTS})
