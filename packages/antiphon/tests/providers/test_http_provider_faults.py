"""Faults of a provider over real sockets: each is a failure of the right kind, and no cut stream looks complete."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from antiphon.http.client.request import Timeouts
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.wire import formats
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, PartDelta, Started
from providers.http_client import CHAT, ONCE, Pace, ask, asked, client_of
from providers.sample_answers import STREAMS, deltas_from, error_of, events, text_of
from providers.scripted_server import Reply, ScriptedServer

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
    assert finished < 60  # only in what follows the stop reason: the end mark


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


def test_a_finished_answer_counts_even_if_the_host_then_hangs() -> None:
    unclosed = CHAT.removesuffix(b"data: [DONE]\n\n")
    with ScriptedServer(Reply(body=unclosed, cut_after=len(unclosed), hangs=True)) as server:
        assert text_of(ask(client_of(server, timeouts=Timeouts(read=0.2)))) == "Rain."
