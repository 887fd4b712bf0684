"""The HTTP client against a server that plays scripts over real sockets: answers, faults, retries, keys, cancellation."""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from antiphon.history import ContextEntry, ModelInputEntry, Origin
from antiphon.parts import Image, Text, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.credentials.pool import CredentialPool
from antiphon.providers.credentials.secret import Credential
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.retry import RetryPolicy
from antiphon.providers.transport.client import HttpClient
from antiphon.providers.transport.request import HttpRequest, HttpResponse, Timeouts
from antiphon.wire import formats
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, PartDelta, PartStarted, Started
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest, Reasoning, ToolDefinition
from providers.scripted_server import Received, Reply, ScriptedServer
from providers.spoken import PRESET_OF, STREAMS, WHOLES, deltas_from, error_of, events, text_of

KEY = "sk-canary-0000000000000000wxyz"
OTHER = "sk-another-000000000000000abcd"
CHAT = STREAMS["openai-chat"]
ONCE = RetryPolicy(retries=0, rotations=0)
EMPTY: dict[str, str] = {}
ERROR_429 = Reply(
    status=429,
    body=b'{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}',
    content_type="application/json",
)


class Pace:
    """A clock that only sleeping moves, so that waits cost nothing and can be looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def client_of(server: ScriptedServer | str, format_name: str = "openai-chat", **given: Any) -> HttpProviderClient:
    """A client of the server; its clock stands still but for what it sleeps."""
    pace = given.pop("pace", None) or Pace()
    url = server if isinstance(server, str) else server.url
    keys = given.pop("keys", [KEY])
    return HttpProviderClient(
        PRESET_OF[format_name],
        base_url=url,
        keys=CredentialPool(keys, clock=pace) if isinstance(keys, list) and keys else keys,
        sleep=pace.sleep,
        clock=pace,
        fraction=lambda: 1.0,
        transport=given.pop("transport", None) or HttpClient(EMPTY),
        **given,
    )


def ask(client: HttpProviderClient, options: ProviderCallOptions | None = None) -> list[ModelOutputDelta]:
    return asyncio.run(deltas_from(client, options))


def asked() -> ProviderCallOptions:
    return ProviderCallOptions(model="m", request_id="request-1")


def json_reply(body: Any, status: int = 200, **given: Any) -> Reply:
    return Reply(status=status, body=msgspec.json.encode(body), content_type="application/json", **given)


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


# What goes wrong.


PAGE = b"<!DOCTYPE html><html><head><title>Welcome to nginx</title></head><body><h1>Hello</h1></body></html>"
SPENT = b'{"error":{"message":"spent","code":"insufficient_quota"}}'
AWAY = {"location": "https://elsewhere.invalid/v1?x=1"}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Reply(status=401, body=b'{"error":{"message":"who are you?"}}'), "authentication", "who are you?"),
        (Reply(status=500, body=b""), "server", "500"),
        (Reply(status=503, body=b"try later"), "overloaded", "try later|503"),
        (Reply(status=502, body=PAGE), "server", "HTML page with status 502: Welcome to nginx;"),
        (Reply(status=200, body=PAGE), "server", "an HTML page: Welcome to nginx; check the base URL"),
        (Reply(status=200, body=b'{"choices": ['), "server|stream_cut", "not JSON|ended before"),
        (Reply(status=200, body=b"[]"), "server|stream_cut", ""),
        (Reply(status=200, body=SPENT), "billing|unknown|server", "spent"),
        (Reply(status=200, body=b"data: {not json}\n\ndata: [DONE]\n\n"), "server", ""),
        (Reply(status=200, body=b""), "stream_cut", "ended before it began"),
        (Reply(status=200, body=b"\n\n \n"), "stream_cut", "ended before it began"),
        (Reply(status=200, body=b": waiting\n\n: waiting\n\n"), "stream_cut|server", ""),
        (Reply(status=404, body=b"404 page not found"), "not_found", "404 page not found"),
        (Reply(status=418, body=b"\xff\xfe\x00"), "invalid_request", ""),
        (Reply(status=0), "server", "closed the connection without a response"),
        (Reply(status=0, is_reset=True), "server", "closed the connection without a response"),
        (Reply(body=b"x", cut_after=0, is_reset=True), "stream_cut", "closed the connection before the response ended"),
        (Reply(status=307, headers=AWAY), "not_found", "redirects to https://elsewhere.invalid/v1; keys are not sent"),
        (Reply(status=302, headers={"location": "/login"}), "not_found", "/login; keys are not sent there"),
    ],
)
def test_every_fault_is_a_failure_of_the_right_kind(name: str, reply: Reply, kind: str, words: str) -> None:
    options = asked()
    with ScriptedServer(reply) as server:
        error = error_of(ask(client_of(server, name, retry=ONCE), options))
    assert error.kind in kind.split("|")
    assert re.search(words, error.message), error.message
    (attempt,) = options.report.attempts
    assert attempt.error == error
    assert attempt.status == (reply.status or None)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_after_any_byte_is_never_complete(name: str) -> None:
    stream = STREAMS[name]
    cuts = iter(range(len(stream)))

    async def every_cut(client: HttpProviderClient) -> list[list[ModelOutputDelta]]:
        async with client:
            return [await deltas_from(client) for _ in range(len(stream))]

    with ScriptedServer(lambda _: Reply(body=stream, cut_after=next(cuts))) as server:
        answers = asyncio.run(every_cut(client_of(server, name, retry=ONCE)))
    finished = 0
    for size, deltas in enumerate(answers):
        reader = formats[name].stream_reader()
        expected = reader.feed(stream[:size]) + reader.close()
        if isinstance(expected[-1], Finished):  # the bytes that are missing say nothing
            assert deltas == expected
            finished += 1
        else:
            assert error_of(deltas).kind == "stream_cut"
            shown = [delta for delta in expected if not isinstance(delta, Failed)]
            assert deltas[:-1] in (shown, [])  # [] where nothing was worth showing
    assert finished < 40


def test_an_error_inside_a_stream_after_visible_output_is_passed_on() -> None:
    broken = CHAT.split(b"\n\n")[0] + b"\n\n" + events({"error": {"message": "Overloaded", "code": 529}})
    options = asked()
    with ScriptedServer(Reply(body=broken)) as server:
        deltas = ask(client_of(server), options)
        assert len(server.received) == 1
    assert [delta.text for delta in deltas if isinstance(delta, PartDelta)] == ["Ra"]
    assert error_of(deltas).kind == "overloaded"


def test_an_error_inside_a_stream_before_visible_output_is_retried() -> None:
    began = events({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    broken = Reply(body=began + events({"error": {"message": "Overloaded", "code": 529}}))
    options = asked()
    with ScriptedServer(broken, Reply(body=CHAT)) as server:
        deltas = ask(client_of(server), options)
    assert text_of(deltas) == "Rain."
    assert sum(isinstance(delta, Started) for delta in deltas) == 1
    assert [attempt.error.kind if attempt.error else None for attempt in options.report.attempts] == [
        "overloaded",
        None,
    ]


def test_a_refused_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        pace, options = Pace(), asked()
        error = error_of(ask(client_of(f"http://127.0.0.1:{port}", pace=pace), options))
    assert (error.kind, error.code) == ("server", "connection_failed")
    assert error.message.startswith(f"cannot connect to 127.0.0.1:{port}")
    assert pace.slept == [0.5, 1.0]
    assert len(options.report.attempts) == 3
    assert {attempt.status for attempt in options.report.attempts} == {None}


def test_an_unknown_host_name() -> None:
    error = error_of(ask(client_of("http://no-such-host.invalid", retry=ONCE)))
    assert (error.kind, error.code) == ("server", "dns_failed")
    assert "no-such-host.invalid" in error.message


@contextmanager
def full_house() -> Iterator[str]:
    """An address where connections are neither taken nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for guest in waiting:
                guest.setblocking(False)
                guest.connect_ex(listener.getsockname())
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for guest in waiting:
                guest.close()


def test_a_connection_that_is_never_made_is_given_up() -> None:
    with full_house() as url:
        error = error_of(ask(client_of(url, retry=ONCE, timeouts=Timeouts(connect=0.2))))
    assert (error.kind, error.code) == ("timeout", "connect_timeout")


@pytest.mark.parametrize(
    ("timeouts", "code", "words"),
    [
        (Timeouts(read=0.2), "read_timeout", "for 0.2 s (read timeout)"),
        (Timeouts(total=0.2), "total_timeout", "did not finish within 0.2 s"),
    ],
)
@pytest.mark.parametrize("size", [None, 0, 100])
def test_a_server_that_falls_silent_is_given_up(timeouts: Timeouts, code: str, words: str, size: int | None) -> None:
    reply = Reply(delay=30) if size is None else Reply(body=CHAT, cut_after=size, hangs=True)
    with ScriptedServer(reply) as server:
        deltas = ask(client_of(server, retry=ONCE, timeouts=timeouts))
    error = error_of(deltas)
    assert (error.kind, error.code) == ("timeout", code)
    assert words in error.message


def test_a_slow_drip_is_not_silence() -> None:
    with ScriptedServer(Reply(body=CHAT, piece=60, pause=0.05)) as server:
        assert text_of(ask(client_of(server, timeouts=Timeouts(read=5.0)))) == "Rain."


def test_what_was_finished_counts_even_if_the_host_then_hangs() -> None:
    unclosed = CHAT.removesuffix(b"data: [DONE]\n\n")
    with ScriptedServer(Reply(body=unclosed, cut_after=len(unclosed), hangs=True)) as server:
        assert text_of(ask(client_of(server, timeouts=Timeouts(read=0.2)))) == "Rain."


# Trying again.


def test_a_storm_of_rate_limits_is_waited_out() -> None:
    pace, options = Pace(), asked()
    storm = msgspec.structs.replace(ERROR_429, headers={"retry-after": "7"})
    with ScriptedServer(storm, storm, Reply(body=CHAT)) as server:
        client = client_of(server, pace=pace)
        deltas = ask(client, options)
    assert text_of(deltas) == "Rain."
    assert client.credentials is not None
    (key,) = client.credentials.status()
    assert (key.models, key.successes, key.failures) == ({}, 1, 2)  # the last try was a probe, and healed
    assert pace.slept == [7.5, 14.5]  # the second time the pool waits twice as long
    errors = [attempt.error for attempt in options.report.attempts]
    assert [(error.kind, error.retry_after) if error else None for error in errors] == [
        ("rate_limit", 7.0),
        ("rate_limit", 7.0),
        None,
    ]


def test_a_wait_that_is_too_long_is_left_to_others() -> None:
    pace = Pace()
    with ScriptedServer(msgspec.structs.replace(ERROR_429, headers={"retry-after": "3600"})) as server:
        client = client_of(server, pace=pace)
        assert error_of(ask(client)).retry_after == 3600.0
        again = error_of(ask(client))
        assert len(server.received) == 1  # the key is known to be on cooldown: no request is sent
    assert pace.slept == []
    assert (again.kind, again.code, again.retry_after) == ("rate_limit", "no_usable_credential", 3600.0)


def test_retries_end() -> None:
    options = asked()
    with ScriptedServer(Reply(status=500)) as server:
        error = error_of(ask(client_of(server, retry=RetryPolicy(retries=4)), options))
        assert len(server.received) == 5
    assert error.kind == "server"
    assert len(options.report.attempts) == 5


@pytest.mark.parametrize(
    ("reply", "requests"),
    [
        (Reply(status=400, body=b'{"error":{"message":"Missing required parameter"}}'), 1),
        (Reply(status=500, headers={"x-should-retry": "false"}), 1),
        (Reply(status=400, headers={"x-should-retry": "true"}), 3),
        (Reply(status=409), 3),
        (Reply(status=0), 3),
        (Reply(body=CHAT[:30], cut_after=30), 3),
    ],
)
def test_what_is_tried_again(reply: Reply, requests: int) -> None:
    with ScriptedServer(reply) as server:
        error_of(ask(client_of(server)))
        assert len(server.received) == requests


def test_no_retry_after_visible_output() -> None:
    with ScriptedServer(Reply(body=CHAT, cut_after=100)) as server:
        deltas = ask(client_of(server))
        assert len(server.received) == 1
    assert any(isinstance(delta, PartDelta) for delta in deltas)
    assert error_of(deltas).kind == "stream_cut"


def test_the_total_is_over_all_tries() -> None:
    pace, transport = Pace(), Canned(status=500)
    retry = RetryPolicy(retries=9)
    client = client_of("http://nowhere", pace=pace, transport=transport, timeouts=Timeouts(total=1.25), retry=retry)
    error_of(ask(client))
    assert [request.timeouts.total for request in transport.requests] == [1.25, 0.75]
    assert pace.slept == [0.5]


# Keys.


def by_key(replies: dict[str, Reply]) -> Any:
    return lambda received: replies[received.headers["authorization"].removeprefix("Bearer ")]


@pytest.mark.parametrize(
    ("refusal", "state"),
    [
        (Reply(status=401, body=b'{"error":{"message":"Invalid API key"}}'), "invalid"),
        (Reply(status=400, body=b'{"error":{"message":"Incorrect API key provided"}}'), "invalid"),
        (Reply(status=429, body=b'{"error":{"code":"insufficient_quota","message":"pay"}}'), "exhausted"),
        (ERROR_429, "cooling"),
    ],
)
def test_a_key_that_is_refused_makes_room_for_the_next_without_a_wait(refusal: Reply, state: str) -> None:
    pace, options = Pace(), asked()
    keys = [Credential(secret=KEY, name="first"), Credential(secret=OTHER, name="second")]
    with ScriptedServer(by_key({KEY: refusal, OTHER: Reply(body=CHAT)})) as server:
        client = client_of(server, keys=keys, pace=pace, retry=RetryPolicy(retries=0))
        assert text_of(ask(client, options)) == "Rain."
        assert text_of(ask(client)) == "Rain."
        assert len(server.received) == 3  # the second call knows which key to take
    assert pace.slept == []
    assert [attempt.credential for attempt in options.report.attempts] == ["first", "second"]
    assert client.credentials is not None
    first = client.credentials.status()[0]
    assert state in (first.state, *(held.state for held in first.models.values()))


def test_rotations_are_bounded_too() -> None:
    with ScriptedServer(Reply(status=401)) as server:
        keys = [f"sk-key-number-{number:08}" for number in range(6)]
        error = error_of(ask(client_of(server, keys=keys, retry=RetryPolicy(retries=5, rotations=3))))
        assert len(server.received) == 4
    assert error.kind == "authentication"


def test_a_provider_without_keys_is_asked_without() -> None:
    with ScriptedServer(Reply(status=500), Reply(body=CHAT)) as server:
        options = asked()
        assert text_of(ask(client_of(server, keys=[]), options)) == "Rain."
        assert "authorization" not in server.received[0].headers
    assert options.report.attempts[0].credential == ""


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


# Where it goes.


def test_a_redirect_within_the_same_place_is_followed() -> None:
    there = Reply(status=308, headers={"location": "/moved/chat"})
    with ScriptedServer(there, Reply(body=CHAT)) as server:
        assert text_of(ask(client_of(server))) == "Rain."
        first, second = server.received
    assert second.target == "/moved/chat"
    assert (second.body, second.headers["authorization"]) == (first.body, first.headers["authorization"])


def test_a_circle_of_redirects_is_left() -> None:
    with ScriptedServer(Reply(status=307, headers={"location": "/again"})) as server:
        assert error_of(ask(client_of(server))).code == "redirect_loop"


def test_a_redirect_to_another_port_gets_no_key() -> None:
    with ScriptedServer(Reply(body=CHAT)) as other:
        reply = Reply(status=307, headers={"location": f"{other.url}/v1"})
        with ScriptedServer(reply) as server:
            assert error_of(ask(client_of(server))).code == "redirected"
        assert other.received == []


@pytest.mark.parametrize(
    ("environ", "is_used"),
    [
        ({"HTTP_PROXY": "{url}"}, True),
        ({"http_proxy": "{url}"}, True),
        ({"ALL_PROXY": "{url}"}, True),
        ({"HTTPS_PROXY": "{url}"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "model.test"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "other.test, .test"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "*"}, False),
        ({"HTTP_PROXY": "{url}", "NO_PROXY": "odel.test"}, True),
        ({"HTTP_PROXY": "{url}", "REQUEST_METHOD": "GET"}, False),
    ],
)
def test_the_proxy_of_the_environment_is_used(environ: dict[str, str], is_used: bool) -> None:
    with ScriptedServer(Reply(body=CHAT)) as server:
        filled = {name: value.format(url=server.url) for name, value in environ.items()}
        client = client_of("http://model.test/v1", transport=HttpClient(filled), retry=ONCE)
        deltas = ask(client)
        targets = [received.target for received in server.received]
    if is_used:
        assert text_of(deltas) == "Rain."
        assert targets == ["http://model.test/v1/chat/completions"]
    else:
        assert error_of(deltas).code == "dns_failed"
        assert targets == []


def test_a_proxy_that_cannot_be_used_is_named_without_its_password() -> None:
    for proxy in (f"socks5://me:{KEY}@127.0.0.1:1", f"http://me:{KEY}@127.0.0.1:1"):
        client = client_of("http://model.test/v1", transport=HttpClient({"ALL_PROXY": proxy}), retry=ONCE)
        error = error_of(ask(client))
        assert error.code == "proxy_failed"
        assert KEY not in error.message


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += [
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(chain),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl is not here")
    return key, chain


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", None])
def test_a_custom_certificate(certificate: tuple[Path, Path], variable: str | None) -> None:
    key, chain = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain, key)
    environ = {variable: str(chain)} if variable else {}
    with ScriptedServer(Reply(body=CHAT), tls=tls) as server:
        client = client_of(server, transport=HttpClient(environ))
        deltas, again = ask(client), ask(client)
    if variable:
        assert (text_of(deltas), text_of(again)) == ("Rain.", "Rain.")
    else:
        error = error_of(deltas)
        assert (error.code, error.kind) == ("tls_failed", "server")
        assert "set SSL_CERT_FILE" in error.message


# Law L10.


def test_a_key_appears_in_no_output(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret_header = "hidden-header-0000000000000000"
    echo = msgspec.json.encode({"error": {"message": f"no such key {KEY} {secret_header}", "detail": [KEY]}})
    for status in (400, 401, 429, 500, 200):
        options = asked()
        with ScriptedServer(Reply(status=status, body=echo, headers={"x-request-id": "r"})) as server:
            client = client_of(server, headers={"X-Team-Token": secret_header}, retry=RetryPolicy(retries=1))
            deltas = ask(client, options)
            assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
            assert server.received[0].headers["x-team-token"] == secret_header
        assert client.credentials is not None
        shown = [
            deltas,
            options.report,
            client,
            client.credentials,
            client.credentials.status(),
            client._provider.transport,
        ]
        shown += [msgspec.json.encode(options.report), error_of(deltas).message]
        for text in (*map(repr, shown), *map(str, shown), caplog.text):
            assert KEY not in text
            assert secret_header not in text
        assert "no such key sk-…wxyz" in error_of(deltas).message
    assert "[request-1] openai/m: no such key sk-…wxyz" in caplog.text


def test_the_repr_of_a_request_shows_only_its_address() -> None:
    request = HttpRequest(url=f"https://me:{KEY}@h:1/v1?key={KEY}", headers={"authorization": KEY}, body=[KEY.encode()])
    assert repr(request) == "<HttpRequest POST to h:1>"


# The seam.


class Canned:
    """A transport without a network."""

    def __init__(self, *pieces: bytes, status: int = 200) -> None:
        self.requests: list[HttpRequest] = []
        self._pieces = pieces
        self._status = status

    async def send(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        return CannedResponse(self._pieces, self._status)

    async def aclose(self) -> None:
        pass


class CannedResponse:
    def __init__(self, pieces: tuple[bytes, ...], status: int) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self._pieces = pieces

    @property
    def body(self) -> AsyncIterator[bytes]:
        async def body_chunks() -> AsyncIterator[bytes]:
            for piece in self._pieces:
                yield piece

        return body_chunks()

    async def aclose(self) -> None:
        pass


def test_a_custom_transport() -> None:
    transport = Canned(CHAT[:40], CHAT[40:])
    settings = ModelRequest(reasoning=Reasoning(effort="low"))
    client = client_of("http://nowhere/v1", transport=transport)
    assert text_of(ask(client, ProviderCallOptions(model="gpt-5", settings=settings))) == "Rain."
    (request,) = transport.requests
    assert request.url == "http://nowhere/v1/chat/completions"
    assert msgspec.json.decode(b"".join(request.body))["reasoning_effort"] == "low"
