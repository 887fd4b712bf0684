"""The official SDKs, unchanged, through the gateway to upstreams of every format: they judge what their clients see."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest

from antiphon.parts import Image, Text, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire import FORMATS
from antiphon.wire.output import ErrorKind, ModelOutput
from antiphon.wire.request import ModelRequest
from gateway.rig import Rig, rig
from gateway.sdk_talks import (
    ASKED,
    ChatTalk,
    ContentsTalk,
    MessagesTalk,
    ResponsesTalk,
    genai,
    run_talk,
    run_talk_async,
)
from gateway.strict_upstream import USAGE, cut, text_answer
from gateway.test_matrix import PIXEL, calls_of

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of what it imports itself
    genai_errors = pytest.importorskip("google.genai.errors")

CITIES = ["Łódź", "北京"]
ANSWER = "A dot. It rains in both. 🌧"
NO_KEY = "sk-none-is-needed-here"
NO_TLS: dict[str, Any] = {"verify": False}
"""Nothing is encrypted here: so the certificates need not be read for every client."""


def model_of(request: ModelRequest) -> ModelOutput:
    """Asks the tool about every city, then answers."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolCallResult)]
    if not request.tools:
        return text_answer(ANSWER)
    if not results:
        made = [
            ToolCallRequest("weather", f"call_{number}", msgspec.json.encode({"city": city}).decode())
            for number, city in enumerate(CITIES)
        ]
        return ModelOutput(parts=(Text("I look."), *made), stop_reason="tool_calls", id="a", model="m", usage=USAGE)
    assert [text_of(result.content) for result in results[-2:]] == ["rain in Łódź", "rain in 北京"]
    return text_answer(ANSWER)


@pytest.fixture(scope="module")
def running() -> Iterator[Rig]:
    with rig() as gateway:
        yield gateway


@pytest.fixture
def gateway(running: Rig) -> Rig:
    running.clear()
    for upstream in running.upstreams.values():
        upstream.answer = model_of
        upstream.piece = 23
    return running


def check_arrived(gateway: Rig, target: str) -> None:
    """The upstream accepted everything, saw the picture and the question."""
    upstream = gateway.upstreams[target]
    assert upstream.refused == []
    first = upstream.wire.read_request(upstream.received[0].body).messages[-1].parts
    assert [part.data for part in first if isinstance(part, Image)] == [PIXEL]
    assert text_of(first) == ASKED
    last = upstream.wire.read_request(upstream.received[-1].body)
    parts = [part for message in last.messages for part in message.parts]
    calls = calls_of(ModelOutput(parts=tuple(part for part in parts if isinstance(part, ToolCallRequest))))
    assert [call.parse_arguments()["city"] for call in calls] == CITIES


@contextmanager
def openai_client(gateway: Rig, **settings: Any) -> Iterator[Any]:
    asked = {"api_key": NO_KEY, "max_retries": 0, "http_client": openai.DefaultHttpxClient(**NO_TLS), **settings}
    with openai.OpenAI(base_url=f"{gateway.url}/v1", **asked) as client:
        yield client


@contextmanager
def anthropic_client(gateway: Rig, **settings: Any) -> Iterator[Any]:
    asked = {"api_key": NO_KEY, "max_retries": 0, "http_client": anthropic.DefaultHttpxClient(**NO_TLS), **settings}
    with anthropic.Anthropic(base_url=gateway.url, **asked) as client:
        yield client


@contextmanager
def genai_client(gateway: Rig, **settings: Any) -> Iterator[Any]:
    asked = {"base_url": gateway.url, "client_args": NO_TLS, **settings}
    client = genai.Client(api_key=NO_KEY, http_options=asked)
    try:
        yield client
    finally:
        client.close()


def to_the_end(stream: Callable[..., Any], final: str, **more: Any) -> Callable[[dict[str, Any]], Any]:
    """Ask with the SDK's own helper for streams, and wait for all of the answer."""

    def step(asked: dict[str, Any]) -> Any:
        with stream(**asked, **more) as events:
            return getattr(events, final)()

    return step


@pytest.mark.parametrize("target", FORMATS)
def test_openai(gateway: Rig, target: str) -> None:
    model, usage = f"to-{target}", {"include_usage": True}
    with openai_client(gateway) as client:
        chat, responses = client.chat.completions, client.responses
        assert run_talk(ChatTalk(model), lambda asked: chat.create(**asked)) == ANSWER
        assert (
            run_talk(ChatTalk(model), to_the_end(chat.stream, "get_final_completion", stream_options=usage)) == ANSWER
        )
        assert run_talk(ResponsesTalk(model), lambda asked: responses.create(**asked)) == ANSWER
        assert run_talk(ResponsesTalk(model), to_the_end(responses.stream, "get_final_response")) == ANSWER
    check_arrived(gateway, target)


@pytest.mark.parametrize("target", FORMATS)
def test_anthropic(gateway: Rig, target: str) -> None:
    with anthropic_client(gateway) as client:
        messages = client.messages
        assert run_talk(MessagesTalk(f"to-{target}"), lambda asked: messages.create(**asked)) == ANSWER
        assert run_talk(MessagesTalk(f"to-{target}"), to_the_end(messages.stream, "get_final_message")) == ANSWER
    check_arrived(gateway, target)


@pytest.mark.parametrize("target", FORMATS)
def test_google_genai(gateway: Rig, target: str) -> None:
    with genai_client(gateway) as client:
        models = client.models
        assert run_talk(ContentsTalk(f"to-{target}"), lambda asked: models.generate_content(**asked)) == ANSWER
        assert (
            run_talk(ContentsTalk(f"to-{target}"), lambda asked: [*models.generate_content_stream(**asked)]) == ANSWER
        )
    check_arrived(gateway, target)


@asynccontextmanager
async def async_genai(gateway: Rig) -> AsyncIterator[Any]:
    client = genai.Client(api_key=NO_KEY, http_options={"base_url": gateway.url})
    try:
        yield client.aio.models
    finally:
        await client.aio.aclose()
        client.close()


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")  # google-genai's own
@pytest.mark.parametrize("target", FORMATS)
def test_the_asynchronous_clients(gateway: Rig, target: str) -> None:
    model = f"to-{target}"

    async def ended(stream: Any, final: str) -> Any:
        async with stream as events:
            return await getattr(events, final)()

    async def contents_stream(models: Any, asked: dict[str, Any]) -> Any:
        return [chunk async for chunk in await models.generate_content_stream(**asked)]

    async def all_at_once() -> list[str]:
        async with (
            openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=NO_KEY, max_retries=0) as first,
            anthropic.AsyncAnthropic(base_url=gateway.url, api_key=NO_KEY, max_retries=0) as second,
            async_genai(gateway) as third,
        ):
            return await asyncio.gather(
                run_talk_async(ChatTalk(model), lambda asked: first.chat.completions.create(**asked))(),
                run_talk_async(
                    ChatTalk(model),
                    lambda asked: ended(
                        first.chat.completions.stream(**asked, stream_options={"include_usage": True}),
                        "get_final_completion",
                    ),
                )(),
                run_talk_async(ResponsesTalk(model), lambda asked: first.responses.create(**asked))(),
                run_talk_async(
                    ResponsesTalk(model), lambda asked: ended(first.responses.stream(**asked), "get_final_response")
                )(),
                run_talk_async(MessagesTalk(model), lambda asked: second.messages.create(**asked))(),
                run_talk_async(
                    MessagesTalk(model), lambda asked: ended(second.messages.stream(**asked), "get_final_message")
                )(),
                run_talk_async(ContentsTalk(model), lambda asked: third.generate_content(**asked))(),
                run_talk_async(ContentsTalk(model), lambda asked: contents_stream(third, asked))(),
            )

    assert asyncio.run(all_at_once()) == [ANSWER] * 8
    check_arrived(gateway, target)


ERRORS: list[tuple[int, ErrorKind, str, str]] = [
    (400, "invalid_request", "BadRequestError", "BadRequestError"),
    (404, "not_found", "NotFoundError", "NotFoundError"),
    (413, "too_large", "APIStatusError", "RequestTooLargeError"),
    (429, "rate_limit", "RateLimitError", "RateLimitError"),
    (500, "server", "InternalServerError", "InternalServerError"),
    (503, "overloaded", "InternalServerError", "OverloadedError"),
]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("status", "kind", "for_openai", "for_anthropic"), ERRORS, ids=[str(row[0]) for row in ERRORS])
def test_errors_are_the_exceptions_of_the_sdks(
    status: int, kind: ErrorKind, for_openai: str, for_anthropic: str, streams: bool
) -> None:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "stream": streams}
    no_key_message = "as it was meant|no usable key"  # the one key is on cooldown after a failure
    with rig() as gateway:

        def fails(target: str) -> str:
            """Another failure; the model to ask for it."""
            upstream = gateway.upstreams[target]
            upstream.faults.append(upstream.error(status, kind, "as it was meant"))
            return f"to-{target}"

        with openai_client(gateway) as client:
            with pytest.raises(getattr(openai, for_openai), match=no_key_message):
                client.chat.completions.create(model=fails("gemini"), **asked)
            with pytest.raises(getattr(openai, for_openai), match=no_key_message):
                client.responses.create(model=fails("anthropic"), input="Hi", stream=streams)
        with (
            anthropic_client(gateway) as client,
            pytest.raises(getattr(anthropic, for_anthropic), match=no_key_message),
        ):
            client.messages.create(model=fails("openai-chat"), max_tokens=9, **asked)
        with genai_client(gateway) as client:
            sends = client.models.generate_content_stream if streams else client.models.generate_content
            wanted = genai_errors.ClientError if status < 500 else genai_errors.ServerError
            with pytest.raises(wanted, match=no_key_message):
                list(sends(model=fails("anthropic"), contents="Hi"))


def test_an_unknown_model_and_an_unknown_key_are_exceptions_too(gateway: Rig) -> None:
    with openai_client(gateway) as client, pytest.raises(openai.NotFoundError, match="to-gemini"):
        client.chat.completions.create(model="to-unknown", messages=[{"role": "user", "content": "Hi"}])
    with anthropic_client(gateway) as client, pytest.raises(anthropic.NotFoundError, match="to-gemini"):
        client.messages.create(model="to-unknown", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    with genai_client(gateway) as client, pytest.raises(genai_errors.ClientError, match="to-gemini"):
        client.models.generate_content(model="to-unknown", contents="Hi")


@pytest.mark.parametrize("target", FORMATS)
def test_a_stream_that_breaks_is_an_exception_and_no_answer(gateway: Rig, target: str) -> None:
    upstream, model = gateway.upstreams[target], f"to-{target}"
    upstream.answer = lambda _: text_answer("One. " * 100)
    half = len(upstream.stream(text_answer("One. " * 100))) // 2
    messages = [{"role": "user", "content": "Hi"}]
    upstream.faults.extend([cut(half)] * 4)
    with openai_client(gateway) as client:
        with pytest.raises(openai.APIError):
            list(client.chat.completions.create(model=model, messages=messages, stream=True))
        events = [event.type for event in client.responses.create(model=model, input="Hi", stream=True)]
        assert events[-1] in ("response.failed", "error")  # the SDK leaves it to the reader of the events
        assert "response.completed" not in events
    with anthropic_client(gateway) as client, pytest.raises(anthropic.APIError):
        list(client.messages.create(model=model, max_tokens=9, messages=messages, stream=True))
    with genai_client(gateway) as client, pytest.raises(Exception, match=r"end|cut|closed|lost"):
        list(client.models.generate_content_stream(model=model, contents="Hi"))


def test_the_sdks_respect_retry_after() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    with rig() as gateway:
        upstream = gateway.upstreams["openai-chat"]

        def limited() -> float:
            upstream.faults.append(upstream.error(429, "rate_limit", "slow down", retry_after="1"))
            return time.monotonic()

        with openai_client(gateway, max_retries=2) as client:
            began = limited()
            client.chat.completions.create(model="to-openai-chat", messages=messages)
            assert time.monotonic() - began >= 1
        with anthropic_client(gateway, max_retries=2) as client:
            began = limited()
            client.messages.create(model="to-openai-chat", max_tokens=9, messages=messages)
            assert time.monotonic() - began >= 1


@pytest.mark.parametrize("target", FORMATS)
def test_responses_continue_from_a_stored_one(gateway: Rig, target: str) -> None:
    upstream, model = gateway.upstreams[target], f"to-{target}"
    if target == "openai-responses":
        pytest.skip("it keeps them itself")
    upstream.answer = lambda _: text_answer("The word is FOX.")
    with openai_client(gateway) as client:
        first = client.responses.create(model=model, input="Tell a word.")
        with client.responses.stream(model=model, input="Again?", previous_response_id=first.id) as stream:
            second = stream.get_final_response()
        client.responses.create(model=model, input="Really?", previous_response_id=second.id)
        words = [text_of(message.parts) for message in upstream.wire.read_request(upstream.received[-1].body).messages]
        fox = "The word is FOX."
        assert words == ["Tell a word.", fox, "Again?", fox, "Really?"]
        assert client.responses.retrieve(first.id).output_text == fox
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        with pytest.raises(openai.APIStatusError, match="not found"):
            client.responses.create(model=model, input="And?", previous_response_id=first.id)


def test_models_are_listed_to_every_sdk(gateway: Rig) -> None:
    names = {f"to-{name}" for name in FORMATS}
    with openai_client(gateway) as client:
        assert {model.id for model in client.models.list()} == names
    with anthropic_client(gateway) as client:
        assert {model.id for model in client.models.list()} == names
        counted = client.messages.count_tokens(model="to-gemini", messages=[{"role": "user", "content": "Hi"}])
        assert counted.input_tokens > 0
    with genai_client(gateway) as client:
        assert {model.name.removeprefix("models/") for model in client.models.list()} == names
        assert client.models.count_tokens(model="to-anthropic", contents="Hi").total_tokens > 0
