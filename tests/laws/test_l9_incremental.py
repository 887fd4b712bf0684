"""L9 put to use: a body joined from kept bytes is the body written whole, message after message, in every format."""

from __future__ import annotations

from itertools import islice

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.repair import repair
from antiphon.wire import FORMATS, Message, ModelRequest, formats
from antiphon.wire.request import PromptCaching
from antiphon.wire.request_writer import RequestEncoder
from support.corpus import accepted_requests, client_requests, in_collection
from support.examples import scaled

texts = st.sampled_from(["hi", "bye ", " ", "", "\n", "yo"])
MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_a_joined_body_is_the_whole_body(source: str, target: str) -> None:
    wire = formats[target]
    long = [body for body in [*accepted_requests(source), *client_requests(source)] if has_rounds(source, body)]
    assert len(long) > in_collection(20)
    for body in islice(long, 120):
        request = formats[source].read_request(body)
        fixed, _ = repair(msgspec.structs.replace(request, model=MODELS[target]), target)
        growing = RequestEncoder(wire)
        for end in range(1, len(fixed.messages) + 1):
            shorter = msgspec.structs.replace(fixed, messages=fixed.messages[:end])
            joined = growing.write(shorter)
            whole, losses = wire.write_request(shorter)
            assert msgspec.json.decode(joined) == msgspec.json.decode(msgspec.json.encode(whole))
            assert sorted(map(str, growing.losses)) == sorted(map(str, losses))


@pytest.mark.parametrize("source", ["openai-chat", "anthropic"])
def test_cache_breakpoints_of_a_joined_body_are_those_of_the_whole_body(source: str) -> None:
    """Breakpoints move with every request, and the kept bytes have none."""
    wire = formats["anthropic"]
    long = [body for body in [*accepted_requests(source), *client_requests(source)] if has_rounds(source, body)]
    for body in islice(long, 60):
        request = formats[source].read_request(body)
        fixed, _ = repair(
            msgspec.structs.replace(request, model=MODELS["anthropic"], cache_prompt=PromptCaching("always")),
            "anthropic",
        )
        growing = RequestEncoder(wire)
        for end in range(1, len(fixed.messages) + 1):
            shorter = msgspec.structs.replace(fixed, messages=fixed.messages[:end])
            assert msgspec.json.decode(growing.write(shorter)) == wire.write_request(shorter).body


def has_rounds(source: str, body: dict[str, object]) -> bool:
    listed = next((body[key] for key in ("messages", "input", "contents") if key in body), None)
    return isinstance(listed, list) and len(listed) > 3


turns = st.lists(
    st.one_of(
        st.builds(Message, st.sampled_from(["user", "assistant", "system"]), texts.map(lambda text: (Text(text),))),
        st.integers(0, 10**9).map(lambda number: ToolCallRequest("weather", f"call_{number}", "{}")),
    ),
    max_size=10,
)


@pytest.mark.parametrize("target", FORMATS)
@given(turns=turns)
@settings(max_examples=scaled(25))
def test_blank_turns_and_empty_answers_change_nothing(target: str, turns: list[Message | ToolCallRequest]) -> None:
    messages: list[Message] = []
    for turn in turns:
        if isinstance(turn, Message):
            messages.append(turn)
        else:
            messages += [Message("assistant", (turn,)), Message("tool", (ToolCallResult.of(turn, "rain"),))]
    fixed, _ = repair(
        ModelRequest(model=MODELS[target], messages=tuple(messages), cache_prompt=PromptCaching("auto")), target
    )
    growing = RequestEncoder(formats[target])
    for end in range(len(fixed.messages) + 1):
        shorter = msgspec.structs.replace(fixed, messages=fixed.messages[:end])
        joined = growing.write(shorter)
        assert msgspec.json.decode(joined) == formats[target].write_request(shorter).body


def test_another_conversation_is_not_mixed_up() -> None:
    growing = RequestEncoder(formats["openai-chat"])
    for name in ("first", "second"):
        turns = [
            {"role": "user", "content": f"{name} question"},
            {"role": "assistant", "content": f"{name} answer"},
        ] * 3
        request = formats["openai-chat"].read_request({"model": "m", "messages": turns})
        assert msgspec.json.decode(growing.write(request))["messages"] == turns
