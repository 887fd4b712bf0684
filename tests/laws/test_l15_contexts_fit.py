"""L15: with a limit, no request of a turn of any length exceeds it by our count, and the turn ends.

What is not shown is reported and can be read again. Generated in all formats, with providers that count otherwise than we do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from antiphon.context import CharacterEstimate, Compaction, TokenLedger, render_live_context
from antiphon.conversation import Agent, Conversation, RunLimits, RunResult, ToolLoop
from antiphon.conversation.compaction.recall import recall
from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    ContextEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ShortenedResultsEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import Text, TokenUsage, ToolCallRequest, text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.providers.scripted import FunctionModel
from antiphon.tools import ToolContext, tool
from antiphon.tools.hooks import Hook
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput, ProviderError
from support.examples import scaled

MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}
WORDS = ["depot", "code", "invoice", "4711", "harbour", "crane", "ledger", "table", "storm", "report"]


def prose(size: int, seed: int) -> str:
    return " ".join(WORDS[(seed + index * 7) % len(WORDS)] + str(seed * index % 97) for index in range(size))


class Round(Struct, frozen=True):
    """One round of a turn: the words of the answer, and of the result of each of its calls."""

    said: int
    results: tuple[int, ...]


rounds_of_turn = st.lists(
    st.builds(
        Round,
        st.integers(0, 60),
        st.lists(st.one_of(st.integers(0, 50), st.integers(100, 2_000)), min_size=1, max_size=3).map(tuple),
    ),
    max_size=20,
)


class Provider:
    """Plays a turn, renders every request as its format would send it, and counts it: `factor` times what we count."""

    def __init__(self, rounds: Sequence[Round], factor: float, wire_format: str, summaries: str, window: int) -> None:
        self.rounds = rounds
        self.factor = factor
        self.target = Origin("provider", wire_format, MODELS[wire_format])
        self.summaries = summaries
        self.window = window
        self.sizes: list[int] = []
        self.refused: list[int] = []
        self.played = 0
        self._ledger = TokenLedger(CharacterEstimate())

    def count(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> int:
        tools = [ModelInputEntry.of(str(one)) for one in options.tools]
        screens = [ModelInputEntry.of(entry.live_screen) for entry in context if entry.live_screen]
        return self.tokens(*context, *tools, *screens)

    def tokens(self, *entries: ContextEntry) -> int:
        return int(sum(map(self._ledger.tokens_of, entries)) * self.factor)

    def answer(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> ModelOutput | ProviderError:
        rendered = render_call(context, options, self.target)
        assert not rendered.repairs, rendered.repairs
        size = self.count(context, options)
        if size > self.window:
            self.refused.append(size)
            return ProviderError("prompt is too long", "context_length")
        self.sizes.append(size)
        if text_of(context[-1].content).startswith("The conversation has grown long."):
            if self.summaries == "fail":
                return ProviderError("busy", "overloaded")
            words = prose(4_000 if self.summaries == "long" else 80, self.played)
            return ModelOutput(parts=(Text(words),), usage=TokenUsage(size, 100))
        if self.played == len(self.rounds):
            return ModelOutput(parts=(Text("Done."),), usage=TokenUsage(size, 2))
        now, self.played = self.rounds[self.played], self.played + 1
        calls = [
            ToolCallRequest(
                "look", f"call_{self.played}_{index}", f'{{"size": {words}, "seed": {self.played + index}}}'
            )
            for index, words in enumerate(now.results)
        ]
        said = (Text(prose(now.said, self.played)),) if now.said else ()
        written = self.tokens(ModelOutputEntry((*said, *calls)))
        return ModelOutput(parts=(*said, *calls), usage=TokenUsage(size, written))


@tool(effect="read")
async def look(size: int, seed: int) -> str:
    "Look at something."
    return prose(size, seed)


def play(
    provider: Provider, limit: int | None, question: str = "Visit all depots."
) -> tuple[Conversation, RunResult[Any]]:
    chat = Conversation(
        FunctionModel(provider.answer),
        tools=[look],
        token_limit=limit,
        compaction=Compaction(),
        counter=CharacterEstimate(),
        system="Be thorough.",
    )
    loop = ToolLoop(chat, limits=RunLimits(max_rounds=10_000, max_repeats=10_000))
    finished = asyncio.run(asyncio.wait_for(loop.run(question), 120))
    return chat, finished


def check_nothing_is_lost(chat: Conversation) -> None:
    """Shown and left out, together, are everything; and what is left out or shortened can be read again in full."""
    context = render_live_context(chat.history.snapshot())
    shown: dict[int, Any] = {entry.sequence_number: entry for entry in context if isinstance(entry, HistoryEntry)}
    left_out = {number for omitted in context.left_out for number in omitted.sequence_numbers}
    messages: dict[int, Any] = {
        entry.sequence_number: entry
        for entry in chat.history.effective
        if isinstance(entry, ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry) and entry.content
    }
    assert sorted([*shown, *left_out]) == sorted(messages)
    tools = ToolContext(log=chat.history)
    for number, entry in messages.items():
        if isinstance(entry, ToolCallResultsEntry) and shown.get(number) is not entry:
            for index, result in enumerate(entry.results):
                assert recalled(tools, number, index) == (result.result_markdown or "(nothing)")


def recalled(context: ToolContext, entry: int, call: int) -> str:
    text, start = "", 0
    while True:
        part = recall.function(context, entry=entry, call=call, start=start)
        body, _, more = (
            part.rpartition("\n[") if part.endswith("]") and " more characters: start=" in part else (part, "", "")
        )
        text += body
        if not more:
            return text
        start = int(more.rpartition("=")[2].rstrip("]"))


@pytest.mark.parametrize("wire_format", FORMATS)
@given(
    rounds=rounds_of_turn,
    limit=st.integers(1_500, 12_000),
    factor=st.sampled_from([0.5, 1.0, 1.3, 2.0, 3.0]),
    summaries=st.sampled_from(["short", "long", "fail"]),
)
@settings(max_examples=scaled(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_request_exceeds_the_limit_and_the_turn_ends(
    wire_format: str, rounds: list[Round], limit: int, factor: float, summaries: str
) -> None:
    provider = Provider(rounds, factor, wire_format, summaries, window=10**9)
    chat, finished = play(provider, limit)
    assert max(provider.sizes) <= limit
    if finished.reason == "context_limit":
        assert "largest piece is" in finished.text
    else:
        assert finished.reason == "answered"
        assert provider.played == len(rounds)
    check_nothing_is_lost(chat)


@pytest.mark.parametrize("rounds", [200, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_long_turn_is_answered(rounds: int) -> None:
    turn = [Round(12, (600,) if number % 10 else (3_000,)) for number in range(rounds)]
    provider = Provider(turn, 1.4, "anthropic", "short", window=10**9)
    chat, finished = play(provider, 12_000)
    assert (finished.reason, provider.played) == ("answered", rounds)
    assert max(provider.sizes) <= 12_000
    check_nothing_is_lost(chat)
    kinds = {type(entry) for entry in chat.history.entries}
    assert {CompactionEntry, ShortenedResultsEntry} <= kinds
    assert chat.by_role("user")[0] == next(
        entry for entry in chat.history.entries if isinstance(entry, ModelInputEntry)
    )


@given(rounds=rounds_of_turn, window=st.integers(3_000, 12_000), is_known=st.booleans())
@settings(max_examples=scaled(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_window_that_is_smaller_than_it_seemed_is_learned(rounds: list[Round], window: int, is_known: bool) -> None:
    """The provider refuses what is too long: the request is made smaller and sent once more, and never so large again."""
    provider = Provider(rounds, 1.0, "openai-chat", "short", window)
    chat = Conversation(
        FunctionModel(provider.answer),
        tools=[look],
        token_limit=50_000 if is_known else None,
        compaction="auto",
        counter=CharacterEstimate(),
    )
    loop = ToolLoop(chat, limits=RunLimits(max_rounds=10_000, max_repeats=10_000))
    finished = asyncio.run(asyncio.wait_for(loop.run("Visit all depots."), 120))
    assert finished.reason == "answered"
    assert provider.refused == sorted(set(provider.refused), reverse=True), (
        "none of a size that was refused is sent again"
    )
    assert len(provider.refused) <= 6


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("words", [2_000, 20_000, 200_000])
def test_results_many_times_the_window_are_made_to_fit(words: int, *, is_known: bool) -> None:
    """The window is learned from refusals, however much too long the first request is."""
    provider = Provider([Round(5, (20,)), Round(5, (words, 15))], 1.0, "openai-chat", "short", 3_000)
    chat, finished = play(provider, 50_000 if is_known else None)
    assert finished.reason == "answered"
    check_nothing_is_lost(chat)


@pytest.mark.parametrize("factor", [3.5, 5.0, 8.0])
def test_a_provider_that_counts_many_times_what_we_do_ends_no_turn(factor: float) -> None:
    provider = Provider([Round(12, (200,))] * 60, factor, "openai-chat", "short", window=10**9)
    chat, finished = play(provider, 20_000)
    assert (finished.reason, provider.played) == ("answered", 60)
    check_nothing_is_lost(chat)


@pytest.mark.parametrize(("words", "largest"), [(5, "the instruction and the tools"), (4_000, "entry 2 (model_input)")])
def test_the_entry_that_is_too_large_is_named(words: int, largest: str) -> None:
    provider = Provider([], 1.0, "openai-chat", "short", window=10**9)
    _, finished = play(provider, 300, "x " * words)
    assert finished.reason == "context_limit"
    assert f"The largest piece is {largest}" in finished.text
    assert provider.sizes == []


def test_a_turn_that_is_killed_at_any_entry_continues_within_the_limit() -> None:
    """Whatever the log had when the process died, also in the middle of a compaction: another one continues from there."""
    turn = [Round(8, (500,)) for _ in range(12)]
    chat, _ = play(Provider(turn, 1.3, "anthropic", "short", window=10**9), 5_000)
    entries = list(chat.history.entries)
    first = next(n for n, entry in enumerate(entries) if isinstance(entry, CompactionEntry | ShortenedResultsEntry))
    for length in range(first - 1, len(entries)):
        go_on(AgentHistory(entries[:length]))


def go_on(history: AgentHistory, *question: str, rounds: int = 1) -> None:
    """Continue a history in a conversation of its own: it ends with an answer, within the limit, and nothing is lost."""
    provider = Provider([Round(8, (500,))] * rounds, 1.3, "anthropic", "short", window=10**9)
    chat = Conversation(
        FunctionModel(provider.answer),
        tools=[look],
        history=history,
        token_limit=5_000,
        compaction=Compaction(),
        counter=CharacterEstimate(),
    )
    limits = RunLimits(max_rounds=100, max_repeats=100)
    finished = asyncio.run(asyncio.wait_for(ToolLoop(chat, limits=limits).run(*question), 60))
    assert finished.reason == "answered"
    assert max(provider.sizes, default=0) <= 5_000
    check_nothing_is_lost(chat)


messages = st.sampled_from([(), ("Go on.",)])


@cache
def compacted_entries() -> tuple[HistoryEntry, ...]:
    """A turn of 40 rounds at a limit of 5,000, with segments and shortened results."""
    turn = [Round(8, (500, 40) if number % 3 else (900,)) for number in range(40)]
    chat, finished = play(Provider(turn, 1.3, "anthropic", "short", window=10**9), 5_000)
    assert finished.reason == "answered"
    return tuple(chat.history.entries)


@given(data=st.data(), rounds=st.integers(1, 12))
@settings(max_examples=scaled(6), deadline=None)
def test_a_rollback_over_a_compaction_and_back(data: st.DataObject, rounds: int) -> None:
    """Before the compaction its originals are there again, and another one may follow; after the way back, it is what it was."""
    history = AgentHistory(compacted_entries())
    end, seen = history.version, list(render_live_context(history.snapshot()))
    segments = [entry for entry in history.entries if isinstance(entry, CompactionEntry)]
    over = data.draw(st.sampled_from(segments))
    back = data.draw(st.integers(2, over.sequence_number - 1))
    history.rollback(back)
    assert list(render_live_context(history.snapshot())) == list(render_live_context(history.fork(back).snapshot()))
    assert over not in history.effective
    go_on(history, *data.draw(messages), rounds=rounds)
    history.rollback(end)
    assert list(render_live_context(history.snapshot())) == seen
    go_on(history, "And now?", rounds=rounds)


@given(data=st.data(), rounds=st.integers(1, 12))
@settings(max_examples=scaled(6), deadline=None)
def test_a_fork_inside_of_a_segment(data: st.DataObject, rounds: int) -> None:
    """The fork has the originals up to there and not the summary that came later; where it began, nothing changes."""
    history = AgentHistory(compacted_entries())
    seen = list(render_live_context(history.snapshot()))
    segment = data.draw(st.sampled_from([entry for entry in history.entries if isinstance(entry, CompactionEntry)]))
    fork = history.fork(data.draw(st.integers(max(2, segment.since), segment.up_to)))
    assert segment not in fork.effective
    go_on(fork, *data.draw(messages), rounds=rounds)
    assert list(render_live_context(history.snapshot())) == seen


@pytest.mark.parametrize("by", ["assignment", "hand-off"])
@given(
    before=st.integers(1, 12),
    after=st.integers(0, 12),
    words=st.integers(100, 3_000),
    small=st.sampled_from(["gpt-4", "gpt-3.5-turbo"]),
    factor=st.sampled_from([1.0, 1.4]),
)
@settings(max_examples=scaled(5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_switch_to_a_smaller_window_in_the_middle_of_a_run(
    by: str, before: int, after: int, words: int, small: str, factor: float
) -> None:
    """By a tool that sets another model, or by an agent that hands off to one with its own."""
    turn = [Round(8, (words,)) for _ in range(before + after)]
    provider = Provider(turn, factor, "openai-chat", "short", window=10**9)
    called: list[tuple[str, int]] = []

    def model(name: str) -> FunctionModel:
        def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ModelOutput | ProviderError:
            if by == "hand-off" and name == "gpt-4o" and provider.played == before:
                called.append((name, provider.count(context, options)))
                over = ToolCallRequest("hand_off_to_small", "over", "{}")
                return ModelOutput(parts=(over,), usage=TokenUsage(called[-1][1], 20))
            made = provider.answer(context, options)
            called.append((name, provider.sizes[-1]))
            return made

        return FunctionModel(answer, name=name)

    models = {name: model(name) for name in ("gpt-4o", small)}

    @tool(effect="read", name="look")
    async def look_and_switch(size: int, seed: int) -> str:
        "Look at something."
        if by == "assignment" and provider.played == before:
            chat.model = models[small]
        return prose(size, seed)

    chat = Conversation(
        models["gpt-4o"], tools=[look_and_switch], compaction=Compaction(), counter=CharacterEstimate(), system="Look."
    )
    limits = RunLimits(max_rounds=100, max_repeats=100)
    if by == "assignment":
        loop = ToolLoop(chat, limits=limits)
    else:
        second = Agent("small", "Look at the rest.", model=models[small], limits=limits)
        loop = Agent("large", "Look.", model=models["gpt-4o"], hand_offs=[second], limits=limits).loop(chat)
    finished = asyncio.run(asyncio.wait_for(loop.run("Visit all depots."), 60))
    assert (finished.reason, provider.played) == ("answered", before + after)
    assert {name for name, _ in called} == {"gpt-4o", small}
    for name, size in called:
        assert size <= (chat.limit_of(models[name]) or 0), name
    check_nothing_is_lost(chat)


def test_a_masking_hook_masks_what_is_summarised() -> None:
    class Mask(Hook):
        async def before_model(self, call: Any) -> None:
            call.context = [
                ModelInputEntry.of("[masked]") if "secret" in text_of(entry.content) else entry
                for entry in call.context
            ]

    seen: list[str] = []
    provider = Provider([Round(8, (500,)) for _ in range(20)], 1.0, "anthropic", "short", window=10**9)

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ModelOutput | ProviderError:
        seen.append("\n".join(text_of(entry.content) for entry in context))
        return provider.answer(context, options)

    chat = Conversation(
        FunctionModel(answer),
        tools=[look],
        token_limit=4_000,
        compaction="auto",
        counter=CharacterEstimate(),
        hooks=[Mask()],
    )
    asyncio.run(ToolLoop(chat, limits=RunLimits(max_rounds=100)).run("The secret is SECRET-99."))
    assert any("The conversation has grown long." in text for text in seen)
    assert not any("SECRET-99" in text for text in seen)
