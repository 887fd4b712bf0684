"""Legacy completions: in front of chat models, passed on to hosts that serve them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.wire import formats
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, ModelSettings, ProviderSettings
from gateway.rig import FAST, Rig, rig, serving
from providers.scripted_server import Received, Reply, ScriptedServer

FORMATS = list(formats)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    keys = [
        ClientKeySettings(name="all", key=hash_key("sk-all")),
        ClientKeySettings(name="strict", key=hash_key("sk-strict"), strict=True),
    ]
    with rig(keys=keys) as started:
        yield started


@pytest.fixture
def openai_client(gateway: Rig) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-all", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_official_client_gets_a_whole_answer(openai_client: Any, format_name: str) -> None:
    answer = openai_client.completions.create(model=f"to-{format_name}", prompt="once upon a time", max_tokens=50)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert "once upon a time" in answer.choices[0].text  # the upstream repeats what it was sent
    assert (answer.choices[0].finish_reason, answer.choices[0].index) == ("stop", 0)
    assert answer.usage.total_tokens == 18


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_official_client_gets_a_stream(openai_client: Any, format_name: str) -> None:
    chunks = list(openai_client.completions.create(model=f"to-{format_name}", prompt=["a tale"], stream=True))
    assert "a tale" in "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"
    asked = openai_client.completions.create(
        model=f"to-{format_name}", prompt="a tale", stream=True, stream_options={"include_usage": True}
    )
    assert list(asked)[-1].usage.total_tokens == 18


def test_the_prompt_is_a_user_message_with_its_parameters(gateway: Rig) -> None:
    gateway.clear()
    body = {"model": "to-anthropic", "prompt": "hello", "max_tokens": 7, "temperature": 0.5, "stop": "END", "user": "u"}
    with gateway.client("sk-all") as client:
        assert client.post("/v1/completions", body).status == 200
    sent = gateway.upstreams["anthropic"].bodies[-1]
    assert sent["messages"] == [{"role": "user", "content": "hello"}]
    assert (sent["max_tokens"], sent["temperature"], sent["stop_sequences"]) == (7, 0.5, ["END"])


def test_several_choices_are_asked_for_where_the_model_has_them(gateway: Rig) -> None:
    with gateway.client("sk-all") as client:
        client.post("/v1/completions", {"model": "to-openai-chat", "prompt": "x", "n": 2})
        assert gateway.upstreams["openai-chat"].bodies[-1]["n"] == 2
        lossy = client.post("/v1/completions", {"model": "to-anthropic", "prompt": "x", "n": 2, "best_of": 3})
    assert "best_of" in lossy.headers["x-antiphon-losses"]
    assert "candidates" in lossy.headers["x-antiphon-losses"]
    with gateway.client("sk-strict") as client:
        refused = client.post("/v1/completions", {"model": "to-anthropic", "prompt": "x", "best_of": 3})
    assert refused.status == 422


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", ["one", "two"]),
        ("prompt", [1, 2, 3]),
        ("prompt", [[1, 2], [3]]),
        ("echo", True),
        ("suffix", "the end"),
    ],
)
def test_completion_options_that_chat_models_lack_are_refused_by_name(
    openai_client: Any, field: str, value: Any
) -> None:
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.BadRequestError, match=f"{field}: .* is a chat model") as raised:
        openai_client.completions.create(**{"model": "to-anthropic", "prompt": "x", field: value})
    assert raised.value.param == field


@pytest.mark.parametrize("prompt", [None, 3, {}, []])
def test_a_missing_prompt_is_refused(gateway: Rig, prompt: Any) -> None:
    with gateway.client("sk-all") as client:
        refused = client.post("/v1/completions", {"model": "to-anthropic", "prompt": prompt})
    assert refused.status == 400
    assert "prompt: expected" in refused.error("openai-chat").message


CHUNKS = [
    {"id": "cmpl-1", "object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": None}]}
    for text in ("A tal", "e.")
]
LAST = {"id": "cmpl-1", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}


def answered(body: Any) -> Reply:
    return Reply(body=msgspec.json.encode(body), content_type="application/json")


def completions_host(received: Received) -> Reply:
    """A host that serves both APIs."""
    body = msgspec.json.decode(received.body)
    if received.target.endswith("/chat/completions"):
        message = {"role": "assistant", "content": "from chat"}
        return answered({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE})
    if body.get("stream"):
        events = [*CHUNKS, LAST, {"id": "cmpl-1", "choices": [], "usage": USAGE}]
        data = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
        return Reply(body=data)
    choices = [{"index": 0, "text": "A tale.", "logprobs": None, "finish_reason": "stop", "odd": 1}]
    return answered({"id": "cmpl-1", "object": "text_completion", "choices": choices, "usage": USAGE})


@pytest.fixture(scope="module")
def host() -> Iterator[tuple[ScriptedServer, int]]:
    with ScriptedServer(completions_host) as server:
        config = Config(
            gateway=FAST,
            providers=(
                ProviderSettings(name="vllm", base_url=f"{server.url}/v1", keys=("env:KEY",), retries=0),
                ProviderSettings(
                    name="mine", format="openai-chat", base_url=f"{server.url}/v1", completions=("base-*",), retries=0
                ),
            ),
            models=(
                ModelSettings(name="base", targets=("vllm/llama",)),
                ModelSettings(name="base-1", targets=("mine/base-1",)),
                ModelSettings(name="chat", targets=("mine/chat",)),
            ),
            keys=(ClientKeySettings(name="metered", key=hash_key("sk-m"), tokens_per_minute=10_000),),
        )
        with serving(config, {"KEY": "sk-vllm"}) as ports:
            yield server, ports[0]


def test_a_host_that_serves_completions_gets_the_request_as_it_came(host: tuple[ScriptedServer, int]) -> None:
    openai = pytest.importorskip("openai")
    server, port = host
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-m", max_retries=0) as client:
        answer = client.completions.create(
            model="base", prompt=[1, 2], echo=True, suffix="s", extra_body={"top_k": 3, "guided_regex": "a+"}
        )
        sent = server.received[-1]
        assert sent.target == "/v1/completions"
        assert sent.headers["authorization"] == "Bearer sk-vllm"
        assert msgspec.json.decode(sent.body) == {
            "model": "llama", "prompt": [1, 2], "echo": True, "suffix": "s", "top_k": 3, "guided_regex": "a+",
        }  # fmt: skip
        assert (answer.choices[0].text, answer.choices[0].odd, answer.usage.total_tokens) == ("A tale.", 1, 7)
        chunks = list(
            client.completions.create(model="base-1", prompt="x", stream=True, stream_options={"include_usage": True})
        )
        hidden = list(client.completions.create(model="base-1", prompt="x", stream=True))
        assert msgspec.json.decode(server.received[-1].body)["stream_options"] == {"include_usage": True}
        assert all(chunk.choices for chunk in hidden), "the client did not ask for the chunk with the usage"
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == "A tale."
    assert chunks[-1].usage.total_tokens == 7


def test_other_models_of_that_host_are_asked_as_chat_models(host: tuple[ScriptedServer, int]) -> None:
    openai = pytest.importorskip("openai")
    server, port = host
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-m", max_retries=0) as client:
        answer = client.completions.create(model="chat", prompt="x")
    assert server.received[-1].target == "/v1/chat/completions"
    assert answer.choices[0].text == "from chat"
