"""Where client and upstream speak the same format: the bytes pass; where an upstream fails, another key or provider answers.

And what must never pass: credentials, headers of a connection, and work for a client that has gone.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Text, text_of
from antiphon.wire import FORMATS, formats
from antiphon.wire.output import ErrorKind
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.config.settings import Config, ModelSettings
from antiphon_gateway.generate.channels import without_usage
from antiphon_gateway.runtime.body_fields import stream_options, with_usage_requested
from gateway.rig import FAST, KEY, MODELS, Rig, path_of, provider_of, rig, serving
from gateway.strict_upstream import (
    CLOSED,
    EMPTY,
    ERROR_PAGE,
    PAGE,
    Fault,
    StrictUpstream,
    cut,
    hang,
    text_answer,
)
from providers.scripted_server import Reply

CANARY = "canary-of-the-client"
QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
ODD: dict[str, bytes] = {
    "openai-chat": b'{ "messages" : [{"role":"user","content":"\\u00e9 \xc3\xa9"}],\n"seed":1, "model":"%b", "stream": %b}',
    "openai-responses": b'{"input":"\\u00e9 \xc3\xa9" , "model": "%b","stream" :%b, "store": false}',
    "anthropic": b'{"max_tokens":1e2,"messages":[{"role":"user","content":"\\u00e9 \xc3\xa9"}], "model":"%b","stream":%b }',
    "gemini-interactions": b'{"input":"\\u00e9 \xc3\xa9" , "model": "%b","stream" :%b, "store": false}',
    "gemini": b'{"contents":[{"parts":[{"text":"\\u00e9 \xc3\xa9"}] , "role":"user"}] }',
}
"""Bodies in a spelling that no JSON encoder would produce."""


def odd(name: str, model: str, *, streams: bool) -> bytes:
    return ODD[name] if name == "gemini" else ODD[name] % (model.encode(), b"true" if streams else b"false")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    own_names = {MODELS[name]: [f"{name}/{MODELS[name]}"] for name in FORMATS}
    settings = structs.replace(FAST, hold_seconds=5.0, keep_alive_seconds=0.1)
    with rig(settings, models=own_names) as running:
        yield running


@pytest.fixture(autouse=True)
def _forgotten(gateway: Rig) -> None:
    gateway.clear()


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_bytes_pass_untouched_both_ways(gateway: Rig, name: str, streams: bool) -> None:
    upstream, model = gateway.upstreams[name], MODELS[name]
    data = odd(name, model, streams=streams)
    reply = upstream.spoken(text_answer("Oui, é.", model), streams=streams)
    answered = structs.replace(reply, body=reply.body.replace(b'":', b'" : ') + b"\n", piece=11)
    upstream.faults.append(lambda _: answered)
    with gateway.client() as client:
        got = client.post(path_of(name, model, streams=streams), data)
    assert upstream.refused == []
    # The usage of a chat stream is reported only on request.
    requested = with_usage_requested(data, stream_options(data)) if streams and name == "openai-chat" else data
    assert upstream.received[0].body == requested
    assert got.status == 200
    assert got.body == (without_usage(answered.body) if streams and name == "openai-chat" else answered.body)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "gemini"])
def test_only_the_name_of_the_model_is_changed(gateway: Rig, name: str) -> None:
    with gateway.client() as client:
        assert client.post(path_of(name, "", streams=True), odd(name, f"to-{name}", streams=True)).status == 200
    sent = msgspec.json.decode(gateway.upstreams[name].received[0].body, type=dict[str, msgspec.Raw])
    if name == "openai-chat":
        assert bytes(sent.pop("stream_options")) == b'{"include_usage":true}'
    given = msgspec.json.decode(odd(name, MODELS[name], streams=True), type=dict[str, msgspec.Raw])
    assert {field: bytes(raw) for field, raw in sent.items()} == {field: bytes(raw) for field, raw in given.items()}


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_no_credential_and_no_header_of_a_connection_crosses(gateway: Rig, source: str, target: str) -> None:
    upstream = gateway.upstreams[target]
    expected = {
        "authorization": f"Bearer {CANARY}",
        "x-api-key": CANARY,
        "x-goog-api-key": CANARY,
        "proxy-authorization": f"Basic {CANARY}",
        "cookie": f"session={CANARY}",
        "x-mine": CANARY,
        "te": "trailers",
        "connection": "keep-alive, x-mine",
    }
    secret = KEY.format(target)
    answered = {
        "set-cookie": f"session={secret}",
        "x-api-key": secret,
        "server": "theirs",
        "keep-alive": "timeout=1",
        "x-theirs": secret,
    }
    upstream.faults.append(lambda reply: structs.replace(reply, headers=answered))
    with gateway.client() as client:
        got = client.ask(source, f"to-{target}", QUESTION, streams=True, headers=expected)
    assert got.status == 200
    sent = upstream.received[0]
    assert CANARY not in repr(sent)
    assert secret in repr(sent.headers)
    assert not {"te", "cookie", "proxy-authorization", "x-mine"} & sent.headers.keys()
    assert not {"set-cookie", "x-api-key", "keep-alive", "x-theirs"} & got.headers.keys()
    assert secret not in repr(got)


def test_version_headers_go_to_the_same_format_only(gateway: Rig) -> None:
    with gateway.client() as client:
        for target in ("anthropic", "openai-chat"):
            asked = {"anthropic-version": "2023-06-01", "anthropic-beta": "context-1m"}
            client.ask("anthropic", f"to-{target}", QUESTION, streams=False, headers=asked)
    assert gateway.upstreams["anthropic"].received[0].headers["anthropic-beta"] == "context-1m"
    assert "anthropic-beta" not in gateway.upstreams["openai-chat"].received[0].headers


REFUSALS: list[tuple[int, ErrorKind]] = [(401, "authentication"), (403, "permission"), (429, "rate_limit")]


@pytest.mark.parametrize(("status", "kind"), REFUSALS)
def test_a_refused_key_gives_way_to_the_next(status: int, kind: ErrorKind) -> None:
    environ = {"FIRST": "sk-first-key-0001", "SECOND": "sk-second-key-0002"}
    with StrictUpstream("openai-chat", environ.values()) as upstream:
        provider = provider_of("p", upstream, keys=("env:FIRST", "env:SECOND"))
        config = Config(gateway=FAST, providers=(provider,), models=(ModelSettings(name="m", targets=("p/gpt-4o",)),))
        upstream.faults.append(upstream.error(status, kind, "not with this key"))
        with serving(config, environ) as ports, Rig({}, ports).client() as client:
            for _ in range(2):
                assert client.ask("openai-chat", "m", QUESTION, streams=True).status == 200
        used = [request.headers["authorization"].removeprefix("Bearer ") for request in upstream.received]
        assert used[0] != used[1] == used[2]


FAILURES: dict[str, Callable[[StrictUpstream], Fault]] = {
    "500": lambda upstream: upstream.error(500, "server", "our fault"),
    "529": lambda upstream: upstream.error(529, "overloaded", "Overloaded"),
    "429": lambda upstream: upstream.error(429, "rate_limit", "slow down"),
    "error in a 200": lambda upstream: upstream.error_in_stream("overloaded", "Overloaded"),
    "empty": lambda _: EMPTY,
    "closed": lambda _: CLOSED,
    "page": lambda _: PAGE,
    "error page": lambda _: ERROR_PAGE,
    "cut at once": lambda _: cut(3),
    "empty answer": lambda upstream: Reply(body=upstream.stream(structs.replace(text_answer(""), parts=()))),
}
"""Everything that can go wrong before a stream shows something."""


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[StrictUpstream, StrictUpstream, int]]:
    """A provider that fails, another that answers, and the port of their gateway. The keys are none: none may rest."""
    with StrictUpstream("anthropic") as bad, StrictUpstream("gemini") as good:
        config = Config(
            gateway=structs.replace(FAST, circuit_failures=0),  # each failure is a case of its own
            providers=(provider_of("bad", bad, keys=()), provider_of("good", good, keys=())),
            models=(
                ModelSettings(name="both", targets=("bad/claude-sonnet-4-5", "good/gemini-2.5-flash")),
                ModelSettings(name="one", targets=("bad/claude-sonnet-4-5",)),
            ),
        )
        with serving(config, {}) as (port, _):
            yield bad, good, port


def fail(upstream: StrictUpstream, name: str) -> None:
    """Let the next call fail. An idle connection that is closed is replaced by a new one, which then is closed as well."""
    fault = FAILURES[name](upstream)
    upstream.faults.clear()
    upstream.faults.extend([fault] * (2 if fault is CLOSED else 1))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FAILURES)
def test_another_provider_answers_for_one_that_fails(
    pair: tuple[StrictUpstream, StrictUpstream, int], name: str, streams: bool
) -> None:
    bad, good, port = pair
    bad.clear()
    good.clear()
    if not streams and name == "empty answer":
        pytest.skip("a whole answer that says nothing is an answer")
    with Rig({}, (port, 0)).client() as client:
        for source in FORMATS:
            fail(bad, name)
            got = client.ask(source, "both", QUESTION, streams=streams)
            assert text_of(got.output(source, streams=streams).parts) == "echo: Is it raining?"
            assert got.headers["x-antiphon-target"] == "good/gemini-2.5-flash"
    assert len(good.received) == len(FORMATS)
    # One more where the first connection of a test was idle and closed: the request was sent again on a new one.
    assert len(FORMATS) <= len(bad.received) <= len(FORMATS) + (name == "closed")


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_inside_a_200_is_a_real_status(pair: tuple[StrictUpstream, StrictUpstream, int], name: str) -> None:
    bad, _, port = pair
    bad.clear()
    with Rig({}, (port, 0)).client() as client:
        for source in FORMATS:
            fail(bad, name)
            got = client.ask(source, "one", QUESTION, streams=True)
            assert got.status in (429, 502, 503, 529)
            assert got.headers["content-type"] == "application/json"
            assert got.error(source).message


def asked_and_left(port: int, name: str, target: str, *, streams: bool, after: bytes | None) -> None:
    """Ask, wait until `after` was received (None: for nothing), and leave."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    model = f"to-{target}"
    named = structs.replace(QUESTION, model=model, stream=None if name == "gemini" else streams)
    body, _ = formats[name].encode_request(named)
    connection.request("POST", path_of(name, model, streams=streams), body, {"content-type": "application/json"})
    if after is not None:
        response = connection.getresponse()
        stream_bytes = b""
        while after not in stream_bytes:
            stream_bytes += response.read1(100)
        response.close()
    connection.close()


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", FORMATS)
def test_a_client_that_leaves_before_the_first_byte_stops_the_upstream(
    gateway: Rig, target: str, streams: bool
) -> None:
    upstream = gateway.upstreams[target]
    upstream.faults.append(hang())
    connection_is_made(upstream, gateway, target, streams=streams)
    assert upstream.gone.wait(20)


def connection_is_made(upstream: StrictUpstream, gateway: Rig, target: str, *, streams: bool) -> None:
    """Leave when the upstream has the request."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    body = odd("openai-chat", f"to-{target}", streams=streams)
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    deadline = 500
    while not upstream.received and deadline:
        upstream.gone.wait(0.01)
        deadline -= 1
    connection.close()


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_a_client_that_leaves_in_mid_stream_stops_the_upstream(gateway: Rig, source: str, target: str) -> None:
    upstream = gateway.upstreams[target]
    upstream.answer = lambda _: text_answer("One. " * 50)
    upstream.faults.append(lambda reply: structs.replace(reply, body=reply.body[: len(reply.body) // 2], hangs=True))
    asked_and_left(gateway.port, source, target, streams=True, after=b"One")
    assert upstream.gone.wait(20)


@pytest.mark.parametrize("target", FORMATS)
def test_a_client_that_leaves_in_a_whole_answer_stops_the_upstream(gateway: Rig, target: str) -> None:
    upstream = gateway.upstreams[target]
    upstream.faults.append(hang(20))
    connection_is_made(upstream, gateway, target, streams=False)
    assert upstream.gone.wait(20)


@pytest.mark.parametrize("source", FORMATS)
def test_a_thinking_upstream_keeps_the_line_alive(gateway: Rig, source: str) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.answer = lambda _: text_answer("One. " * 20)
    upstream.faults.append(
        lambda reply: structs.replace(reply, piece=len(reply.body) // 2 + 1, pause=0.7)  # one silence in the middle
    )
    with gateway.client() as client:
        got = client.ask(source, "to-anthropic", QUESTION, streams=True)
    keep_alive = formats[source].spec.keep_alive
    assert (keep_alive + b" " if source == "gemini" else keep_alive * 2) in got.body
    assert text_of(got.output(source, streams=True).parts) == "One. " * 20


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_body_for_a_stream_becomes_one(gateway: Rig, name: str) -> None:
    upstream = gateway.upstreams[name]
    upstream.faults.append(lambda _: upstream.spoken(text_answer("All at once."), streams=False))
    with gateway.client() as client:
        got = client.ask(name, f"to-{name}", QUESTION, streams=True)
    assert text_of(got.output(name, streams=True).parts) == "All at once."
    assert b"data: " in got.body


def events_of(data: bytes) -> list[Any]:
    """The JSON of each event; those that are not JSON are left out."""
    return [msgspec.json.decode(event.data) for event in SseReader().feed(data) if event.data.startswith(b"{")]


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_cut_responses_stream_keeps_its_id_and_numbers(gateway: Rig, part: float) -> None:
    gateway.upstreams["openai-responses"].answer = lambda _: text_answer("One. " * 20)
    gateway.upstreams["openai-responses"].faults.append(lambda reply: cut(int(len(reply.body) * part))(reply))  # type: ignore[operator]
    body = {**formats["openai-responses"].write_request(QUESTION).body, "store": False}
    with gateway.client() as client:
        events = events_of(client.ask("openai-responses", MODELS["openai-responses"], body, streams=True).body)
    created, failed = events[0]["response"], events[-1]["response"]
    assert [event["type"] for event in events].count("response.created") == 1
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[-1]["type"], failed["status"]) == ("response.failed", "failed")
    assert "connection lost" in failed["error"]["message"]
    same = ("id", "store", "model", "created_at", "instructions")
    assert [failed.get(name) for name in same] == [created.get(name) for name in same]


def test_cut_interactions_stream_continues_the_event_ids(gateway: Rig) -> None:
    gateway.upstreams["gemini-interactions"].faults.append(lambda reply: cut(len(reply.body) * 2 // 3)(reply))  # type: ignore[operator]
    with gateway.client() as client:
        got = client.ask("gemini-interactions", MODELS["gemini-interactions"], QUESTION, streams=True)
    events = events_of(got.body)
    assert [event["event_type"] for event in events].count("interaction.created") == 1
    assert events[-1]["event_type"] == "error"
    assert [event["event_id"] for event in events] == [str(number) for number in range(len(events))]


def test_openai_sdk_reports_a_cut_stream(gateway: Rig) -> None:
    openai = pytest.importorskip("openai")
    upstream = gateway.upstreams["openai-responses"]
    upstream.answer = lambda _: text_answer("One. " * 20)
    upstream.faults.append(lambda reply: cut(len(reply.body) * 2 // 3)(reply))  # type: ignore[operator]
    with (
        openai.OpenAI(api_key="k", base_url=f"{gateway.url}/v1", max_retries=0) as client,
        client.responses.stream(model=MODELS["openai-responses"], input="Hello", store=False) as stream,
    ):
        events = list(stream)
    assert events[-1].type == "response.failed"
    assert "connection lost" in events[-1].response.error.message
