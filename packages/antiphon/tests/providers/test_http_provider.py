"""The HTTP client against a scripted server over real sockets: answers, connections, leaving, and a custom transport."""

from __future__ import annotations

import asyncio
import gzip
import threading
import warnings
from contextlib import aclosing
from typing import Any, cast

import msgspec
import pytest

from antiphon.history import ContextEntry, ModelInputEntry, ModelOutputEntry, Origin
from antiphon.http.client.request import Timeouts
from antiphon.parts import Image, Text, Thinking, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.wire import formats
from antiphon.wire.delta import ModelOutputDelta, PartDelta, PartStarted
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest, Reasoning, ToolDefinition
from providers.http_client import CHAT, KEY, ONCE, Canned, Pace, ask, asked, client_of, json_reply
from providers.sample_answers import STREAMS, WHOLES, deltas_from, error_of, events, text_of
from providers.scripted_server import Received, Reply, ScriptedServer

# Answers.


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("piece", [0, 1])
def test_a_stream_is_read_for_any_chunking(name: str, piece: int) -> None:
    with ScriptedServer(Reply(body=STREAMS[name], piece=piece)) as server:
        deltas = ask(client_of(server, name))
    assert text_of(deltas) == "Rain."
    reader = formats[name].stream_reader()
    assert deltas == reader.feed(STREAMS[name]) + reader.close()


@pytest.mark.parametrize("name", WHOLES)
@pytest.mark.parametrize("has_length", [True, False])
def test_an_upstream_that_answers_a_stream_with_one_body_is_read(name: str, has_length: bool) -> None:
    with ScriptedServer(json_reply(WHOLES[name], has_length=has_length, piece=7)) as server:
        assert text_of(ask(client_of(server, name))) == "Rain."


def test_a_compressed_answer_is_read() -> None:
    reply = Reply(body=gzip.compress(CHAT), headers={"content-encoding": "gzip"}, piece=20)
    with ScriptedServer(reply) as server:
        assert text_of(ask(client_of(server))) == "Rain."


def test_the_report_has_provider_key_and_attempts() -> None:
    reply = Reply(body=CHAT, headers={"x-request-id": "req_7"})
    options = ProviderCallOptions(model="gpt-4o", settings=ModelRequest(top_k=5))
    with ScriptedServer(reply) as server:
        ask(client_of(server, name="mine"), options)
        (received,) = server.received
    assert msgspec.json.decode(received.body)["stream"] is True
    report = options.report
    assert report.origin == Origin("mine", "openai-chat", "gpt-4o")
    (attempt,) = report.attempts
    assert (attempt.provider, attempt.model, attempt.credential) == ("mine", "gpt-4o", "sk-…wxyz")
    assert (attempt.status, attempt.error) == (200, None)
    assert report.provider_request_id == "req_7"
    assert [loss.path for loss in report.losses] == ["top_k"]


@pytest.mark.parametrize("is_on", [True, False])
def test_reasoning_of_another_provider_is_labelled_text_if_the_client_is_set_so(is_on: bool) -> None:
    thought = Thinking("Let me see.", native={"anthropic": {"signature": "c2ln"}})
    context: list[ContextEntry] = [
        ModelInputEntry((Text("Rain?"),)),
        ModelOutputEntry((thought, Text("Yes.")), "stop", Origin("other", "anthropic", "claude")),
        ModelInputEntry((Text("Sure?"),)),
    ]
    settings: Any = {"reasoning_as_text": True} if is_on else {}

    async def call(client: HttpProviderClient) -> None:
        assert [delta async for delta in client.call_model(context, asked())]

    with ScriptedServer(Reply(body=CHAT)) as server:
        asyncio.run(call(client_of(server, **settings)))
        (received,) = server.received
    assert (b"[earlier reasoning]\\nLet me see.\\n[end of reasoning]" in received.body) is is_on


def test_changed_tool_names_are_restored() -> None:
    def call_of_the_tool(received: Received) -> Reply:
        (tool,) = msgspec.json.decode(received.body)["tools"]
        call = {"index": 0, "id": "x", "function": {"name": tool["function"]["name"], "arguments": "{}"}}
        assert call["function"] != "weather in oslo"
        return Reply(
            body=events({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        )

    options = ProviderCallOptions(model="m", tools=(ToolDefinition("weather.in oslo"),))
    with ScriptedServer(call_of_the_tool) as server:
        deltas = ask(client_of(server), options)
    (started,) = (delta for delta in deltas if isinstance(delta, PartStarted))
    assert isinstance(started.part, ToolCallRequest)
    assert started.part.tool_name == "weather.in oslo"


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        ("gpt-5.4", ModelRequest(), {"store": False, "include": ["reasoning.encrypted_content"]}),
        ("openai/o4-mini", ModelRequest(), {"store": False, "include": ["reasoning.encrypted_content"]}),
        ("gpt-4o", ModelRequest(), {"store": False}),
        ("gpt-5-chat-latest", ModelRequest(), {"store": False}),
        ("chat-latest", ModelRequest(), {"store": False}),
        ("xai/grok-4", ModelRequest(), {"store": False, "include": ["reasoning.encrypted_content"]}),
        ("grok-3", ModelRequest(), {"store": False}),
        ("codex-mini-latest", ModelRequest(), {"store": False, "include": ["reasoning.encrypted_content"]}),
        ("gpt-7", ModelRequest(), {"store": False, "include": ["reasoning.encrypted_content"]}),
        ("gpt-5.4", ModelRequest(store=True), {"store": True}),
        (
            "gpt-5.4",
            ModelRequest(native={"openai-responses": {"include": ["file_search_call.results"]}}),
            {"store": False, "include": ["file_search_call.results", "reasoning.encrypted_content"]},
        ),
        ("gpt-5.4", ModelRequest(native={"openai-responses": {"previous_response_id": "r"}}), {}),
    ],
)
def test_responses_are_not_stored_upstream_and_return_reasoning(
    model: str, settings: ModelRequest, expected: dict[str, Any]
) -> None:
    with ScriptedServer(Reply(body=STREAMS["openai-responses"])) as server:
        ask(client_of(server, "openai-responses"), ProviderCallOptions(model=model, settings=settings))
        body = msgspec.json.decode(server.received[0].body)
    assert {name: body[name] for name in ("store", "include") if name in body} == expected


def test_a_newer_version_of_the_messages_api_is_written_for() -> None:
    options = ProviderCallOptions(model="claude-opus-4-1", settings=ModelRequest(temperature=0.5))
    with ScriptedServer(Reply(body=STREAMS["anthropic"])) as server:
        ask(client_of(server, "anthropic", headers={"Anthropic-Version": "2026-10-21"}), options)
        (received,) = server.received
    assert received.headers["anthropic-version"] == "2026-10-21"
    assert "temperature" not in msgspec.json.decode(received.body)
    assert [loss.path for loss in options.report.losses] == ["temperature"]


def test_a_large_body_is_sent_in_pieces_under_its_length() -> None:
    picture = Image("image/png", data="A" * 2_000_000)
    context: list[ContextEntry] = [ModelInputEntry((picture, Text(f"{n}"))) for n in range(2)]
    with ScriptedServer(Reply(body=CHAT)) as server:
        assert text_of(asyncio.run(deltas_from(client_of(server), asked(), context))) == "Rain."
        (received,) = server.received
    assert len(received.body) == int(received.headers["content-length"]) > 4_000_000
    assert "transfer-encoding" not in received.headers
    assert len(msgspec.json.decode(received.body)["messages"]) == 2


@pytest.mark.parametrize("late_end", [0.0, 0.02])
def test_connections_are_used_again(late_end: float) -> None:
    async def several(client: HttpProviderClient) -> None:
        async with client:
            for _ in range(5):
                await deltas_from(client)

    with ScriptedServer(Reply(body=CHAT, late_end=late_end)) as server:
        asyncio.run(several(client_of(server)))
        assert (len(server.received), server.connections) == (5, 1)


def test_a_host_that_keeps_talking_after_the_end_is_left() -> None:
    with ScriptedServer(Reply(body=CHAT, cut_after=len(CHAT), hangs=True)) as server:
        assert text_of(ask(client_of(server))) == "Rain."
        assert server.gone.wait(1.0)


def test_calls_at_the_same_time_do_not_wait_for_each_other() -> None:
    everybody_is_here = threading.Event()

    def note(_: Received) -> Reply:
        if len(server.received) == 120:
            everybody_is_here.set()
        return Reply(body=CHAT, gate=everybody_is_here)

    async def many(client: HttpProviderClient) -> list[list[ModelOutputDelta]]:
        return await asyncio.gather(*(deltas_from(client, asked()) for _ in range(120)))

    with ScriptedServer(note) as server:
        answers = asyncio.run(many(client_of(server, retry=ONCE, timeouts=Timeouts(read=20))))
    assert {text_of(deltas) for deltas in answers} == {"Rain."}


def test_one_client_serves_one_event_loop_after_the_other() -> None:
    with ScriptedServer(Reply(body=CHAT)) as server:
        client = client_of(server)
        for _ in range(3):
            assert text_of(ask(client)) == "Rain."
        assert server.connections == 3
        assert repr(client._provider.transport) == "<HttpClient with 0 connections>"


def test_a_closed_event_loop_is_released() -> None:
    with ScriptedServer(Reply(body=CHAT)) as server:
        client = client_of(server)
        loop = asyncio.new_event_loop()
        assert text_of(loop.run_until_complete(deltas_from(client))) == "Rain."
        loop.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert text_of(ask(client)) == "Rain."
        assert repr(client._provider.transport) == "<HttpClient with 0 connections>"


# Leaving.


@pytest.mark.parametrize("way", ["closed", "cancelled", "cancelled before the head"])
def test_leaving_a_stream_closes_the_connection_immediately(way: str) -> None:
    async def leave(client: HttpProviderClient) -> None:
        assert client.credentials is not None
        client.credentials.acquire("m").failed(ProviderError("slow down", "rate_limit", retry_after=1.0))
        pace.now += 1  # so the call is a probe, and must not keep its place when it is given up
        if way == "closed":
            stream = cast(Any, client.call_model([ModelInputEntry((Text("Hi"),))], asked()))
            async with aclosing(stream):
                async for delta in stream:
                    if isinstance(delta, PartDelta):
                        break
        else:
            task = asyncio.create_task(deltas_from(client))
            while not server.received:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await asyncio.to_thread(server.gone.wait, 1.0)
        assert client.credentials.acquire("m").secret == KEY

    reply = Reply(body=CHAT, cut_after=100, hangs=True)
    if way == "cancelled before the head":
        reply = Reply(status=0, hangs=True)
    pace = Pace()
    with ScriptedServer(reply) as server:
        asyncio.run(leave(client_of(server, pace=pace)))


def test_closing_the_client_ends_what_runs() -> None:
    async def close_early(client: HttpProviderClient) -> list[ModelOutputDelta]:
        task = asyncio.create_task(deltas_from(client))
        while not server.received:
            await asyncio.sleep(0.01)
        await client.aclose()
        return await task

    with ScriptedServer(Reply(body=CHAT, cut_after=100, hangs=True)) as server:
        deltas = asyncio.run(close_early(client_of(server, retry=ONCE)))
    assert error_of(deltas).kind in ("stream_cut", "server")


def test_a_custom_transport() -> None:
    transport = Canned(CHAT[:40], CHAT[40:])
    settings = ModelRequest(reasoning=Reasoning(effort="low"))
    client = client_of("http://nowhere/v1", transport=transport)
    assert text_of(ask(client, ProviderCallOptions(model="gpt-5", settings=settings))) == "Rain."
    (request,) = transport.requests
    assert request.url == "http://nowhere/v1/chat/completions"
    assert msgspec.json.decode(b"".join(request.body))["reasoning_effort"] == "low"
