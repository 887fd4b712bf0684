"""Upstreams that misbehave, before the first word and after it: clients get an error in their own format, without our secrets."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from msgspec import structs

from antiphon.http.client import connection as connection_module
from antiphon.parts import Text, text_of
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import Message, ModelRequest
from gateway.rig import FAST, KEY, MODELS, Rig, rig
from gateway.strict_upstream import (
    CLOSED,
    ERROR_PAGE,
    Fault,
    StrictUpstream,
    called,
    cut,
    gzipped,
    hang,
    many_times,
    reset,
    text_answer,
    trickle,
)
from providers.scripted_server import Reply

pytestmark = pytest.mark.pairwise
QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
LONG = "One more word, ein Wort, 一个字. " * 20

everyone = pytest.mark.parametrize(("source", "target"), [(source, target) for source in FORMATS for target in FORMATS])


@pytest.fixture(scope="module", name="gateway")
def one_for_all() -> Iterator[Rig]:
    with rig() as running:
        yield running


@pytest.fixture(autouse=True)
def _long_answers(gateway: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RESEND_SECONDS", 10.0)  # a busy machine notices an end late
    gateway.clear()
    for upstream in gateway.upstreams.values():
        upstream.answer = lambda _: text_answer(LONG)


def half(fault: Callable[[int], Fault]) -> Callable[[Reply], Reply]:
    """A fault in the middle of the answer, wherever that is."""

    def done(reply: Reply) -> Reply:
        made = fault(len(reply.body) // 2)
        return made if isinstance(made, Reply) else made(reply)

    return done


BREAKS: dict[str, Callable[[StrictUpstream], Fault]] = {
    "cut": lambda _: half(cut),
    "reset": lambda _: half(reset),
    "error event": lambda upstream: upstream.error_in_stream("overloaded", "Overloaded", after=text_answer(LONG)),
    "no end": lambda _: lambda reply: structs.replace(reply, body=reply.body[: len(reply.body) // 2]),
    "garbage": lambda _: (
        lambda reply: structs.replace(reply, body=reply.body[: len(reply.body) // 2] + b'\n\ndata: {"no": json\n\n' * 3)
    ),
}


@everyone
@pytest.mark.parametrize("name", BREAKS)
def test_a_stream_that_breaks_ends_with_an_error(gateway: Rig, source: str, target: str, name: str) -> None:
    upstream = gateway.upstreams[target]
    upstream.faults.append(BREAKS[name](upstream))
    with gateway.client() as client:
        got = client.ask(source, f"to-{target}", QUESTION, streams=True)
        assert got.status == 200
        assembler = got.assembler(source)
        assert not assembler.is_finished
        assert assembler.error is not None
        text_so_far = text_of(assembler.output.parts)
        assert text_so_far
        assert LONG.startswith(text_so_far)
        after = client.ask(source, f"to-{target}", QUESTION, streams=True).output(source, streams=True)
        assert text_of(after.parts) == LONG


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (half(cut), 502),
        (half(reset), 502),
        (CLOSED, 502),
        (ERROR_PAGE, 502),
        (Reply(body=b"", content_type="application/json"), 502),
        (Reply(body=b"{}", content_type="application/json"), 502),
        (Reply(body=b"[1, 2", content_type="application/json"), 502),
        (Reply(body=b'"words"', content_type="application/json"), 502),
        (Reply(body=b'{"error": {"message": "no", "type": "server_error"}}'), 502),
        (Reply(status=302, headers={"location": "http://127.0.0.1:9/elsewhere"}), 502),
        (Reply(status=418, body=b"teapot", content_type="text/plain"), 418),
    ],
    ids=lambda value: "" if isinstance(value, int) else None,
)
def test_an_invalid_whole_answer_is_an_error(gateway: Rig, source: str, fault: Fault, status: int) -> None:
    for target in ("openai-chat", "gemini") if source == "anthropic" else ("anthropic", "openai-responses"):
        # A connection that had been idle is closed without a word: the request is sent once more on a new one.
        gateway.upstreams[target].faults.extend([fault] * (2 if fault is CLOSED else 1))
        with gateway.client() as client:
            got = client.ask(source, f"to-{target}", QUESTION, streams=False)
        assert got.status == status, got.body
        assert got.error(source).message
        assert got.headers["content-type"] == "application/json"


def test_an_upstream_that_hangs_is_given_up() -> None:
    with rig(read_seconds=0.4) as gateway, gateway.client() as client:
        for source, target in zip(FORMATS, reversed(FORMATS), strict=True):
            upstream = gateway.upstreams[target]
            upstream.answer = lambda _: text_answer(LONG)
            upstream.faults.extend([hang() if source == "anthropic" else hang(30), half(hang)])
            late = client.ask(source, f"to-{target}", QUESTION, streams=source != "gemini")
            assert late.status == 504
            assert late.error(source).message
            assembler = client.ask(source, f"to-{target}", QUESTION, streams=True).assembler(source)
            assert assembler.error is not None
            assert LONG.startswith(text_of(assembler.output.parts))


HARMLESS: dict[str, Fault] = {
    "trickles": trickle(97, 0.001),
    "ten times": many_times(10),
    "wrong content type": called("text/plain"),
    "gzip": gzipped,
}


@everyone
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", HARMLESS)
def test_odd_but_whole_answers_are_answers(gateway: Rig, source: str, target: str, streams: bool, name: str) -> None:
    if name == "ten times" and (not streams or target == "gemini"):
        pytest.skip("ten bodies are not one body, and a stream of Gemini's has no last event")
    gateway.upstreams[target].faults.append(HARMLESS[name])
    with gateway.client() as client:
        got = client.ask(source, f"to-{target}", QUESTION, streams=streams)
    assert "content-encoding" not in got.headers
    assert text_of(got.output(source, streams=streams).parts) == LONG


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic"])  # Gemini has no last event
def test_an_upstream_that_never_stops_is_stopped(gateway: Rig, source: str, target: str) -> None:
    """It keeps sending after the end of its answer: the client has its answer, and the connection is closed."""
    upstream = gateway.upstreams[target]
    upstream.faults.append(
        lambda reply: structs.replace(reply, body=reply.body + b": more\n\n" * 200_000, piece=65_536, hangs=True)
    )
    with gateway.client() as client:
        got = client.ask(source, f"to-{target}", QUESTION, streams=True)
    assert text_of(got.output(source, streams=True).parts) == LONG
    assert len(got.body) < 1_000_000, "most of what follows the end is not read"
    assert got.body.count(b"[DONE]") <= 1


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        lambda upstream: upstream.error(529, "overloaded", "Overloaded"),
        lambda upstream: upstream.error(500, "server", "our fault"),
        lambda upstream: upstream.error(429, "rate_limit", "slow down", retry_after="0.2"),
        lambda _: CLOSED,
    ],
    ids=["529", "500", "429", "closed"],
)
def test_one_failed_attempt_is_retried(fault: Callable[[StrictUpstream], Fault], streams: bool) -> None:
    with rig(retries=1) as gateway, gateway.client() as client:
        upstream = gateway.upstreams["openai-chat"]
        upstream.faults.append(fault(upstream))
        got = client.ask("anthropic", "to-openai-chat", QUESTION, streams=streams)
        assert text_of(got.output("anthropic", streams=streams).parts) == "echo: Is it raining?"
        assert len(upstream.received) == 2


def test_a_slow_thinker_is_let_through_after_the_hold() -> None:
    """It says nothing for longer than the hold: the client gets keep-alives, and then the answer."""
    settings = structs.replace(FAST, hold_seconds=0.1, keep_alive_seconds=0.1)
    with rig(settings) as gateway, gateway.client() as client:
        for source in FORMATS:
            gateway.upstreams["openai-chat"].faults.append(silent_at_first)
            got = client.ask(source, "to-openai-chat", QUESTION, streams=True)
            assert got.body.startswith(formats[source].spec.keep_alive)
            assert text_of(got.output(source, streams=True).parts) == "echo: Is it raining?"


def silent_at_first(reply: Reply) -> Reply:
    """A comment, a silence, and then everything."""
    comment = b": thinking" + b"." * len(reply.body) + b"\n\n"
    return structs.replace(reply, body=comment + reply.body, piece=len(comment), pause=0.7)


def test_no_answer_log_or_page_holds_a_credential(capsys: pytest.CaptureFixture[str]) -> None:
    """The upstream quotes the key that it refuses, and the headers it got, in every place it can."""
    team, token = "blue-team-passphrase", "hd-token-9f8e7d6c5b4a"
    headers = {"x-team": "env:TEAM", "x-forwarded-user": "env:USER_TOKEN", "x-plain": "a plain word"}
    environ = {"TEAM": team, "USER_TOKEN": f"Bearer {token}"}
    secrets = [*(KEY.format(name) for name in FORMATS), team, token]
    seen: list[str] = []
    settings = structs.replace(FAST, log_level="debug", log="json")
    with rig(settings, headers=headers, environ=environ) as gateway, gateway.client() as client:
        for target, upstream in gateway.upstreams.items():
            secret = f"{KEY.format(target)} and {team} and {token} and a plain word"
            faults: list[Fault] = [
                upstream.error(400, "invalid_request", f"bad request with {secret}"),
                upstream.error_in_stream("server", f"failed for {secret}", after=text_answer("Some words.")),
                upstream.error_in_stream("server", f"failed for {secret}"),
                Reply(status=500, body=f"<html>{secret}</html>".encode(), content_type="text/html"),
                Reply(status=200, body=f"<title>{secret}</title>".encode(), content_type="text/html"),
                upstream.error(401, "authentication", f"Incorrect API key provided: {secret}"),
            ]
            for number, fault in enumerate(faults):
                upstream.faults.append(fault)
                got = client.ask(FORMATS[number % 4], f"to-{target}", QUESTION, streams=number in (1, 2, 4))
                seen.append(repr(got))
        seen += [repr(client.get(path)) for path in ("/status", "/status?format=json", "/metrics", "/readyz")]
        seen.append(repr(client.get("/status", accept="application/json")))
    log = capsys.readouterr()
    seen += [log.out, log.err]
    assert "Incorrect API key provided" in log.err
    assert "a plain word" in log.err
    assert all(upstream.received[0].headers["x-team"] == team for upstream in gateway.upstreams.values())
    for secret in secrets:
        assert not any(secret in text for text in seen)


EMPTY_STARTS: dict[str, bytes] = {
    "openai-chat": b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
    "openai-responses": b'event: response.output_item.added\ndata: {"type":"response.output_item.added","output_index":0,'
    b'"item":{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}}\n\n',
    "anthropic": b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
    b'"role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":11,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n',
    "gemini": b'data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0}]}\n\n',
}
"""The beginning of a stream in which a part has begun and nothing was shown."""


@pytest.mark.parametrize("source", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("first", EMPTY_STARTS)
def test_a_stream_that_breaks_after_an_empty_part_falls_back(source: str, first: str) -> None:
    second = "gemini" if first != "gemini" else "openai-chat"
    with rig(models={"both": [f"{first}/{MODELS[first]}", f"{second}/{MODELS[second]}"]}) as gateway:
        failing = gateway.upstreams[first]
        error = failing.error_in_stream("overloaded", "Overloaded")
        with gateway.client() as client:
            for fault in (Reply(body=EMPTY_STARTS[first]), Reply(body=EMPTY_STARTS[first] + error.body)):
                failing.faults.append(fault)
                got = client.ask(source, "both", QUESTION, streams=True)
                assert text_of(got.output(source, streams=True).parts) == "echo: Is it raining?"
                assert got.headers["x-antiphon-target"].startswith(f"{second}/")


def two_members(reply: Reply) -> Reply:
    """The body compressed, in two members."""
    half = len(reply.body) // 2
    body = gzip.compress(reply.body[:half]) + gzip.compress(reply.body[half:])
    return structs.replace(reply, body=body, headers={**reply.headers, "content-encoding": "gzip"})


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", FORMATS)
def test_a_second_gzip_member_is_not_lost(gateway: Rig, target: str, streams: bool) -> None:
    gateway.upstreams[target].faults.append(two_members)
    with gateway.client() as client:
        got = client.ask("anthropic", f"to-{target}", QUESTION, streams=streams)
    assert text_of(got.output("anthropic", streams=streams).parts) == LONG


UNREADABLE: dict[str, bytes] = {
    "a page": b"<html><title>Welcome</title></html>",
    "not JSON": b"[1, 2",
    "a string": b'"words"',
    "a list": b"[1, 2]",
    "garbage in a stream": b'data: {"no": json\n\n',
}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("name", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_asked_for_once(target: str, streams: bool, name: str) -> None:
    """It may be billed. Another target is asked, if there is one."""
    other = "anthropic" if target != "anthropic" else "gemini"
    models = {"one": [f"{target}/{MODELS[target]}"], "two": [f"{target}/{MODELS[target]}", f"{other}/{MODELS[other]}"]}
    fault = Reply(body=UNREADABLE[name], content_type="text/event-stream" if streams else "application/json")
    with rig(structs.replace(FAST, hold_seconds=60.0), models=models, retries=2) as running, running.client() as client:
        upstream = running.upstreams[target]
        upstream.faults.append(fault)
        got = client.ask("openai-chat", "one", QUESTION, streams=streams)
        assert got.status == 502, got.body
        assert len(upstream.received) == 1
        upstream.faults.append(fault)
        got = client.ask("openai-chat", "two", QUESTION, streams=streams)
        assert text_of(got.output("openai-chat", streams=streams).parts) == "echo: Is it raining?"
        assert (len(upstream.received), len(running.upstreams[other].received)) == (2, 1)


@pytest.mark.parametrize("streams", [False, True])
def test_a_lost_idle_connection_is_not_a_provider_failure(streams: bool) -> None:
    with rig() as running, running.client() as client:  # no retries
        upstream = running.upstreams["anthropic"]
        assert client.ask("anthropic", "to-anthropic", QUESTION, streams=streams).status == 200
        upstream.faults.append(CLOSED)
        got = client.ask("anthropic", "to-anthropic", QUESTION, streams=streams)
        assert text_of(got.output("anthropic", streams=streams).parts) == "echo: Is it raining?"
        first, idle, new = (request.connection for request in upstream.received)
        assert first == idle != new
        assert b'antiphon_upstream_failures_total{provider="anthropic",kind="server"} 1' in client.get("/metrics").body
        status = client.get("/status").json
        (row,) = [row for row in status["credentials"] if row["provider"] == "anthropic"]
        assert (row["calls"], row["successes"], row["failures"]) == (2, 2, 0)
        assert [len(record["attempts"]) for record in status["requests"]] == [2, 1]


def test_retry_after_is_the_wait_that_is_applied() -> None:
    """The second rate limit doubles the wait of the key: the client gets that wait, not the provider's."""
    models = {"both": [f"anthropic/{MODELS['anthropic']}", f"gemini/{MODELS['gemini']}"]}
    with rig(models=models) as running, running.client() as client:
        upstream, second = running.upstreams["anthropic"], running.upstreams["gemini"]

        def ask(model: str) -> tuple[int, int]:
            got = client.ask("openai-chat", model, QUESTION, streams=False)
            return got.status, int(got.headers.get("retry-after", "0"))

        upstream.faults.extend([upstream.error(429, "rate_limit", "slow down", retry_after="1.9")] * 2)
        assert ask("to-anthropic") == (429, 2)
        wait_until_asked(upstream, 2, lambda: ask("to-anthropic"))
        assert len(upstream.received) == 2
        status, wait = ask("to-anthropic")  # no key is usable: this is the wait that is applied
        assert status == 429
        assert 2 < wait <= 4  # of 3.8 s; the provider's was 1.9
        second.faults.append(second.error(429, "rate_limit", "slow down", retry_after="60"))
        status, wait = ask("both")
        assert status == 429
        assert 1 <= wait <= 4  # the first target is free again long before the second


def wait_until_asked(upstream: StrictUpstream, count: int, ask: Callable[[], tuple[int, int]]) -> None:
    """Ask until the upstream was asked so often; the wait in the last of these answers is the one it then applies."""
    deadline = time.monotonic() + 30
    while len(upstream.received) < count:
        assert time.monotonic() < deadline, "the key was not tried again within 30 s"
        time.sleep(0.05)
        wait = ask()
    assert wait == (429, 4)


EMPTY_ANSWERS: dict[str, tuple[str, dict[str, object]]] = {
    "no choices": ("openai-chat", {"id": "1", "object": "chat.completion", "model": "m", "choices": []}),
    "a choice without text": (
        "openai-chat",
        {
            "id": "1",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3},
        },
    ),
    "no candidates": ("gemini", {"usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}),
    "a malformed call": ("gemini", {"candidates": [{"index": 0, "finishReason": "MALFORMED_FUNCTION_CALL"}]}),
    "no content": (
        "anthropic",
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 0},
        },
    ),
    "no output": ("openai-responses", {"id": "resp_1", "object": "response", "status": "completed", "output": []}),
}
"""Whole answers that show nothing and do not say why, and the format they are of."""


@pytest.mark.parametrize("name", EMPTY_ANSWERS)
def test_an_empty_whole_answer_falls_back(name: str) -> None:
    """As an empty stream does, whether it would be passed on or translated; without another target it is an error."""
    target, body = EMPTY_ANSWERS[name]
    other = "gemini" if target != "gemini" else "anthropic"
    models = {"one": [f"{target}/{MODELS[target]}"], "two": [f"{target}/{MODELS[target]}", f"{other}/{MODELS[other]}"]}
    fault = Reply(body=msgspec.json.encode(body), content_type="application/json")
    with rig(models=models) as running, running.client() as client:
        for source in FORMATS:
            running.upstreams[target].faults.append(fault)
            got = client.ask(source, "two", QUESTION, streams=False)
            assert text_of(got.output(source, streams=False).parts) == "echo: Is it raining?"
            assert got.headers["x-antiphon-target"].startswith(f"{other}/")
            running.upstreams[target].faults.append(fault)
            refused = client.ask(source, "one", QUESTION, streams=False)
            assert refused.status == 502
            assert "empty response" in refused.error(source).message
        attempts = client.get("/status").json["requests"][0]["attempts"]
        assert len(attempts) == 1


def test_an_answer_that_explains_why_it_is_empty_is_passed_on() -> None:
    blocked = Reply(body=b'{"promptFeedback":{"blockReason":"SAFETY"}}', content_type="application/json")
    with rig(models={"one": [f"gemini/{MODELS['gemini']}"]}) as running, running.client() as client:
        for source in FORMATS:
            running.upstreams["gemini"].faults.append(blocked)
            assert client.ask(source, "one", QUESTION, streams=False).status == 200
