"""Compaction of a conversation: what is kept, what a summary replaces, who writes it, and how to read the rest again."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.context import CharacterEstimate, Compaction, TokenLedger
from antiphon.context.model_usage import model_calls_of
from antiphon.conversation import Conversation, ToolLoop
from antiphon.conversation.compaction import compact
from antiphon.errors import ContextError, ContextLimitReached, ConversationError
from antiphon.history import CompactionEntry, ContextEntry, HistoryEntry, ModelInputEntry, ShortenedResultsEntry
from antiphon.parts import Text, ToolCallRequest, text_of
from antiphon.prices import PriceOverride, PriceTable
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import tool
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon_chat.shared.spending import spending_of


@tool(effect="read")
async def weather(city: str) -> str:
    "Current weather."
    return f"Rain in {city}: " + f"{city} 4711 " * 250


def is_summary(context: Sequence[ContextEntry]) -> bool:
    return text_of(context[-1].content).startswith("The conversation has grown long.")


class Traveller:
    """Asks for the weather of `cities` cities, one after the other, and writes summaries when asked."""

    def __init__(self, cities: int, *summaries: str | ProviderError) -> None:
        self.cities = cities
        self.summaries = list(summaries)
        self.asked: list[tuple[list[ContextEntry], ProviderCallOptions]] = []
        self.contexts: list[list[ContextEntry]] = []
        self.visited = 0

    def __call__(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        if is_summary(context):
            self.asked.append((list(context), options))
            return self.summaries.pop(0) if self.summaries else "They asked for the weather."
        self.contexts.append(list(context))
        if self.visited == self.cities:
            return "It rains everywhere."
        self.visited += 1
        return call("weather", city=f"city{self.visited}")


def travel(traveller: Traveller, **options: Any) -> Conversation:
    settings: dict[str, Any] = {"token_limit": 6_000, "compaction": "auto", **options}
    chat = Conversation(FunctionModel(traveller), tools=[weather], system="Be brief.", **settings)
    result = asyncio.run(ToolLoop(chat, limits=ap.RunLimits(max_rounds=1_000)).run("Where does it rain?"))
    assert result.text == "It rains everywhere."
    return chat


def test_old_results_become_notes_and_the_model_reads_them_again() -> None:
    traveller = Traveller(12)
    chat = travel(traveller)
    (first, *_) = [entry for entry in chat.history.entries if isinstance(entry, ShortenedResultsEntry)]
    assert first.max_chars == 0
    shown = "\n".join(
        text_of(part.content) for e in chat.context() for part in e.content if isinstance(part, ap.ToolCallResult)
    )
    assert "characters of weather left out; recall(entry=5) shows them]" in shown
    recall = chat.registry.get("recall")
    assert recall is not None
    request = ToolCallRequest("recall", "again", '{"entry": 5}')
    chat.history.append(ap.ModelOutputEntry.of(request))
    (result,) = asyncio.run(chat.execute_tool_calls([request]))
    assert result.result_markdown.startswith("Rain in city1:")
    found = ToolCallRequest("recall", "search", '{"search": "city7 rain"}')
    chat.history.append(ap.ModelOutputEntry.of(found))
    (hits,) = asyncio.run(chat.execute_tool_calls([found]))
    assert "Rain in city7" in hits.result_markdown


def test_a_summary_is_asked_for_on_the_cached_beginning_and_stands_for_whole_rounds() -> None:
    traveller = Traveller(60)
    chat = travel(traveller)
    segments = [entry for entry in chat.history.entries if isinstance(entry, CompactionEntry)]
    assert segments
    assert all(segment.summary == "They asked for the weather." for segment in segments)
    context, options = traveller.asked[0]
    assert [tool.name for tool in options.tools] == ["weather", "recall"]
    beginning = context[:-1]
    assert beginning in [sent[: len(beginning)] for sent in traveller.contexts], "the beginning of what was sent before"
    question = next(entry for entry in chat.history.entries if isinstance(entry, ModelInputEntry))
    assert chat.context()[1] == question, "the last message of a person stays"
    assert "[Summary of the entries" in text_of(chat.context()[2].content)


@pytest.mark.parametrize("problem", ["", ProviderError("busy", "overloaded")])
def test_results_are_cleared_and_then_entries_left_out_if_no_model_writes_a_summary(
    problem: str | ProviderError,
) -> None:
    chat = travel(Traveller(60, *[problem] * 100))
    kinds = [type(entry) for entry in chat.history.entries]
    assert ShortenedResultsEntry in kinds
    assert CompactionEntry not in kinds
    chat = travel(Traveller(200, *[problem] * 400), token_limit=4_000)
    segments = [entry for entry in chat.history.entries if isinstance(entry, CompactionEntry)]
    assert {segment.summary for segment in segments} == {""}
    assert "are left out]" in text_of(chat.context()[2].content)
    assert len(chat.context()) < len(chat.history.entries) // 2


# What is never taken out.


def test_pinned_entries_and_results_of_tools_that_keep_them_stay() -> None:
    @tool(effect="read", keep_result=True)
    async def plan() -> str:
        "The plan."
        return "The plan: " + "first this, then that. " * 20

    traveller = Traveller(60)
    looked: list[str] = []

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        if not looked:
            looked.append("plan")
            return call("plan")
        return traveller(context, options)

    chat = Conversation(FunctionModel(answer), tools=[weather, plan], token_limit=6_000, compaction="auto")
    chat.add("The budget is 400 euros.")
    chat.pin(1)
    asyncio.run(ToolLoop(chat, limits=ap.RunLimits(max_rounds=1_000)).run("Where does it rain?"))
    text = "\n".join(text_of(entry.content) for entry in chat.context())
    assert "The budget is 400 euros." in text
    results = [entry for entry in chat.context() if isinstance(entry, ap.ToolCallResultsEntry)]
    assert results[0].results[0].result_markdown.startswith("The plan: first this")
    assert any(isinstance(entry, CompactionEntry) for entry in chat.history.entries)
    chat.pin(1, is_pinned=False)
    asyncio.run(compact(chat))
    traveller.visited = 0
    asyncio.run(ToolLoop(chat, limits=ap.RunLimits(max_rounds=1_000)).run("And again?"))
    asyncio.run(compact(chat))
    with pytest.raises(ConversationError, match=r"pin\(99999\)"):
        chat.pin(99_999)


def test_a_result_that_the_tool_of_an_agent_keeps_stays_after_a_hand_off() -> None:
    """Though the tool is neither among those of the conversation nor of the agent that took over."""

    @tool(effect="read", keep_result=True)
    async def plan() -> str:
        "The plan."
        return "The plan: " + "first this, then that. " * 20

    traveller = Traveller(60)
    first = iter([call("weather", city="Oslo"), call("plan"), call("hand_off_to_driver")])
    scout_model = FunctionModel(lambda *_: next(first), name="scout")
    driver = ap.Agent("driver", "Drive.", tools=[weather], model=FunctionModel(traveller), max_rounds=1_000)
    scout = ap.Agent("scout", "Plan.", tools=[weather, plan], model=scout_model, hand_offs=[driver], max_rounds=1_000)
    chat = Conversation(scout_model, token_limit=6_000, compaction="auto")
    assert asyncio.run(scout.loop(chat).run("Where does it rain?")).text == "It rains everywhere."
    shown = {part.tool_name: part for e in chat.context() for part in e.content if isinstance(part, ap.ToolCallResult)}
    assert shown["plan"].result_markdown.startswith("The plan: first this")
    assert any(isinstance(entry, CompactionEntry) for entry in chat.history.entries)
    assert "Rain in Oslo" not in "\n".join(part.result_markdown for part in shown.values())


def test_first_results_that_the_same_call_brought_again_are_cleared() -> None:
    class Reader(Traveller):
        """Looks at the same two cities again and again."""

        def __call__(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
            answer = super().__call__(context, options)
            if not isinstance(answer, str) and self.visited > 2:
                return call("weather", city=f"city{self.visited % 2 + 1}")
            return answer

    chat = travel(Reader(7))
    (cleared,) = [entry for entry in chat.history.entries if isinstance(entry, ShortenedResultsEntry)]
    shown = [text_of(part.content) for e in chat.context() for part in e.content if isinstance(part, ap.ToolCallResult)]
    whole = [text[:14] for text in shown if text.startswith("Rain in")]
    assert {"Rain in city1:", "Rain in city2:"} <= set(whole)
    assert cleared.max_chars == 0


def test_a_switch_to_a_model_with_a_smaller_window_is_noticed() -> None:
    """The limit is that of the model that is called next; what another model reported does not count."""
    chat = Conversation("openai/gpt-4.1", compaction="auto")
    assert chat.token_limit == 1_047_576 * 4 // 5
    chat.model = "openai/gpt-4o"
    assert chat.token_limit == 102_400
    assert chat.limit_of("anthropic/claude-sonnet-4-5") == 136_000


def test_a_model_that_calls_a_tool_instead_is_asked_again_without() -> None:
    class Busy(Traveller):
        def __call__(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
            if is_summary(context) and options.tools:
                return call("weather", city="Oslo")
            return super().__call__(context, options)

    traveller = Busy(60)
    travel(traveller)
    assert traveller.asked
    assert all(options.tools == () for _, options in traveller.asked)


def test_another_model_reads_the_range_alone() -> None:
    asked: list[int] = []

    def write(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        asked.append(len(context))
        assert "Above all: the codes" in text_of(context[-1].content)
        return "Written by another."

    writer = FunctionModel(write, name="writer")
    chat = travel(Traveller(60), compaction=Compaction(model=writer, focus="the codes"))
    assert asked
    compaction = chat.history.snapshot().compaction
    assert compaction is not None
    assert compaction.summary == "Written by another."


def test_another_model_with_a_small_window_reads_the_range_in_pieces() -> None:
    """Each piece is within its window and has a summary; together they have every entry of the range, once."""
    ledger, sizes, read = TokenLedger(CharacterEstimate()), list[int](), list[list[int]]()

    def write(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        sizes.append(sum(map(ledger.tokens_of, context)))
        read.append([entry.sequence_number for entry in context[:-1] if isinstance(entry, HistoryEntry)])
        return f"Piece {len(sizes)}."

    class Talker(Traveller):
        """Says much with every call, which no clear of results takes out."""

        def __call__(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
            answer = super().__call__(context, options)
            sizes.append(0)
            said = f"Of city {self.visited}: " + "much to say " * 150
            return [said, answer] if isinstance(answer, ToolCallRequest) else answer

    writer = FunctionModel(write, name="gpt-4")
    chat = travel(
        Talker(25), token_limit=16_000, compaction=Compaction(model=writer, thrift="off"), counter=CharacterEstimate()
    )
    window = chat.limit_of(writer)
    assert window == 4_096
    assert max(sizes) <= window
    assert any(one and two for one, two in itertools.pairwise(sizes)), "more than one piece for one request"
    segments = [entry for entry in chat.history.entries if isinstance(entry, CompactionEntry)]
    assert all(segment.summary.startswith("Piece ") for segment in segments)
    numbers = [number for piece in read for number in piece]
    assert numbers == sorted(set(numbers)), "nothing twice, and in order"
    left_out = {number for omitted in chat.context().left_out for number in omitted.sequence_numbers}
    assert left_out == set(numbers), "nothing is left out that was not read"


def test_the_view_is_the_same_in_another_process(tmp_path: Path) -> None:
    traveller = Traveller(60)
    chat = travel(traveller, store=tmp_path / "chat.db")
    seen, version = list(chat.context()), chat.history.version
    chat.close()
    with Conversation(FunctionModel(traveller), store=tmp_path / "chat.db", resume="last", tools=[weather]) as again:
        assert list(again.context()) == seen
        again.history.rollback(5)
        assert len(again.context()) == 4
        again.history.rollback(version)
        assert list(again.context()) == seen
        assert again.history.fork(version // 2).snapshot().compaction != again.history.snapshot().compaction


def test_a_context_that_cannot_be_made_smaller_is_not_sent() -> None:
    chat = Conversation(ScriptedModel("No."), token_limit=100, compaction="auto")
    chat.add("word " * 500)
    with pytest.raises(ContextLimitReached, match=r"largest piece is entry 1 \(model_input\)"):
        asyncio.run(chat.call_model())
    result = ToolLoop(chat).run_sync()
    assert (result.reason, "largest piece" in result.text) == ("context_limit", True)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ContextError, match="target=2"):
        Compaction(target=2)
    with pytest.raises(ContextError, match="tail_rounds=0"):
        Compaction(tail_rounds=0)
    with pytest.raises(ContextError, match="thrift='full'"):
        Compaction(thrift="full")  # type: ignore[arg-type]
    with pytest.raises(ConversationError, match="compaction='yes'"):
        Conversation(ScriptedModel(), compaction="yes")  # type: ignore[arg-type]
    assert Conversation("openai/gpt-4o", compaction="auto").token_limit == 102_400


CACHED = PriceTable([PriceOverride(model="*", input=3, output=15, cache_read=0.3, cache_write=3.75)])


@pytest.mark.parametrize(
    ("prices", "cities", "is_cleared"), [(CACHED, 6, False), (CACHED, 40, True), (PriceTable(), 40, False)]
)
def test_old_results_are_cleared_once_that_is_cheaper(prices: PriceTable, cities: int, is_cleared: bool) -> None:
    """Far below the limit, where the price of the cache is known; and not in a short turn."""
    chat = travel(Traveller(cities), token_limit=1_000_000, prices=prices)
    assert any(isinstance(entry, ShortenedResultsEntry) for entry in chat.history.entries) == is_cleared
    limited = travel(Traveller(cities), token_limit=1_000_000, prices=prices, compaction=Compaction(thrift="off"))
    assert not any(isinstance(entry, ShortenedResultsEntry) for entry in limited.history.entries)


# Asked for by a person.


def test_all_turns_but_the_latest_are_summarised() -> None:
    async def talked() -> None:
        model = ScriptedModel("Rain.", "Fine.", "They spoke of rain in Oslo.", "Still fine.", "They spoke of Bergen.")
        chat = Conversation(model)
        with pytest.raises(ConversationError, match="nothing to summarise yet"):
            await compact(chat)
        await ToolLoop(chat).run("Rain in Oslo? " * 50)
        await ToolLoop(chat).run("And Bergen?")
        tokens = chat.tokens
        entry = await compact(chat)
        assert (entry.summary, entry.since, entry.up_to) == ("They spoke of rain in Oslo.", 1, 2)
        assert chat.context()[0].content == (Text(f"[Summary of the entries 1 to 2]\n{entry.summary}"),)
        assert 0 < chat.tokens < tokens
        with pytest.raises(ConversationError, match="nothing to summarise yet"):
            await compact(chat)
        await ToolLoop(chat).run("And today?")
        second = await compact(chat)
        assert (second.since, second.summary) == (3, "They spoke of Bergen.")
        assert entry.summary in str([one.content for one in chat.context()]), "the first summary stays"

    asyncio.run(talked())


@pytest.mark.parametrize("silent", ["", ProviderError("busy", "overloaded")])
def test_nothing_is_left_out_if_no_model_answers(silent: str | ProviderError) -> None:
    async def talked() -> None:
        chat = Conversation(ScriptedModel("Hello yourself.", "Yes.", silent, silent))
        await ToolLoop(chat).run("Hello there")
        await ToolLoop(chat).run("Are you still there?")
        with pytest.raises(ConversationError, match="summary"):
            await compact(chat)
        assert not [entry for entry in chat.history.entries if isinstance(entry, CompactionEntry)]

    asyncio.run(talked())


def test_the_entry_is_appended_by_the_given_writer() -> None:
    """A remote store is written in a thread; nothing is appended before the writer runs."""

    async def talked() -> None:
        chat = Conversation(ScriptedModel("One.", "Two.", "A summary."))
        await ToolLoop(chat).run("First?")
        await ToolLoop(chat).run("Second?")
        threads = list[int]()

        async def write(append: Callable[[], CompactionEntry]) -> CompactionEntry:
            assert chat.history.snapshot().compaction is None

            def work() -> CompactionEntry:
                threads.append(threading.get_ident())
                return append()

            return await asyncio.to_thread(work)

        entry = await compact(chat, write)
        assert chat.history.entries[-1] == entry
        assert entry.summary == "A summary."
        assert threads != [threading.get_ident()]
        assert len(threads) == 1

    asyncio.run(talked())


def test_tokens_of_a_summary_are_counted() -> None:
    async def talked() -> None:
        chat = Conversation(
            ScriptedModel("One.", "Two.", ModelOutput(parts=(Text("A summary."),), usage=ap.TokenUsage(40, 9)))
        )
        await ToolLoop(chat).run("First?")
        await ToolLoop(chat).run("Second?")
        before, run = chat.usage.total, chat.totals.usage.total
        await compact(chat)
        (made,) = model_calls_of(chat.history.entries[-2])
        assert made.usage is not None
        assert made.usage.total == 49
        assert chat.usage.total == before + 49 == spending_of(chat.history.entries).usage.total
        assert chat.totals.usage.total == run + 49

    asyncio.run(talked())


def test_the_marks_of_a_cache_move_along() -> None:
    """The ends of the last two compactions have a breakpoint each: the next one begins after them."""
    traveller = Traveller(40)
    chat = travel(traveller)
    target = ap.Origin("anthropic", "anthropic", "claude-sonnet-4-5")
    context = chat.context()
    assert len(context.ends) == 2
    options = ProviderCallOptions(tools=chat.registry.definitions)
    body = msgspec.json.decode(b"".join(render_call(context, options, target).chunks))
    marked = [number for number, one in enumerate(body["messages"]) if "cache_control" in str(one["content"])]
    assert len(marked) == 3
    assert "cache_control" in str(body["system"])
    assert marked[-1] >= len(body["messages"]) - 2
