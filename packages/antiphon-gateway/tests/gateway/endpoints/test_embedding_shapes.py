"""Embeddings across APIs: OpenAI, Gemini and Ollama clients in front of OpenAI and Gemini upstreams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, ModelSettings, ProviderSettings
from gateway.rig import FAST, Client, serving
from providers.scripted_server import Received, Reply, ScriptedServer

VECTORS = [[0.25, -1.5], [0.5, 2.0], [1.0, 0.0]]


def answered(body: Any, status: int = 200) -> Reply:
    return Reply(body=msgspec.json.encode(body), content_type="application/json", has_length=True, status=status)


def openai_host(received: Received) -> Reply:
    body = msgspec.json.decode(received.body)
    assert received.target == "/v1/embeddings"
    count = len(body["input"]) if isinstance(body["input"], list) else 1
    data = [{"object": "embedding", "index": index, "embedding": VECTORS[index]} for index in reversed(range(count))]
    return answered(
        {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 9, "total_tokens": 9}}
    )


def gemini_host(received: Received) -> Reply:
    body = msgspec.json.decode(received.body)
    if received.target.endswith("theirs:embedContent"):
        return answered({"embedding": {"values": VECTORS[0]}})
    assert received.target == "/v1beta/models/theirs:batchEmbedContents"
    assert {entry["model"] for entry in body["requests"]} == {"models/theirs"}
    return answered({"embeddings": [{"values": vector} for vector in VECTORS[: len(body["requests"])]]})


class Running(msgspec.Struct):
    port: int
    openai: ScriptedServer
    gemini: ScriptedServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def sent(self, api: str) -> Any:
        server: ScriptedServer = getattr(self, api)
        return msgspec.json.decode(server.received[-1].body)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with ScriptedServer(openai_host) as openai, ScriptedServer(gemini_host) as gemini:
        config = Config(
            gateway=FAST,
            providers=(
                ProviderSettings(name="openai", base_url=f"{openai.url}/v1", keys=("env:KEY",), retries=0),
                ProviderSettings(name="gemini", base_url=gemini.url, keys=("env:KEY",), retries=0),
                ProviderSettings(name="anthropic", base_url=gemini.url, keys=("env:KEY",), retries=0),
            ),
            models=(
                ModelSettings(name="by-openai", targets=("openai/theirs",)),
                ModelSettings(name="by-gemini", targets=("gemini/theirs",)),
                ModelSettings(name="by-anthropic", targets=("anthropic/claude",)),
                ModelSettings(name="first-with", targets=("anthropic/claude", "gemini/theirs")),
            ),
            keys=(
                ClientKeySettings(name="all", key=hash_key("sk-all")),
                ClientKeySettings(name="strict", key=hash_key("sk-strict"), strict=True),
                ClientKeySettings(name="metered", key=hash_key("sk-metered"), tokens_per_minute=10_000),
            ),
        )
        with serving(config, {"KEY": "sk-upstream"}) as ports:
            yield Running(ports[0], openai, gemini)


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    made = Client(running.port, "sk-all")
    yield made
    made.close()


@pytest.mark.parametrize("model", ["by-openai", "by-gemini", "first-with"])
def test_openai_client(running: Running, model: str) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="sk-all", max_retries=0) as sdk:
        made = sdk.embeddings.create(model=model, input=["a", "b"], dimensions=2)  # it asks for base64
        assert [entry.embedding for entry in sorted(made.data, key=lambda entry: entry.index)] == VECTORS[:2]
        floats = sdk.embeddings.create(model=model, input="a", encoding_format="float")
    assert floats.data[0].embedding == VECTORS[0]
    assert made.usage.prompt_tokens > 0


@pytest.mark.parametrize("model", ["by-openai", "by-gemini"])
def test_google_client(running: Running, model: str) -> None:
    genai = pytest.importorskip("google.genai")
    options = genai.types.HttpOptions(base_url=running.url)
    with genai.Client(api_key="sk-all", http_options=options) as sdk:
        made = sdk.models.embed_content(
            model=model,
            contents=["a", "b"],
            config=genai.types.EmbedContentConfig(output_dimensionality=2, task_type="RETRIEVAL_QUERY"),
        )
    assert [entry.values for entry in made.embeddings] == VECTORS[:2]


@pytest.mark.parametrize("model", ["by-openai", "by-gemini"])
def test_ollama_client(running: Running, model: str) -> None:
    ollama = pytest.importorskip("ollama")
    sdk = ollama.Client(host=running.url, headers={"authorization": "Bearer sk-all"})
    try:
        made = sdk.embed(model=model, input=["a", "b"], dimensions=2)
        assert [list(vector) for vector in made.embeddings] == VECTORS[:2]
        assert made.prompt_eval_count > 0
        assert list(sdk.embeddings(model=model, prompt="a").embedding) == VECTORS[0]
    finally:
        sdk.close()


def test_one_text_of_gemini(running: Running, client: Client) -> None:
    body = {"model": "models/mine", "content": {"parts": [{"text": "a"}]}, "outputDimensionality": 2}
    for model in ("by-openai", "by-gemini"):
        made = client.post(f"/v1beta/models/{model}:embedContent", body)
        assert made.json == {"embedding": {"values": VECTORS[0]}}
    assert running.sent("openai") == {"model": "theirs", "input": ["a"], "encoding_format": "float", "dimensions": 2}
    assert running.sent("gemini") == {**body, "model": "models/theirs"}


def test_bodies_for_the_own_api_pass_unchanged(running: Running, client: Client) -> None:
    body = {"input": [[1, 2]], "model": "by-openai", "later": {"a": None}, "encoding_format": "base64"}
    client.post("/v1/embeddings", body)
    assert running.sent("openai") == {**body, "model": "theirs"}
    batch = {"requests": [{"model": "models/x", "content": {"parts": [{"text": "a"}]}, "later": 1}]}
    client.post("/v1beta/models/by-gemini:batchEmbedContents", batch)
    assert running.sent("gemini") == {"requests": [{**batch["requests"][0], "model": "models/theirs"}]}


def test_embedding_options_that_the_target_lacks_are_reported(running: Running, client: Client) -> None:
    body = {"content": {"parts": [{"text": "a"}]}, "taskType": "RETRIEVAL_QUERY"}
    made = client.post("/v1beta/models/by-openai:embedContent", body)
    assert (made.status, made.headers["x-antiphon-losses"]) == (200, "1; taskType taskType")
    openai = client.post("/v1/embeddings", {"model": "by-gemini", "input": "a b c d", "user": "u"})
    assert (openai.headers["x-antiphon-losses"], openai.headers["x-antiphon-estimate"]) == ("1; user user", "1")
    assert openai.json["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    strict = Client(running.port, "sk-strict")
    try:
        assert strict.post("/v1beta/models/by-openai:embedContent", body).status == 422
    finally:
        strict.close()


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/v1/embeddings", {"model": "by-gemini", "input": [1, 2]}, "not token ids"),
        ("/v1/embeddings", {"model": "by-gemini", "input": []}, "input: expected"),
        ("/v1/embeddings", {"model": "by-gemini", "input": "a", "dimensions": "2"}, "dimensions: expected"),
        ("/api/embed", {"model": "by-openai"}, "input: expected"),
        ("/v1beta/models/by-openai:embedContent", {"content": {"parts": [{"inlineData": {}}]}}, "text only"),
        ("/v1beta/models/by-openai:embedContent", {}, "parts: expected"),
        ("/v1beta/models/by-openai:batchEmbedContents", {"requests": [3]}, "expected an object"),
        ("/v1beta/models/by-openai:batchEmbedContents", {}, "requests: expected"),
    ],
)
def test_embedding_input_that_cannot_be_translated_is_refused(
    client: Client, path: str, body: Any, problem: str
) -> None:
    refused = client.post(path, body)
    assert refused.status == 400
    assert problem in refused.body.decode()


@pytest.mark.parametrize("path", ["/v1beta/models/by-openai:embedContent", "/v1/embeddings"])
@pytest.mark.parametrize("count", [0, 3])
def test_another_number_of_embeddings_than_texts_is_the_providers_error(
    running: Running, client: Client, monkeypatch: pytest.MonkeyPatch, path: str, count: int
) -> None:
    vectors = VECTORS[:count]
    wrong = {"data": [{"embedding": each} for each in vectors], "embeddings": [{"values": each} for each in vectors]}
    body = {"model": "by-gemini", "input": ["a"], "content": {"parts": [{"text": "a"}]}}
    for server in (running.openai, running.gemini):
        monkeypatch.setattr(server, "_script", [lambda _: answered(wrong)])
    refused = client.post(path, body)
    assert refused.status == 502
    assert "embeddings" in refused.body.decode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "by-anthropic", "input": "a"}),
        ("/api/embed", {"model": "by-anthropic", "input": "a"}),
        ("/v1beta/models/by-anthropic:embedContent", {"content": {"parts": [{"text": "a"}]}}),
    ],
)
def test_anthropic_has_no_embeddings(client: Client, path: str, body: Any) -> None:
    refused = client.post(path, body)
    assert refused.status == 404
    assert "which has no embeddings endpoint. Providers with embeddings: openai, gemini." in refused.body.decode()
