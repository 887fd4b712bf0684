"""Requests of a conversation with Claude read everything that the request before them had, round after round."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import pytest

import antiphon as ap
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_devtools.cache_doctor import CacheDoctor, CacheReport, PromptOutline, outline_prompt
from gateway.strict_upstream import StrictUpstream

from .bodies import RULES

ROUNDS = 30
clock = count()


@ap.tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: rain, 7 °C, and tomorrow the same."


@pytest.fixture(scope="module")
def upstream() -> Iterator[StrictUpstream]:
    with StrictUpstream("anthropic", ["sk-test"]) as one:
        yield one


def answers(calls: int) -> Any:
    """A model that calls a tool `calls` times in each of thirty rounds, and then answers."""

    def answer(request: ModelRequest) -> ModelOutput:
        done = sum(message.role == "assistant" for message in request.messages)
        usage = ap.TokenUsage(prompt_tokens=9, completion_tokens=3)
        if done == ROUNDS:
            return ModelOutput(parts=(ap.Text("Rain everywhere."),), stop_reason="end", model="m", usage=usage)
        parts = tuple(
            ap.ToolCallRequest("weather", f"toolu_{done}_{number}", f'{{"city":"Town {done}.{number}"}}')
            for number in range(calls)
        )
        signed = ap.Thinking("Which town next?", native={"anthropic": {"signature": "c2lnbmVk"}})
        first = ap.Text("I look.") if request.reasoning is None else signed
        return ModelOutput(parts=(first, *parts), stop_reason="tool_calls", id=f"msg_{done}", model="m", usage=usage)

    return answer


def run(upstream: StrictUpstream, calls: int = 1, settings: Any = None, **options: Any) -> list[Any]:
    """The bodies of a turn with thirty rounds of calls."""
    upstream.clear()
    upstream.answer = answers(calls)
    client = HttpProviderClient("anthropic", base_url=upstream.base_url, keys=["sk-test"])
    chat = ap.Conversation(
        "claude-sonnet-4-5", provider=client, tools=[weather], system=RULES, settings=settings, **options
    )
    if options.get("live_screen"):
        chat.history.set_memory_notebook("Lives in Oslo.")
    loop = ap.ToolLoop(chat, max_rounds=ROUNDS + 1)
    assert loop.run_sync("Is it raining?").text == "Rain everywhere."
    assert upstream.refused == []
    assert len(upstream.bodies) == ROUNDS + 1
    return upstream.bodies


def examined(bodies: list[Any]) -> list[tuple[PromptOutline, CacheReport]]:
    doctor = CacheDoctor(is_one_conversation=True)
    outlines = [outline_prompt(body, "anthropic", keeps_text=True) for body in bodies]
    return [(outline, doctor.examine(outline, at=float(second))) for second, outline in enumerate(outlines)]


@pytest.mark.parametrize(
    ("calls", "settings"),
    [(1, None), (12, None), (1, {"reasoning": "low"}), (1, {"cache_prompt": "1h"})],
    ids=["one call", "more blocks than the provider looks back", "reasoning", "an hour"],
)
def test_every_round_reads_all_that_was_sent_before(upstream: StrictUpstream, calls: int, settings: Any) -> None:
    found = examined(run(upstream, calls, settings))
    assert [report.verdict for _, report in found] == ["first", *["hit"] * ROUNDS]
    for (before, _), (_, report) in pairwise(found):
        assert report.predicted_tokens == before.tokens
        assert report.lost_tokens == 0


def test_a_live_screen_is_not_stored_and_costs_no_hit(upstream: StrictUpstream) -> None:
    bodies = run(upstream, live_screen=lambda: f"Second {next(clock)} of the day.")
    assert all(str(body["messages"][-1]["content"][-1]["text"]).endswith("of the day.") for body in bodies)
    found = examined(bodies)
    assert [report.verdict for _, report in found] == ["first", *["hit"] * ROUNDS]
    for (before, _), (_, report) in pairwise(found):
        assert report.predicted_tokens == before.tokens - before.segments[-1].tokens


def test_nothing_is_marked_with_cache_prompt_off(upstream: StrictUpstream) -> None:
    bodies = run(upstream, settings={"cache_prompt": False})
    assert {report.verdict for _, report in examined(bodies)} == {"no_breakpoints"}
    assert "cache_control" not in str(bodies)


def test_a_question_that_nothing_follows_is_not_stored(upstream: StrictUpstream) -> None:
    upstream.clear()
    client = HttpProviderClient("anthropic", base_url=upstream.base_url, keys=["sk-test"])
    chat = ap.Conversation("claude-sonnet-4-5", provider=client, system=RULES)
    for question in ("One?", "Two?", "Three?"):
        ap.ToolLoop(chat).run_sync(question)
    assert ["cache_control" in str(body) for body in upstream.bodies] == [False, True, True]
    assert [report.verdict for _, report in examined(upstream.bodies)] == ["no_breakpoints", "first", "hit"]
