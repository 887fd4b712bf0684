"""Every client format to every upstream format, streamed and whole: all content arrives, and the answer has the client's shape.

The upstreams are strict: a request that the provider would refuse is refused, so an answer proves that the request was legal.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.parts import Image, Text, Thinking, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire import FORMATS, formats
from antiphon.wire.output import ErrorKind, ModelOutput, StopReason
from antiphon.wire.request import Message, ModelRequest, OutputFormat, ToolDefinition
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import MODELS, Client, Got, Rig, path_of, rig
from gateway.strict_upstream import USAGE, StrictUpstream, text_answer
from repair.test_broken_sequences import WORDS, bodies

pytestmark = pytest.mark.pairwise
STRICT_KEY, LENIENT_KEY = "sk-strict", "sk-lenient"
PIXEL = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition("weather", "Tell the weather of a city.", SCHEMA)
QUESTION = Message("user", (Text("Is it raining in 北京 and Łódź? 🌧"),))
ID_PREFIXES = {
    "openai-chat": "chatcmpl-",
    "openai-responses": "resp_",
    "anthropic": "msg_",
    "gemini": "",
    "gemini-interactions": "v1_",
}

matrix = [
    pytest.param(client, upstream, streams, id=f"{client}-to-{upstream}-{'stream' if streams else 'whole'}")
    for client in FORMATS
    for upstream in FORMATS
    for streams in (False, True)
]
everywhere = pytest.mark.parametrize(("source", "target", "streams"), matrix)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    keys = [
        ClientKeySettings(name="strict", key=hash_key(STRICT_KEY), strict=True),
        ClientKeySettings(name="lenient", key=hash_key(LENIENT_KEY)),
    ]
    own_name = {MODELS["anthropic"]: [f"anthropic/{MODELS['anthropic']}"]}
    with rig(keys=keys, models=own_name) as running:
        yield running


@pytest.fixture(scope="module")
def kept_open(gateway: Rig) -> Iterator[Client]:
    with gateway.client(LENIENT_KEY, port=gateway.format_port) as client:
        yield client


@pytest.fixture
def client(gateway: Rig, kept_open: Client) -> Client:
    gateway.clear()
    return kept_open


def request(*messages: Message, **settings: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (QUESTION,), max_output_tokens=500, **settings)


def last_request(upstream: StrictUpstream) -> ModelRequest:
    """The last request an upstream got, which it did not refuse."""
    assert upstream.refused == []
    return upstream.wire.read_request(upstream.received[-1].body)


@everywhere
def test_text_arrives_and_comes_back(gateway: Rig, client: Client, source: str, target: str, streams: bool) -> None:
    upstream = gateway.upstreams[target]
    upstream.piece = 7  # characters are cut anywhere
    got = client.ask(source, f"to-{target}", request(), streams=streams, headers={"x-request-id": "mine-1"})
    output = got.output(source, streams=streams)
    request_seen = last_request(upstream)
    assert text_of(output.parts) == f"echo: {text_of(QUESTION.parts)}"
    assert output.stop_reason == "end"
    assert output.usage is not None
    assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (11, 7)
    assert output.id.startswith(ID_PREFIXES[source])
    assert output.model == ("" if source == target == "gemini" else f"to-{target}"), "its upstream names no model"
    assert request_seen.max_output_tokens == 500
    assert MODELS[target] in (request_seen.model or upstream.received[-1].target)
    assert got.headers["x-request-id"] == "mine-1"
    assert got.headers["x-antiphon-target"] == f"{target}/{MODELS[target]}"
    assert "x-antiphon-repairs" not in got.headers
    assert got.headers["content-type"].startswith("text/event-stream" if streams else "application/json")


def calls_of(output: ModelOutput) -> list[ToolCallRequest]:
    return [part for part in output.parts if isinstance(part, ToolCallRequest)]


@everywhere
def test_a_round_trip_of_parallel_calls(gateway: Rig, client: Client, source: str, target: str, streams: bool) -> None:
    upstream, model = gateway.upstreams[target], f"to-{target}"
    made = [
        ToolCallRequest("weather", f"call_{number}", msgspec.json.encode({"city": city}).decode())
        for number, city in enumerate(("北京", "Łódź"))
    ]
    first = ModelOutput(parts=(Text("I look."), *made), stop_reason="tool_calls", id="a", model="m", usage=USAGE)
    upstream.answer = lambda _: first
    output = client.ask(source, model, request(tools=(WEATHER,)), streams=streams).output(source, streams=streams)
    calls = calls_of(output)
    assert [
        definition.name for definition in last_request(upstream).tools if isinstance(definition, ToolDefinition)
    ] == ["weather"]
    assert output.stop_reason == "tool_calls"
    assert text_of(output.parts) == "I look."
    assert [call.tool_name for call in calls] == ["weather", "weather"]
    assert [call.parse_arguments() for call in calls] == [{"city": "北京"}, {"city": "Łódź"}]

    upstream.answer = lambda _: text_answer("It rains in one of them.")
    results = Message("user", tuple(ToolCallResult.of(call, f"in {call.arguments}: rain") for call in calls))
    history = request(QUESTION, Message("assistant", output.parts), results, tools=(WEATHER,))
    answer = client.ask(source, model, history, streams=streams)
    assert text_of(answer.output(source, streams=streams).parts) == "It rains in one of them."
    assert "x-antiphon-repairs" not in answer.headers
    parts = [part for message in last_request(upstream).messages for part in message.parts]
    sent = {part.tool_call_id: part.parse_arguments()["city"] for part in parts if isinstance(part, ToolCallRequest)}
    received_results = {part.tool_call_id: text_of(part.content) for part in parts if isinstance(part, ToolCallResult)}
    assert list(sent.values()) == ["北京", "Łódź"]
    assert received_results.keys() == sent.keys()
    assert all(city in received_results[call_id] for call_id, city in sent.items())


@everywhere
def test_thinking_is_shown_and_sent_back_only_to_its_origin(
    gateway: Rig, client: Client, source: str, target: str, streams: bool
) -> None:
    upstream, model = gateway.upstreams[target], f"to-{target}"
    thought = ModelOutput(
        parts=(Thinking("Hmm, clouds."), Text("Yes.")), stop_reason="end", id="a", model="m", usage=USAGE
    )
    upstream.answer = lambda _: thought
    output = client.ask(source, model, request(), streams=streams).output(source, streams=streams)
    assert text_of(output.parts) == "Yes."
    thinking = [part.text for part in output.parts if isinstance(part, Thinking)]
    assert thinking == ["Hmm, clouds."]
    upstream.answer = lambda _: text_answer("As before.")
    more = request(QUESTION, Message("assistant", output.parts), Message("user", (Text("Sure?"),)))
    again = client.ask(source, model, more, streams=streams)
    assert text_of(again.output(source, streams=streams).parts) == "As before."
    (asked,) = last_request(upstream).messages[-1].parts
    assert text_of((asked,)) == "Sure?"


@everywhere
def test_an_inline_image_arrives(gateway: Rig, client: Client, source: str, target: str, streams: bool) -> None:
    asked = request(Message("user", (Text("What is this?"), Image(media_type="image/png", data=PIXEL))))
    assert client.ask(source, f"to-{target}", asked, streams=streams).status == 200
    images = [part for part in last_request(gateway.upstreams[target]).messages[-1].parts if isinstance(part, Image)]
    assert [(image.media_type, image.data) for image in images] == [("image/png", PIXEL)]


@everywhere
def test_a_schema_for_the_answer_arrives(gateway: Rig, client: Client, source: str, target: str, streams: bool) -> None:
    asked = request(output_format=OutputFormat("json_schema", SCHEMA, name="place", strict=True))
    gateway.upstreams[target].answer = lambda _: text_answer('{"city": "Łódź"}')
    output = client.ask(source, f"to-{target}", asked, streams=streams).output(source, streams=streams)
    assert text_of(output.parts) == '{"city": "Łódź"}'
    wanted = last_request(gateway.upstreams[target]).output_format
    assert wanted is not None
    assert (wanted.kind, (wanted.schema or {}).get("required")) == ("json_schema", ["city"])


@everywhere
def test_stop_sequences_arrive_or_are_a_reported_loss(
    gateway: Rig, client: Client, source: str, target: str, streams: bool
) -> None:
    output = ModelOutput(parts=(Text("a b"),), stop_reason="stop_sequence", stop_sequence="END", id="a", model="m")
    gateway.upstreams[target].answer = lambda _: output
    got = client.ask(source, f"to-{target}", request(stop=("END",)), streams=streams)
    assert got.output(source, streams=streams).stop_reason in ("end", "stop_sequence")
    asked = source != "openai-responses"  # which has no word for it
    is_lost = " stop " in got.headers.get("x-antiphon-losses", "")
    assert last_request(gateway.upstreams[target]).stop == (("END",) if asked and not is_lost else None)
    assert not is_lost or target == "openai-responses"


@everywhere
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_the_stop_reason_is_translated(
    gateway: Rig, client: Client, source: str, target: str, streams: bool, reason: StopReason
) -> None:
    output = ModelOutput(parts=(Text("a b"),), stop_reason=reason, id="a", model="m", usage=USAGE)
    gateway.upstreams[target].answer = lambda _: output
    received_results = client.ask(source, f"to-{target}", request(), streams=streams).output(source, streams=streams)
    # Anthropic has one word for an answer that was withheld.
    assert received_results.stop_reason in ((reason, "refusal") if reason == "content_filter" else (reason,))


ERRORS: list[tuple[int, ErrorKind, str, dict[str, int]]] = [
    (400, "invalid_request", "the temperature is wrong", {}),
    (404, "not_found", "no such model", {}),
    (429, "rate_limit", "slow down", {}),
    (500, "server", "our fault", dict.fromkeys(FORMATS, 502)),
    (503, "overloaded", "too busy", {"anthropic": 529}),
    (401, "authentication", "wrong key", dict.fromkeys(FORMATS, 502)),
]


@pytest.mark.pairwise(1)
@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize(("status", "kind", "words", "statuses"), ERRORS, ids=[str(status) for status, *_ in ERRORS])
def test_errors_come_in_the_clients_shape(
    source: str, target: str, status: int, kind: ErrorKind, words: str, statuses: dict[str, int]
) -> None:
    streams = len(source + target + words) % 2 == 0
    with rig() as running, running.client() as client:  # one for each: a refused key rests
        upstream = running.upstreams[target]
        upstream.faults.append(upstream.error(status, kind, words, retry_after="7"))
        got = client.ask(source, f"to-{target}", request(), streams=streams)
        assert got.status == statuses.get(source, status)
        assert words in got.error(source).message
        assert set(got.json) <= {"error", "type", "request_id"}
        assert got.headers["content-type"] == "application/json"
        assert got.headers.get("retry-after") == ("7" if kind != "authentication" else None)
        assert got.headers["x-request-id"]


@pytest.mark.pairwise(1)
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize(
    ("source", "name", "body"), bodies(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_broken_histories_are_repaired_and_accepted(
    gateway: Rig, client: Client, source: str, name: str, body: dict[str, Any], target: str
) -> None:
    upstream = gateway.upstreams[target]
    upstream.answer = lambda _: text_answer("Fine.")
    streams = len(name) % 2 == 0
    got = client.ask(source, f"to-{target}", body, streams=streams)
    assert text_of(got.output(source, streams=streams).parts) == "Fine."
    given, sent = msgspec.json.encode(body), upstream.received[-1].body
    for word in WORDS:
        assert word.encode() not in given or word.encode() in sent, f"{word} is gone"


def test_a_passed_through_body_refused_for_its_shape_is_rewritten(gateway: Rig, client: Client) -> None:
    body = {"max_tokens": 100, "messages": [{"role": "user", "content": [text_block("Q1"), text_block("")]}]}
    for model in ("to-anthropic", MODELS["anthropic"]):
        got = client.ask("anthropic", model, body, streams=False)
        assert text_of(got.output("anthropic", streams=False).parts) == "echo: Q1"
    assert len(gateway.upstreams["anthropic"].refused) == 1  # made for another model, it is looked at beforehand
    with gateway.client(STRICT_KEY) as strict:
        refused = strict.ask("anthropic", MODELS["anthropic"], body, streams=False)
    assert refused.status == 400
    assert "messages.0.content.1.text" in refused.error("anthropic").message


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


INTERRUPTED = (
    QUESTION,
    Message("assistant", (ToolCallRequest("weather", "call_1", '{"city": "Łódź"}'),)),
    Message("user", (Text("WAIT"),)),
    Message("tool", (ToolCallResult("weather", "call_1", content=(Text("rain"),)),)),
)


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])  # to Responses this order is legal
@pytest.mark.parametrize("streams", [False, True])
def test_a_repair_is_reported_and_refused_for_a_strict_key(
    gateway: Rig, client: Client, target: str, streams: bool
) -> None:
    asked = request(*INTERRUPTED, tools=(WEATHER,))
    got = client.ask("openai-chat", f"to-{target}", asked, streams=streams)
    assert got.status == 200
    assert got.headers["x-antiphon-repairs"].startswith("1; moved")
    gateway.clear()
    with gateway.client(STRICT_KEY) as strict:
        refused = strict.ask("openai-chat", f"to-{target}", asked, streams=streams)
        assert refused.status == 422
        assert "moved" in refused.error("openai-chat").message
        assert gateway.upstreams[target].received == []
        fine = strict.ask("openai-chat", f"to-{target}", request(), streams=streams)
        assert fine.status == 200


def test_a_strict_key_gets_losses_as_errors(gateway: Rig, client: Client) -> None:
    with gateway.client(STRICT_KEY) as strict:
        refused = strict.ask("openai-chat", "to-anthropic", request(seed=7), streams=False)
    assert refused.status == 422
    assert "seed" in refused.error("openai-chat").message
    assert (
        "seed" in client.ask("openai-chat", "to-anthropic", request(seed=7), streams=False).headers["x-antiphon-losses"]
    )


def test_gemini_streams_as_an_array_where_events_were_not_asked_for(gateway: Rig, client: Client) -> None:
    for target in FORMATS:
        body = formats["gemini"].write_request(request()).body
        path = path_of("gemini", f"to-{target}", streams=True).partition("?")[0]
        got: Got = client.post(path, body)
        assert got.headers["content-type"].startswith("application/json")
        texts = [
            part.get("text", "")
            for chunk in got.json
            for candidate in chunk.get("candidates", ())
            for part in candidate.get("content", {}).get("parts", ())
        ]
        assert "".join(texts) == f"echo: {text_of(QUESTION.parts)}"
