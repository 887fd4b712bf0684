"""Which names of models are served: `[[models]]` and the globs of a key are boundaries, for every endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from msgspec import structs

from antiphon.errors import InvalidModelName, RoutingError
from antiphon.http.client.client import HttpClient
from antiphon.parts import Text
from antiphon.providers.presets import PRESETS
from antiphon.providers.router import ProviderRouter
from antiphon.providers.routes import MAX_NAME_LENGTH, Route, check_model_name
from antiphon.wire import FORMATS
from antiphon.wire.request import Message, ModelRequest
from antiphon_chat.page.mounted.gateway_chat import gateway_models
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, ModelSettings, ProviderSettings
from antiphon_gateway.runtime.loaded import LoadedConfig
from gateway.rig import FAST, MODELS, Client, Rig, rig, serving
from providers.scripted_server import Reply, ScriptedServer

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
INVALID = [
    "gpt-4-/../secret-deployment",
    "gpt-4-/./x",
    "..",
    "gpt-4-x/..",
    "gpt-4-\\..\\secret",
    "gpt-4-\nx",
    "gpt-4-\x7f",
    "gpt-4-\u202e",
    "gpt-4-" + "x" * MAX_NAME_LENGTH,
]


@pytest.mark.parametrize("name", INVALID)
def test_invalid_names_are_refused_by_check_router_and_address(name: str) -> None:
    router = ProviderRouter(routes=[Route("gpt-4-*", ["azure-openai/*"])], environ={})
    for refuse in (
        lambda: check_model_name(name),
        lambda: router.resolve(name),
        lambda: router.resolve(f"openai/{name}"),
        lambda: PRESETS["azure-openai"].at_host("https://h").url_for(name),
    ):
        with pytest.raises(InvalidModelName, match="model: the name"):
            refuse()


@pytest.mark.parametrize(
    "name", ["gpt-4.1", "org/model:free", "..gpt", "a...b/c..", "模型", "m" * MAX_NAME_LENGTH, "a b"]
)
def test_names_that_models_have_are_accepted(name: str) -> None:
    check_model_name(name)


def test_a_name_in_the_middle_of_a_path_is_one_segment() -> None:
    azure, gemini = (PRESETS[name].at_host("https://h") for name in ("azure-openai", "gemini"))
    assert "/deployments/gpt-4%2Fextensions/chat/" in azure.url_for("gpt-4/extensions")
    assert "/models/org/name:stream" in gemini.url_for("org/name")


@pytest.fixture(scope="module")
def azure() -> Iterator[tuple[ScriptedServer, int]]:
    """A gateway before an Azure that has a deployment outside the configuration."""
    reply = Reply(status=400, body=b'{"error": {"message": "seen"}}', content_type="application/json", has_length=True)
    with ScriptedServer(reply) as server:
        config = Config(
            gateway=FAST,
            providers=(
                ProviderSettings(
                    name="azure", preset="azure-openai", base_url=f"{server.url}/openai", keys=("env:K",), retries=0
                ),
            ),
            models=(ModelSettings(name="*", targets=("azure/*",)),),
            keys=(ClientKeySettings(name="limited", key=hash_key("sk-limited"), models=("gpt-4-*",)),),
        )
        with serving(config, {"K": "sk-0123456789abcdef"}) as (port, _):
            yield server, port


@pytest.mark.parametrize("name", INVALID)
def test_a_limited_key_cannot_leave_its_glob(azure: tuple[ScriptedServer, int], name: str) -> None:
    server, port = azure
    client = Client(port, "sk-limited")
    try:
        messages = [{"role": "user", "content": "hi"}]
        for path, body in [
            ("/v1/chat/completions", {"model": name, "messages": messages}),
            ("/v1/chat/completions", {"model": name, "messages": messages, "stream": True}),
            ("/v1/messages", {"model": name, "messages": messages, "max_tokens": 9}),
            ("/v1/responses", {"model": name, "input": "hi"}),
            ("/v1/embeddings", {"model": name, "input": "hi"}),
            ("/v1/messages/count_tokens", {"model": name, "messages": messages}),
        ]:
            got = client.post(path, body)
            assert got.status == 400, (path, got.body)
            assert b"model: the name" in got.body
        quoted = quote(name, safe="")
        assert client.get(f"/v1/models/{quoted}").status in (400, 404)
        contents = {"contents": [{"parts": [{"text": "hi"}]}]}
        assert client.post(f"/v1beta/models/{quoted}:generateContent", contents).status in (400, 404)
    finally:
        client.close()
    assert server.received == []


@pytest.fixture(scope="module", params=[False, True], ids=["listed only", "unlisted too"])
def gateway(request: pytest.FixtureRequest) -> Iterator[tuple[Rig, bool]]:
    settings = structs.replace(FAST, serve_unlisted_models=request.param)
    with rig(settings) as running:
        yield running, request.param


@pytest.mark.parametrize("source", FORMATS)
def test_unlisted_models_are_served_only_if_configured(gateway: tuple[Rig, bool], source: str) -> None:
    running, is_open = gateway
    for target in FORMATS:
        with running.client() as client:
            name = f"{target}/{MODELS[target]}"
            got = client.ask(source, name, QUESTION, streams=False)
            assert got.status == (200 if is_open else 404), got.body
            assert client.ask(source, f"to-{target}", QUESTION, streams=False).status == 200
            assert client.get(f"/v1/models/{name}").status == got.status
            listed = [model["id"] for model in client.get("/v1/models").json["data"]]
            assert listed == [f"to-{name}" for name in FORMATS]


def test_counts_and_embeddings_keep_to_the_listed_models(gateway: tuple[Rig, bool]) -> None:
    running, is_open = gateway
    with running.client() as client:
        name = f"anthropic/{MODELS['anthropic']}"
        body = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
        assert client.post("/v1/messages/count_tokens", body).status == (200 if is_open else 404)
        refused = client.post("/v1/embeddings", {"model": "openai-chat/small", "input": "x"})
        assert (b"does not exist" in refused.body) is not is_open


def test_without_models_every_model_of_the_providers_is_served() -> None:
    provider = ProviderSettings(name="openai", keys=("env:K",))
    models = (ModelSettings(name="mine", targets=("openai/gpt-4o",)),)
    for config, is_open in [
        (Config(providers=(provider,)), True),
        (Config(providers=(provider,), models=models), False),
    ]:
        running = LoadedConfig(config, HttpClient({}), environ={"K": "sk-0123456789"})
        if is_open:
            assert str(running.resolve("openai/gpt-5")[0]) == "openai/gpt-5"
        else:
            with pytest.raises(RoutingError, match="no route matches it"):
                running.resolve("openai/gpt-5")
            assert str(running.resolve("mine")[0]) == "openai/gpt-4o"


@pytest.mark.parametrize("is_open", [False, True])
def test_the_chat_page_keeps_to_the_listed_models(is_open: bool) -> None:
    config = Config(
        gateway=structs.replace(FAST, serve_unlisted_models=is_open),
        providers=(ProviderSettings(name="openai", keys=("env:K",)),),
        models=(ModelSettings(name="mine", targets=("openai/gpt-4o",)),),
    )
    models = gateway_models(LoadedConfig(config, HttpClient({}), environ={"K": "sk-0123456789"}))
    models.check("mine")
    models.router.resolve("mine")
    assert models.names[0] == "mine"
    assert (len(models.names) > 1) is is_open
    if is_open:
        models.check("openai/gpt-5")
        return
    for resolve in (models.check, models.router.resolve):
        with pytest.raises(RoutingError, match="no route matches it"):
            resolve("openai/gpt-5")


def test_a_repeated_model_is_sent_as_it_was_checked() -> None:
    """The last of two equal keys counts here; a parser upstream that takes the first one must not find another model."""
    keys = (
        ClientKeySettings(name="limited", key=hash_key("sk-limited"), models=("cheap",)),
        ClientKeySettings(name="paid", key=hash_key("sk-paid"), tokens_per_day=1_000_000),
    )
    first = '"model": "expensive", "max_tokens": 9, "max_tokens": 7'
    bodies = {
        "/v1/chat/completions": f'{{{first}, "messages": [{{"role": "user", "content": "Hi"}}], "model": "cheap"}}',
        "/v1/messages": f'{{{first}, "messages": [{{"role": "user", "content": "Hi"}}], "model": "cheap"}}',
        "/v1/embeddings": f'{{{first}, "input": "Hi", "model": "cheap"}}',
        "/v1/messages/count_tokens": f'{{{first}, "messages": [{{"role": "user", "content": "Hi"}}], "model": "cheap"}}',
    }
    reply = Reply(status=400, body=b'{"error": {"message": "seen"}}', content_type="application/json", has_length=True)
    with ScriptedServer(reply) as server:
        for preset, paths in (("compatible", ("chat", "embed")), ("anthropic", ("messages",))):
            url = server.url if preset == "anthropic" else f"{server.url}/v1"
            provider = ProviderSettings(name="up", preset=preset, base_url=url, keys=("env:K",), retries=0)
            models = (ModelSettings(name="cheap", targets=("up/cheap",)),)
            config = Config(gateway=FAST, providers=(provider,), models=models, keys=keys)
            with serving(config, {"K": "sk-0123456789abcdef"}) as (port, _):
                for key in ("sk-limited", "sk-paid"):
                    client = Client(port, key)
                    for path, body in bodies.items():
                        if any(part in path for part in paths):
                            server.received.clear()
                            client.post(path, body.encode())
                            (sent,) = server.received
                            assert sent.body.count(b'"model"') == 1, (path, key, sent.body)
                            assert b"expensive" not in sent.body
                            assert sent.body.count(b'"max_tokens"') <= 1
                    client.close()
