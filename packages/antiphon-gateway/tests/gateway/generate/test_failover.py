"""Another target finishes a text whose stream broke, in every format; where it cannot, the client gets the first error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec import structs

from antiphon.parts import Text, text_of
from antiphon.wire import FORMATS
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.config.settings import ClientKeySettings, Config, ModelSettings
from gateway.rig import ENVIRONMENT, FAST, KEY, Client, Rig, provider_of, rig, serving
from gateway.strict_upstream import Fault, StrictUpstream, cut, hang, text_answer, trickle
from providers.scripted_server import Reply

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
LONG = "One more word, ein Wort, 一个字. " * 20
MODELS = {
    "chat-then-claude": ["openai-chat/gpt-4o", "anthropic/claude-opus-4-7"],
    "claude-then-chat": ["anthropic/claude-sonnet-4-5", "openai-chat/gpt-4o"],
    "chat-then-prefill": ["openai-chat/gpt-4o", "anthropic/claude-sonnet-4-5"],
    "three": ["openai-chat/gpt-4o", "gemini/gemini-2.5-flash", "openai-responses/gpt-5"],
}


@pytest.fixture(scope="module", name="gateway")
def continuing_gateway() -> Iterator[Rig]:
    settings = structs.replace(FAST, continue_streams=True)
    metered = ClientKeySettings(name="metered", key="env:METERED", tokens_per_minute=1_000_000, admin=True)
    with rig(settings, models=MODELS, read_seconds=1.0, keys=(metered,), environ={"METERED": "k-metered"}) as running:
        yield running


@pytest.fixture(autouse=True)
def _long_answers(gateway: Rig) -> None:
    gateway.clear()
    for upstream in gateway.upstreams.values():
        upstream.answer = lambda _: text_answer(LONG)


def in_the_middle(fault: str) -> Fault:
    def broken(reply: Reply) -> Reply:
        if fault == "garbled":  # with the events before it in one piece
            events = reply.body[: reply.body.index(b"\n\n", len(reply.body) // 2) + 2]
            return structs.replace(reply, body=events + b"data: {oops\n\n")
        made = (cut if fault == "cut" else hang)(len(reply.body) // 2)
        return made if isinstance(made, Reply) else made(reply)

    return broken


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("fault", ["cut", "hang", "garbled"])
@pytest.mark.parametrize("model", ["chat-then-claude", "claude-then-chat"])
def test_the_next_target_finishes_the_text(gateway: Rig, source: str, fault: str, model: str) -> None:
    first, second = ("openai-chat", "anthropic") if model.startswith("chat") else ("anthropic", "openai-chat")
    gateway.upstreams[first].faults.append(in_the_middle(fault))
    gateway.upstreams[second].faults.append(trickle(2000, 0.002))
    with gateway.client("k-metered") as client:
        output = client.ask(source, model, QUESTION, streams=True).output(source, streams=True)
    assert text_of(output.parts) == LONG
    assert output.stop_reason == "end"


def test_a_model_that_continues_a_prefix_gets_the_shown_text(gateway: Rig) -> None:
    gateway.upstreams["openai-chat"].faults.append(in_the_middle("cut"))
    claude = gateway.upstreams["anthropic"]

    def rest(request: ModelRequest) -> object:
        shown = text_of(request.messages[-1].parts)
        assert request.messages[-1].role == "assistant"
        assert LONG.startswith(shown)
        return text_answer(LONG[len(shown) :])

    claude.answer = rest  # type: ignore[assignment]
    with gateway.client("k-metered") as client:
        output = client.ask("openai-chat", "chat-then-prefill", QUESTION, streams=True).output(
            "openai-chat", streams=True
        )
    assert text_of(output.parts) == LONG
    assert len(claude.received) == 1


def test_a_different_answer_is_the_error_of_the_first_stream(gateway: Rig) -> None:
    gateway.upstreams["openai-chat"].faults.append(in_the_middle("cut"))
    gateway.upstreams["anthropic"].answer = lambda _: text_answer("Something else entirely, and long enough to differ.")
    with gateway.client("k-metered") as client:
        got = client.ask("openai-chat", "chat-then-claude", QUESTION, streams=True)
    assembler = got.assembler("openai-chat")
    assert assembler.error is not None
    assert "connection lost" in assembler.error.message
    assert LONG.startswith(text_of(assembler.output.parts))


def test_each_target_is_tried_until_one_has_the_same_text(gateway: Rig) -> None:
    gateway.upstreams["openai-chat"].faults.append(in_the_middle("cut"))
    gateway.upstreams["gemini"].answer = lambda _: text_answer("Something else entirely, and long enough to differ.")
    with gateway.client("k-metered") as client:
        output = client.ask("anthropic", "three", QUESTION, streams=True).output("anthropic", streams=True)
    assert text_of(output.parts) == LONG
    assert len(gateway.upstreams["openai-responses"].received) == 1


def test_attempts_and_reasons_are_recorded(gateway: Rig) -> None:
    gateway.upstreams["openai-chat"].faults.append(in_the_middle("cut"))
    with gateway.client("k-metered") as client:
        client.ask("openai-chat", "chat-then-claude", QUESTION, streams=True)
        record = client.get("/status", accept="application/json").json["requests"][0]
    first, second = record["attempts"]
    assert "connection lost" in first["error"]
    assert not second.get("error")
    (fallback,) = record["fallbacks"]
    assert fallback.startswith("openai-chat/gpt-4o to anthropic/claude-opus-4-7: stream_cut")


def test_losses_of_the_stream_that_continues_are_recorded(gateway: Rig) -> None:
    gateway.upstreams["openai-chat"].faults.append(in_the_middle("cut"))
    stopped = structs.replace(text_answer(LONG), stop_reason="stop_sequence", stop_sequence="字")
    gateway.upstreams["anthropic"].answer = lambda _: stopped
    with gateway.client("k-metered") as client:
        client.ask("openai-chat", "chat-then-claude", QUESTION, streams=True)
        record = client.get("/status", accept="application/json").json["requests"][0]
    assert any("stop_sequence" in loss for loss in record["losses"])


@pytest.mark.parametrize("source", ["openai-chat", "anthropic"])
def test_another_host_of_the_same_model_gets_the_whole_request(source: str) -> None:
    key = KEY.format("openai-chat")
    with StrictUpstream("openai-chat", [key]) as first, StrictUpstream("openai-chat", [key]) as second:
        first.answer = second.answer = lambda _: text_answer(LONG)
        first.faults.append(in_the_middle("cut"))
        config = Config(
            gateway=structs.replace(FAST, continue_streams=True),
            providers=(provider_of("first", first), provider_of("second", second)),
            models=(ModelSettings(name="m", targets=("first/gpt-4o", "second/gpt-4o")),),
        )
        with serving(config, ENVIRONMENT) as (port, _), closing(Client(port)) as client:
            output = client.ask(source, "m", QUESTION, streams=True).output(source, streams=True)
    assert text_of(output.parts) == LONG
