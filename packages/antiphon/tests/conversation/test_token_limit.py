"""Context windows, and tokens that are counted before a provider reports any."""

from __future__ import annotations

import logging
import math

import pytest

import antiphon as ap
from antiphon.context import CharacterEstimate
from antiphon.wire.capabilities import capabilities_for, capability_data


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("openrouter/openai/gpt-4o-mini", 102_400),
        ("GPT-4.1", 838_060),
        ("gpt-5", 272_000),
        ("anthropic/claude-sonnet-4-5", 136_000),
        ("gpt-4", 4_096),
        ("my-own-model", None),
    ],
)
def test_a_fifth_of_the_window_and_the_longest_answer_are_left(model: str, limit: int | None) -> None:
    assert capabilities_for(model, "").compaction_limit == limit


def test_every_model_of_the_table_has_room_for_a_conversation() -> None:
    """Also one whose longest answer takes its whole window."""
    models = [name for family in capability_data().families for name in family.examples]
    limits = {name: limit for name in models if (limit := capabilities_for(name, "").compaction_limit) is not None}
    assert len(limits) > 50
    assert [name for name, limit in limits.items() if limit < 4_000] == []


def test_token_limit_follows_the_model() -> None:
    chat = ap.Conversation("openai/gpt-4o", token_limit="auto")
    assert chat.token_limit == 102_400
    chat.model = "anthropic/claude-sonnet-4-5"
    assert chat.token_limit == 136_000
    chat.token_limit = None
    assert chat.token_limit is None


def test_tokens_before_the_first_usage_count_everything_that_is_sent() -> None:
    def search(query: str) -> str:
        "Search the web for pages about a topic."
        return query

    bare = ap.Conversation(ap.ScriptedModel(), counter=CharacterEstimate())
    bare.add("x" * 25)
    assert bare.tokens == 10
    full = ap.Conversation(
        ap.ScriptedModel(), counter=CharacterEstimate(), system="s" * 50, live_screen="l" * 75, tools=[search]
    )
    full.history.set_memory_notebook("n" * 100)
    full.add("x" * 25)
    fixed = math.ceil((50 + len("[Memory Notebook]\n") + 100) / 2.5) + 30
    assert full.tokens > 10 + fixed + 20  # and the tool
    without_tool = ap.Conversation(
        ap.ScriptedModel(), counter=CharacterEstimate(), system="s" * 50, live_screen="l" * 75
    )
    without_tool.history.set_memory_notebook("n" * 100)
    without_tool.add("x" * 25)
    assert without_tool.tokens == 10 + fixed


def test_each_append_is_a_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "antiphon.history")
    history = ap.AgentHistory()
    history.append(ap.ModelInputEntry.of("secret words"))
    call = ap.ToolCallRequest("look", "c1")
    history.append(ap.ModelOutputEntry.of("I look.", call))
    history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(call, "rain"),)))
    history.set_system_instruction("Be brief.")
    assert [record.getMessage() for record in caplog.records] == [
        "[memory] append 1 model_input",
        "[memory] append 2 model_output hasText=True toolCallsCount=1",
        "[memory] append 3 tool_call_results toolCallId=c1 contentLength=4",
        "[memory] append 4 set_system_instruction",
    ]
