"""Seed 004: a conversation manager under a graph: messages, single calls, tools, tokens and compaction, no loop inside."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

import antiphon as ap
from antiphon.context import CharacterEstimate
from antiphon.conversation.compaction import compact_when_needed
from antiphon.errors import ConversationError
from antiphon.graph import Conversations, ConversationState, LLMNode, ToolNode
from antiphon.providers import HttpProviderClient
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.wire.output import ProviderError
from gateway.strict_upstream import StrictUpstream


def search(query: str) -> str:
    "Search."
    return f"found {query}"


def test_messages_are_managed() -> None:
    chat = ap.Conversation(ScriptedModel(), system="Be brief.")
    assert [chat.add({"role": "user", "content": text}) for text in ("a", "b", "c")] == [2, 3, 4]
    assert len(chat.recent(2)) == 2
    assert len(chat.recent(9)) == 4
    assert [entry.role.value for entry in chat.by_role("user")] == ["model_input"] * 3
    assert isinstance(chat.messages, tuple)
    assert [message.role.value for message in chat.messages] == ["system", *["model_input"] * 3]
    assert [message["role"] for message in chat.to_messages()] == ["system", "user", "user", "user"]
    chat.clear()
    assert [message.content for message in chat.messages] == [(ap.Text("Be brief."),)]


@pytest.mark.parametrize("message", ["", {"role": "user", "content": ""}])
def test_empty_message_is_refused_however_it_is_written(message: Any) -> None:
    chat = ap.Conversation(ScriptedModel())
    with pytest.raises(ConversationError, match="empty user message"):
        chat.add(message)
    assert chat.history.version == 0


def test_usage_of_all_calls_has_the_figures_of_the_providers() -> None:
    with StrictUpstream("openai-chat") as openai, StrictUpstream("anthropic") as anthropic:
        first = HttpProviderClient("openai", base_url=openai.base_url, keys=["k"])
        second = HttpProviderClient("anthropic", base_url=anthropic.base_url, keys=["k"])
        chat = ap.Conversation("gpt-4o", provider=first)
        for _ in range(2):
            chat.add("Hi.")
            chat.call_model_sync()
        assert (chat.usage.prompt_tokens, chat.usage.format) == (22, "openai-chat")
        assert chat.usage.raw is not None
        assert (chat.usage.raw["prompt_tokens"], chat.usage.raw["completion_tokens"]) == (22, 14)
        other = ap.Conversation("claude-sonnet-4-5", provider=second, history=chat.history)
        other.call_model_sync()
        raw = other.usage.raw
        assert raw is not None
        assert (raw["openai-chat"]["prompt_tokens"], raw["anthropic"]["input_tokens"]) == (22, 11)


def test_one_model_call_and_its_tools() -> None:
    chat = ap.Conversation(ScriptedModel(call("search", query="x"), "Done."), tools=[search])
    chat.add("Go.")
    output = chat.call_model_sync()
    assert [one.tool_name for one in output.tool_calls] == ["search"]
    (result,) = chat.execute_tool_calls_sync()
    assert result.result_markdown == "found x"
    assert chat.call_model_sync().response_markdown == "Done."
    assert chat.usage.total_tokens or chat.usage.prompt_tokens


def test_failures(caplog: pytest.LogCaptureFixture) -> None:
    def bad() -> str:
        "Fails."
        raise RuntimeError("broken")

    chat = ap.Conversation(ScriptedModel(call("bad"), ProviderError("down", "server", 500)), tools=[bad])
    chat.add("Go.")
    chat.call_model_sync()
    (result,) = chat.execute_tool_calls_sync()
    assert "broken" in result.result_markdown
    with caplog.at_level(logging.ERROR, "antiphon"), pytest.raises(ap.ModelCallFailed):
        chat.call_model_sync()
    assert any(record.levelname == "ERROR" and "the model call failed" in record.message for record in caplog.records)


def test_tokens_fall_back_to_characters_divided_by_two_and_a_half() -> None:
    chat = ap.Conversation(ScriptedModel(), counter=CharacterEstimate(), system="s" * 25)
    chat.add("x" * 25)
    assert chat.tokens == 20


def test_a_failing_subscriber_does_not_stop_the_call() -> None:
    chat = ap.Conversation(ScriptedModel("Hi."), token_limit=1)

    def fails(*_: Any) -> None:
        raise RuntimeError

    chat.on_compaction(fails)
    chat.add("a long question indeed")
    assert chat.call_model_sync().response_markdown == "Hi."


def test_the_graph_decides_and_the_conversation_remembers(tmp_path: Path) -> None:
    model = ScriptedModel(call("search", query="x"), "First.", "They searched.", "Second.")
    with Conversations(tmp_path / "chats.db", model, tools=[search], token_limit=300) as chats:
        chats.on_compaction(compact_when_needed)
        builder = StateGraph(ConversationState)
        builder.add_node("model", LLMNode(chats))
        builder.add_node("tools", ToolNode(chats))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", chats.has_calls, {True: "tools", False: END})
        builder.add_edge("tools", "model")
        graph = builder.compile()
        state = graph.invoke(chats.ask("Search. " * 200))
        state = graph.invoke(chats.ask("And?", state=state))
        history = chats.store.open(state["conversation"])
    assert history.snapshot().compaction is not None
    assert [entry.kind for entry in history.entries if entry.kind.startswith("model")][-1] == "model_output"
