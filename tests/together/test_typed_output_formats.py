"""Typed output over real sockets, with strict stand-ins for the providers of all formats: by structured output and by a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.conversation import PartialOutput
from antiphon.conversation.output.typed_output import ANSWER_TOOL
from antiphon.providers import HttpProviderClient
from antiphon.wire import FORMATS, ModelOutput, ToolDefinition
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable
from antiphon.wire.request import ModelRequest
from gateway.rig import MODELS
from gateway.strict_upstream import StrictUpstream
from providers.sample_answers import PRESET_OF

pytestmark = pytest.mark.pairwise
KEY = "sk-test-0123456789"


class Weather(msgspec.Struct):
    city: str
    degrees: int
    tags: list[str] = []


@ap.tool(effect="read")
def look(city: str) -> str:
    """Look at the sky."""
    return f"Clouds over {city}."


class Provider:
    """A stand-in that answers with `answers`, one after the other, and remembers the requests it read."""

    def __init__(self, upstream: StrictUpstream, is_native: bool) -> None:
        self.upstream = upstream
        self.is_native = is_native
        self.requests: list[ModelRequest] = []
        self.answers: list[Any] = []
        upstream.answer = self._answer

    def client(self) -> HttpProviderClient:
        rule = CapabilityOverride(model="*", structured_output=self.is_native)
        return HttpProviderClient(
            PRESET_OF[self.upstream.format],
            base_url=self.upstream.base_url,
            keys=[KEY],
            capabilities=CapabilityTable([rule]),
        )

    def _answer(self, request: ModelRequest) -> ModelOutput:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, ap.ToolCallRequest):
            return output(answer, "tool_calls", request.model)
        if self.is_native:
            return output(ap.Text(msgspec.json.encode(answer).decode()), "end", request.model)
        arguments = msgspec.json.encode({"answer": answer}).decode()
        return output(
            ap.ToolCallRequest(ANSWER_TOOL, f"call_{len(self.requests)}", arguments), "tool_calls", request.model
        )


def output(part: Any, stop_reason: Any, model: str) -> ModelOutput:
    return ModelOutput(parts=(part,), stop_reason=stop_reason, id="a1", model=model, usage=ap.TokenUsage(5, 5))


@pytest.fixture(params=FORMATS)
def upstream(request: pytest.FixtureRequest) -> Iterator[StrictUpstream]:
    if request.param not in MODELS:
        pytest.skip(f"there is no stand-in for {request.param}")
    with StrictUpstream(request.param, [KEY]) as upstream:
        yield upstream


@pytest.fixture(params=["structured output", "tool"])
def is_native(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "structured output")


@pytest.fixture(params=["whole", "streamed"])
def provider(upstream: StrictUpstream, is_native: bool, request: pytest.FixtureRequest) -> Provider:
    provider = Provider(upstream, is_native)
    if request.param == "whole":
        answered = upstream.spoken
        upstream.spoken = lambda output, *, streams, has_usage=True: answered(output, streams=False)  # type: ignore[method-assign]
    else:
        upstream.piece = 7
    return provider


def test_the_answer_is_a_checked_value(provider: Provider) -> None:
    provider.answers = [ap.ToolCallRequest("look", "call_0", '{"city": "Oslo"}'), {"city": "Oslo", "degrees": 7}]
    model = MODELS[provider.upstream.format]
    chat = ap.Conversation(model, provider=provider.client(), tools=[look])
    result = ap.ToolLoop(chat).run_sync("How is it in Oslo?", output=Weather)
    assert (result.output, result.rounds) == (Weather("Oslo", 7), 2)
    assert provider.upstream.refused == []
    first = provider.requests[0]
    assert (first.output_format is not None) is provider.is_native
    names = [definition.name for definition in first.tools if isinstance(definition, ToolDefinition)]
    assert names == (["look"] if provider.is_native else ["look", ANSWER_TOOL])


def test_an_answer_that_does_not_fit_is_requested_again(provider: Provider) -> None:
    provider.answers = [{"city": "Oslo", "degrees": "warm"}, {"city": "Oslo", "degrees": 7}]
    chat = ap.Conversation(MODELS[provider.upstream.format], provider=provider.client())
    result = ap.ToolLoop(chat).run_sync("How is it in Oslo?", output=Weather)
    assert result.output == Weather("Oslo", 7)
    assert len(provider.requests) == 2
    assert "degrees" in str(provider.requests[1].messages[-1].parts)
    assert provider.upstream.refused == []


def test_a_stream_ends_with_the_value(provider: Provider) -> None:
    provider.answers = [{"city": "Oslo", "degrees": 7, "tags": ["cold", "wet"]}]

    async def events() -> list[ap.LoopEvent]:
        chat = ap.Conversation(MODELS[provider.upstream.format], provider=provider.client())
        return [event async for event in ap.ToolLoop(chat).stream("Go.", output=Weather)]

    seen = asyncio.run(events())
    partial = [event.value for event in seen if isinstance(event, PartialOutput)]
    assert partial[-1] == {"city": "Oslo", "degrees": 7, "tags": ["cold", "wet"]}
    assert isinstance(seen[-1], ap.LoopFinished)
    assert seen[-1].output == Weather("Oslo", 7, ["cold", "wet"])
