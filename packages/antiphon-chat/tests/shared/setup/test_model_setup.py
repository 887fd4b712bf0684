"""Where a chat gets its models from: keys, servers of this machine, and what a person pastes."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from pathlib import Path

import pytest

from antiphon.errors import ProviderSetupError
from antiphon.http.origin import is_loopback
from antiphon_chat.shared.setup.model_setup import KEY_FILE, LOOPBACK_SERVERS, ModelSetup, ModelSource
from providers.scripted_server import Reply, ScriptedServer

SECRET = "sk-ant-very-secret-0001"


def listing(*names: str, owner: str = "x") -> Reply:
    return Reply(body=json.dumps({"data": [{"id": name, "owned_by": owner} for name in names]}).encode())


def sources(setup: ModelSetup) -> list[ModelSource]:
    async def ask() -> list[ModelSource]:
        try:
            return await setup.sources()
        finally:
            await setup.aclose()

    return asyncio.run(ask())


def test_without_keys_and_servers_there_are_the_local_model_and_the_tour() -> None:
    setup = ModelSetup({}, servers=())
    assert [(source.kind, source.model) for source in sources(setup)] == [
        ("local", "local/smollm2-135m"),
        ("tour", "offline/plain"),
    ]


def test_only_addresses_of_this_machine_are_probed() -> None:
    for _, url in LOOPBACK_SERVERS:
        assert is_loopback(url.split("/")[2].partition(":")[0])


@pytest.mark.parametrize(("name", "owner"), [("ollama", "library"), ("lmstudio", "org"), ("vllm", "vllm")])
def test_a_running_server_is_found_with_its_models(name: str, owner: str) -> None:
    with ScriptedServer(listing("llama3.2", "qwen3", owner=owner)) as server:
        setup = ModelSetup({}, servers=[(name, f"{server.url}/v1")])
        found = sources(setup)[0]
        assert server.received[0].target == "/v1/models"
    assert (found.kind, found.provider, found.variable) == ("server", name, "")
    assert found.models == (f"{name}/llama3.2", f"{name}/qwen3")
    assert found.model in setup.models.names
    assert setup.environ[{"ollama": "OLLAMA_HOST"}.get(name, f"{name.upper()}_BASE_URL")].startswith(server.url)


def test_another_program_on_the_port_of_vllm_is_not_vllm() -> None:
    with ScriptedServer(listing("gpt-5.5", owner="antiphon")) as server:
        found = sources(ModelSetup({}, servers=[("vllm", f"{server.url}/v1")]))
    assert [source.kind for source in found] == ["local", "tour"]


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(listing("llama3.2")) as server, ScriptedServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        assert sources(ModelSetup({}, servers=[("ollama", server.url)]))[0].kind == "server"
        assert proxy.received == []


def test_a_provider_with_a_key_lists_its_models_once() -> None:
    with ScriptedServer(listing("gpt-5.5", "gpt-5.5-mini")) as server:
        environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": f"{server.url}/v1"}
        setup = ModelSetup(environ, servers=())

        async def twice() -> list[ModelSource]:
            await setup.sources()
            return await setup.sources()

        found = asyncio.run(twice())[0]
        assert len(server.received) == 1
    assert (found.kind, found.model, found.variable) == ("key", "openai/gpt-5.5", "OPENAI_API_KEY")
    assert setup.listed == ["openai/gpt-5.5", "openai/gpt-5.5-mini"]


def test_a_pasted_key_makes_its_provider_available_and_is_nowhere_to_be_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer(Reply(status=401, body=SECRET.encode())) as server:
        setup = ModelSetup({"ANTHROPIC_BASE_URL": server.url}, tmp_path, servers=())
        assert not setup.models.is_available("anthropic/claude-sonnet-5")
        assert setup.add_key("anthropic", f" {SECRET}\n") == "anthropic/claude-sonnet-5"
        assert setup.models.is_available("anthropic/claude-sonnet-5")
        assert setup.models.choice.model == "anthropic/claude-sonnet-5"
        found = sources(setup)
        assert server.received[0].headers["x-api-key"] == SECRET
    assert SECRET not in f"{found!r} {setup.models.choice!r} {caplog.text}"
    assert list(tmp_path.iterdir()) == [], "it is stored only if asked"


def test_a_stored_key_is_for_the_owner_alone_and_is_there_the_next_time(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    ModelSetup({}, folder, servers=()).add_key("deepseek", SECRET, is_stored=True)
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    again = ModelSetup({}, folder, servers=())
    assert again.models.choice.model.startswith("deepseek/")
    assert again.forget_key("deepseek")
    assert not (folder / KEY_FILE).exists()
    assert not again.forget_key("deepseek")
    assert again.models.choice.model == "offline/plain"


def test_the_environment_has_precedence_over_a_stored_key(tmp_path: Path) -> None:
    ModelSetup({}, tmp_path, servers=()).add_key("openai", "sk-stored", is_stored=True)
    assert ModelSetup({"OPENAI_API_KEY": "sk-env"}, tmp_path).environ["OPENAI_API_KEY"] == "sk-env"
    assert ModelSetup({"OPENAI_API_KEY": " "}, tmp_path).environ["OPENAI_API_KEY"] == "sk-stored"


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    ModelSetup({}, tmp_path, servers=()).add_key("openai", SECRET, is_stored=True)
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(ProviderSetupError, match="chmod 600"):
        ModelSetup({}, tmp_path, servers=())


def test_a_broken_key_file_is_reported_without_its_content(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text(f'{{"OPENAI_API_KEY": "{SECRET}"')
    (tmp_path / KEY_FILE).chmod(0o600)
    with pytest.raises(ProviderSetupError, match="cannot be read; correct or delete it") as caught:
        ModelSetup({}, tmp_path, servers=())
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("key", ["", "  ", "two words", "naïve", "a\x00b", "k" * 1001])
def test_text_that_cannot_be_a_key_is_refused_and_not_repeated(key: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderSetupError, match="not a key of openai") as caught:
        ModelSetup({}, tmp_path, servers=()).add_key("openai", key, is_stored=True)
    assert not key.strip() or key not in str(caught.value)
    assert not (tmp_path / KEY_FILE).exists()


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ProviderSetupError, match="expected one of: anthropic, openai"):
        ModelSetup({}, servers=()).add_key("opneai", SECRET)
