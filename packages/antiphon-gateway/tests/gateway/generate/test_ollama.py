"""Ollama's API in front of models of every format, with the official `ollama` client."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Thinking, ToolCallRequest
from antiphon.wire import formats
from antiphon.wire.output import ModelOutput
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import USAGE, cut, echo, hang, text_answer

ollama = pytest.importorskip("ollama")

FORMATS = list(formats)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def weather(city: str) -> str:
    """Current weather in a city.

    Args:
        city: The city.
    """
    return f"rain in {city}"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as started:
        yield started


@pytest.fixture
def client(gateway: Rig) -> Iterator[Any]:
    gateway.clear()
    made = ollama.Client(host=gateway.url)
    yield made
    made.close()
    for upstream in gateway.upstreams.values():
        upstream.answer = echo


@pytest.mark.parametrize("format_name", FORMATS)
def test_chat_whole_and_streamed(client: Any, format_name: str) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "good morning"}]
    answer = client.chat(model=f"to-{format_name}", messages=messages, options={"num_predict": 50, "temperature": 0.5})
    assert "good morning" in answer.message.content
    assert (answer.done, answer.done_reason, answer.model) == (True, "stop", f"to-{format_name}")
    assert (answer.prompt_eval_count, answer.eval_count) == (11, 7)
    parts = list(client.chat(model=f"to-{format_name}", messages=messages, stream=True))
    assert "good morning" in "".join(part.message.content for part in parts)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].prompt_eval_count, parts[-1].eval_count) == (11, 7)


@pytest.mark.parametrize("format_name", FORMATS)
def test_generate_whole_and_streamed(client: Any, format_name: str) -> None:
    answer = client.generate(model=f"to-{format_name}", prompt="good evening", system="be brief")
    assert "good evening" in answer.response
    parts = list(client.generate(model=f"to-{format_name}", prompt="good evening", stream=True))
    assert "good evening" in "".join(part.response for part in parts)
    assert parts[-1].done_reason == "stop"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("format_name", FORMATS)
def test_calls_and_their_results(gateway: Rig, client: Any, format_name: str, streams: bool) -> None:
    calls = tuple(
        ToolCallRequest("weather", f"toolu_{number}", f'{{"city": "{city}"}}')
        for number, city in enumerate(("Oslo", "Bergen"))
    )
    gateway.upstreams[format_name].answer = lambda _: ModelOutput(
        parts=calls, stop_reason="tool_calls", model="m", id="r", usage=USAGE
    )
    messages: list[Any] = [{"role": "user", "content": "weather?"}]
    answer = client.chat(model=f"to-{format_name}", messages=messages, tools=[weather], stream=streams)
    found = [call for part in (answer if streams else [answer]) for call in part.message.tool_calls or ()]
    assert [call.function.arguments for call in found] == [{"city": "Oslo"}, {"city": "Bergen"}]
    messages.append({"role": "assistant", "content": "", "tool_calls": [call.model_dump() for call in found]})
    messages += [
        {"role": "tool", "content": weather(**call.function.arguments), "tool_name": "weather"} for call in found
    ]
    gateway.upstreams[format_name].answer = echo
    assert client.chat(model=f"to-{format_name}", messages=messages, tools=[weather]).message.content
    sent = formats[format_name].read_request(gateway.upstreams[format_name].received[-1].body)
    asked = [part for message in sent.messages for part in message.parts if type(part).__name__ == "ToolCallRequest"]
    results = [part for message in sent.messages for part in message.parts if type(part).__name__ == "ToolCallResult"]
    assert [part.tool_call_id for part in asked] == [part.tool_call_id for part in results]  # type: ignore[union-attr]
    assert [part.result_markdown for part in results] == ["rain in Oslo", "rain in Bergen"]  # type: ignore[union-attr]


def test_images_format_and_thinking_reach_the_model(gateway: Rig, client: Any) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    client.chat(
        model="to-openai-chat",
        messages=[{"role": "user", "content": "what is it?", "images": [PNG]}],
        format=schema,
        think=True,
    )
    sent = gateway.upstreams["openai-chat"].bodies[-1]
    assert sent["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert sent["response_format"]["json_schema"]["schema"] == schema
    client.generate(model="to-gemini", prompt="what is it?", images=[PNG], format="json", think="high")
    sent = gateway.upstreams["gemini"].bodies[-1]
    assert sent["contents"][0]["parts"][1]["inlineData"]["mimeType"] == "image/png"
    assert sent["generationConfig"]["responseMimeType"] == "application/json"
    assert sent["generationConfig"]["thinkingConfig"]


@pytest.mark.parametrize("streams", [False, True])
def test_thinking_is_shown(gateway: Rig, client: Any, streams: bool) -> None:
    gateway.upstreams["openai-chat"].answer = lambda _: structs.replace(
        text_answer("four"), parts=(Thinking("two and two"), *text_answer("four").parts)
    )
    question = [{"role": "user", "content": "2+2"}]
    answer = client.chat(model="to-openai-chat", messages=question, think=True, stream=streams)
    parts = list(answer) if streams else [answer]
    assert "".join(part.message.thinking or "" for part in parts) == "two and two"
    assert "".join(part.message.content for part in parts) == "four"


def test_ollama_options_without_meaning_elsewhere_are_reported(gateway: Rig) -> None:
    body = {
        "model": "to-anthropic",
        "messages": [{"role": "user", "content": "x"}],
        "stream": False,
        "keep_alive": "5m",
        "options": {"num_ctx": 4096, "top_k": 3},
    }
    with gateway.client() as client:
        answer = client.post("/api/chat", body)
        assert (answer.status, "options" in answer.headers["x-antiphon-losses"]) == (200, True)
        assert "keep_alive" not in answer.headers["x-antiphon-losses"]
        for field, value in (("raw", True), ("suffix", "end"), ("context", [1, 2])):
            refused = client.post("/api/generate", {"model": "to-anthropic", "prompt": "x", field: value})
            assert refused.status == 400
            assert refused.json["error"].startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {"model": "to-anthropic"}),
        ("/api/chat", {"messages": []}),
        ("/api/chat", {"model": "to-anthropic", "messages": [{"role": "narrator", "content": "x"}]}),
        ("/api/chat", {"model": "to-anthropic", "messages": [{"role": "user", "content": ["x"]}]}),
        ("/api/chat", {"model": "to-anthropic", "messages": [{"role": "user", "images": [3]}]}),
        ("/api/chat", {"model": "to-anthropic", "messages": [], "format": 3}),
        ("/api/chat", {"model": "to-anthropic", "messages": [], "think": 3}),
        ("/api/generate", {"model": "to-anthropic", "prompt": 3}),
        ("/api/show", {}),
        ("/api/show", []),
    ],
)
def test_malformed_requests_get_a_clear_error(gateway: Rig, path: str, body: Any) -> None:
    with gateway.client() as client:
        refused = client.post(path, body)
    assert refused.status == 400
    assert list(refused.json) == ["error"]


def test_errors_are_exceptions_of_the_client(gateway: Rig, client: Any) -> None:
    with pytest.raises(ollama.ResponseError, match="does not exist") as raised:
        client.chat(model="unknown", messages=[{"role": "user", "content": "x"}])
    assert raised.value.status_code == 404
    gateway.upstreams["openai-chat"].faults.append(cut(400))
    with pytest.raises(ollama.ResponseError):
        list(client.chat(model="to-openai-chat", messages=[{"role": "user", "content": "x" * 900}], stream=True))


def lines_of_a_silence(gateway: Rig, model: str, count: int) -> list[Any]:
    """The first lines without content of a stream that is silent."""
    with gateway.client() as client:
        client._connection.request(
            "POST",
            "/api/chat",
            msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": "x"}]}),
            {"content-type": "application/json"},
        )
        response = client._connection.getresponse()
        assert response.getheader("content-type") == "application/x-ndjson"
        until = time.monotonic() + 20
        lines: list[Any] = []
        while len(lines) < count and time.monotonic() < until:
            line = msgspec.json.decode(response.readline())
            if line["done"] is False and line["message"]["content"] == "":
                lines.append(line)
    return lines


def test_a_silent_model_does_not_break_the_lines() -> None:
    with rig(structs.replace(FAST, keep_alive_seconds=0.05, hold_seconds=0.05)) as started:
        started.upstreams["openai-chat"].faults.append(hang(300))
        lines = lines_of_a_silence(started, "to-openai-chat", 5)
    assert [line["model"] for line in lines] == ["to-openai-chat"] * 5


def test_lines_of_a_silence_name_the_model_that_answers_after_a_fallback() -> None:
    models = {"with-backup": ["anthropic/claude-sonnet-4-5", "openai-chat/gpt-4o"]}
    with rig(structs.replace(FAST, keep_alive_seconds=0.05, hold_seconds=20.0), models=models) as started:
        anthropic, chat = started.upstreams["anthropic"], started.upstreams["openai-chat"]
        chat.answer = lambda _: text_answer("One more word. " * 100)
        chat.faults.append(hang(2000))
        anthropic.faults.append(anthropic.error(529, "overloaded", "Overloaded"))
        lines = lines_of_a_silence(started, "with-backup", 5)
    assert [line["model"] for line in lines] == ["gpt-4o"] * 5


def test_models_are_listed_and_shown(client: Any) -> None:
    listed = client.list()
    assert [model.model for model in listed.models] == [f"to-{name}" for name in FORMATS]
    shown = client.show("to-anthropic")
    assert {"completion", "tools", "vision"} <= set(shown.capabilities)
    assert shown.modelinfo["anthropic.context_length"] > 0
    assert client.ps().models == []
    with pytest.raises(ollama.ResponseError, match="does not exist"):
        client.show("unknown")


def test_the_version(gateway: Rig) -> None:
    with gateway.client() as client:
        assert client.get("/api/version").json["version"].count(".") == 2


def test_the_asynchronous_client(gateway: Rig) -> None:
    async def run() -> str:
        async with ollama.AsyncClient(host=gateway.url) as client:
            question = [{"role": "user", "content": "good night"}]
            stream = await client.chat(model="to-gemini", messages=question, stream=True)
            return "".join([part.message.content async for part in stream])

    assert "good night" in asyncio.run(run())
