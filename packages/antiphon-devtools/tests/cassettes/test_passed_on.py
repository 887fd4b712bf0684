"""Requests that are passed on, background answers and several workers, on a tape."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon_devtools.cassettes.recorder import recorder_to
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, LedgerSettings, ProviderSettings
from cassettes.test_record_and_replay import ask, exchanges, recording, replaying, send
from gateway.endpoints.test_pass_through import AUDIO, SECRET, host
from gateway.rig import FAST, KEY, serving
from gateway.served import config_text, connected, served
from gateway.strict_upstream import StrictUpstream
from support.waiting import until

CLIENT_KEY = "sk-of-the-client-0123456789"


def upload_to_gemini(url: str) -> Any:
    genai = pytest.importorskip("google.genai")
    options = genai.types.HttpOptions(base_url=url)
    with genai.Client(api_key=CLIENT_KEY, http_options=options) as client:
        text = genai.types.UploadFileConfig(mime_type="text/plain")
        return client.files.upload(file=io.BytesIO(b"some text"), config=text).name


def use_openai_files(url: str) -> Any:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{url}/v1", api_key=CLIENT_KEY, max_retries=0) as client:
        made = client.files.create(file=("a.bin", AUDIO), purpose="batch")
        return made.id, client.files.content("file-1").content, client.files.delete("file-1").deleted


@pytest.mark.parametrize("use", [upload_to_gemini, use_openai_files])
def test_files_are_uploaded_and_read_from_the_tape(use: Callable[[str], Any], tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    with host() as (address, seen):
        config = Config(
            gateway=FAST,
            providers=(
                ProviderSettings(name="openai", base_url=f"{address}/v1", keys=("env:KEY",)),
                ProviderSettings(name="gemini", base_url=address, keys=("env:KEY",)),
            ),
            keys=(ClientKeySettings(name="all", key=hash_key(CLIENT_KEY)),),
            ledger=LedgerSettings(enabled=False),
        )
        with serving(config, {"KEY": SECRET}, tape=recorder_to(path)) as (port, _):
            live = use(f"http://127.0.0.1:{port}")
        asked = len(seen.requests)
    with replaying(path) as port:
        assert use(f"http://127.0.0.1:{port}") == live
    assert len(exchanges(path)) == asked
    stored = repr(exchanges(path))
    assert [secret for secret in (CLIENT_KEY, SECRET, "leaked") if secret in stored] == []
    if use is upload_to_gemini:
        assert "ticket=[removed]" in stored


def test_a_background_answer_is_polled_as_it_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    body = {"model": "to-openai-chat", "background": True, **ask("openai-responses", "Hi.")}
    with recording(path) as gateway, gateway.client() as client:
        created = client.post("/v1/responses", body).json
        place = f"/v1/responses/{created['id']}"
        done = until(lambda: (got := client.get(place).json)["status"] == "completed" and got)
    with replaying(path) as port, connected(port) as client:
        assert client.post("/v1/responses", body).json == created
        assert until(lambda: (got := client.get(place).json)["status"] == "completed" and got) == done


def test_a_failure_and_the_answer_after_it_are_played_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tape.db"
    with recording(path) as gateway, gateway.client() as client:
        upstream = gateway.upstreams["anthropic"]
        upstream.faults.append(upstream.error(500, "server", "try again"))
        live = [send(client, "anthropic"), send(client, "anthropic")]
    with replaying(path) as port, connected(port) as client:
        played = [send(client, "anthropic"), send(client, "anthropic")]
    assert [got.body for got in played] == [got.body for got in live]
    assert [got.status for got in played] == [502, 200]


@pytest.mark.slow
def test_several_workers_record_on_one_tape(tmp_path: Path) -> None:
    with StrictUpstream("openai-chat", [KEY.format("openai-chat")]) as upstream:
        config = tmp_path / "antiphon.toml"
        config.write_text(config_text([upstream], {"to-openai-chat": "openai-chat/gpt-4o"}))
        with served(config, "--workers", "2", "--record", "tape.db") as gateway:
            for number in range(8):
                with connected(gateway.port) as client:
                    assert send(client, "openai-chat", f"number {number}").status == 200
            assert gateway.stop() == 0
    assert len(exchanges(tmp_path / "tape.db")) == 8
    with replaying(tmp_path / "tape.db") as port, connected(port) as client:
        for number in range(8):
            assert send(client, "openai-chat", f"number {number}").status == 200
