"""A conversation of the library on a tape: the variables of the fixture lead its providers to the gateway of the tape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon as ap
from antiphon.parts import ToolCallResult
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_devtools.cassettes import TapedGateway, use_tape
from antiphon_gateway.config.settings import Config, ModelSettings
from gateway.rig import ENVIRONMENT, KEY, provider_of
from gateway.strict_upstream import USAGE, StrictUpstream, text_answer


@ap.tool(effect="read")
async def weather(city: str) -> str:
    "Current weather in a city."
    return f"Rain in {city}"


def look_then_answer(request: ModelRequest) -> ModelOutput:
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolCallResult)]
    if results:
        return text_answer("It rains.")
    call = ap.ToolCallRequest("weather", "call_1", '{"city":"Oslo"}')
    return ModelOutput(parts=(call,), stop_reason="tool_calls", id="a", model="m", usage=USAGE)


@pytest.fixture(scope="module", params=[("openai-chat", "openai/gpt-4o"), ("anthropic", "anthropic/claude-sonnet-4-5")])
def upstream(request: pytest.FixtureRequest) -> Iterator[tuple[StrictUpstream, str]]:
    format_name, model = request.param
    with StrictUpstream(format_name, [KEY.format(format_name)]) as strict:
        strict.answer = look_then_answer
        yield strict, model


def talk(tape: TapedGateway, model: str, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as variables:
        for name, value in tape.environment.items():
            variables.setenv(name, value)
        chat = ap.Conversation(model, tools=[weather])
        return ap.ToolLoop(chat).run_sync("Is it raining in Oslo?").text


def test_a_conversation_with_tools_is_recorded_and_played(
    upstream: tuple[StrictUpstream, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict, model = upstream
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    config = Config(
        providers=(provider_of("own", strict),),
        models=(ModelSettings(name=model.partition("/")[2], targets=(f"own/{model.partition('/')[2]}",)),),
    )
    with use_tape(tmp_path / "t.db", config=config) as tape:
        assert talk(tape, model, monkeypatch) == "It rains."
    asked = len(strict.received)
    assert asked == 2
    with use_tape(tmp_path / "t.db", mode="replay") as tape:
        assert talk(tape, model, monkeypatch) == "It rains."
        assert (tape.misses, tape.unplayed) == ([], [])
    assert len(strict.received) == asked
