"""Seed 003: one typed history; OpenAI and Anthropic take turns on it, and every request is legal for its API."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.errors import InvalidEntry
from antiphon.history import DecoratedContextEntry, HistoryEntryKind, LiveContextInjectedEntry
from antiphon.providers import HttpProviderClient, ProviderCallOptions
from antiphon.wire import formats
from antiphon.wire.output import ProviderError
from gateway.strict_upstream import StrictUpstream, text_answer


def search(query: str) -> str:
    "Search."
    return f"found {query}"


def test_entries_versions_and_state() -> None:
    history = ap.AgentHistory()
    history.set_system_instruction("Be brief.")
    history.append(ap.SetMemoryNotebookEntry("exam in July"))
    history.append(ap.DebugLogEntry("provider", "only for people"))
    assert [entry.kind for entry in history.entries] == [
        HistoryEntryKind.SET_SYSTEM_INSTRUCTION,
        HistoryEntryKind.SET_MEMORY_NOTEBOOK,
        HistoryEntryKind.DEBUG_LOG,
    ]
    assert (history.version, history.system_instruction, history.memory_notebook) == (3, "Be brief.", "exam in July")
    snapshot = history.snapshot()
    asked = history.append(ap.ModelInputEntry.of("Hi."))
    assert (snapshot.version, asked.sequence_number) == (3, 4)
    decorated = asked.with_live_screen("12:00")
    context = ap.render_live_context(history.snapshot(), ap.LiveContextOptions(live_screen="12:00"))
    assert isinstance(context[-1], DecoratedContextEntry)
    assert not any(isinstance(entry, ap.DebugLogEntry) for entry in context)
    with pytest.raises(InvalidEntry, match="DecoratedContextEntry"):
        history.append(decorated)  # type: ignore[type-var]
    assert LiveContextInjectedEntry("12:00", 4).kind == "live_context_injected"


def test_plan_with_claude_execute_with_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two strict servers check every request; the history does not change for either."""
    with StrictUpstream("anthropic") as claude, StrictUpstream("openai-chat") as gpt:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-a")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", claude.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-o")
        monkeypatch.setenv("OPENAI_BASE_URL", gpt.base_url)
        with ap.Conversation("anthropic/claude-sonnet-4-5", tools=[search], system="Be brief.") as chat:
            calls = [ap.ToolCallRequest("search", f"c{n}", f'{{"query": "{n}"}}') for n in (1, 2)]
            chat.add("Plan, then search twice.")
            chat.add(*calls, role="assistant")
            chat.execute_tool_calls_sync()
            first = ap.ToolLoop(chat).run_sync("Plan.")
            chat.model = "openai/gpt-4o"
            second = ap.ToolLoop(chat).run_sync("Execute.")
    assert first.text
    assert second.text
    origins = [e.origin.provider for e in chat.history.entries if isinstance(e, ap.ModelOutputEntry) and e.origin]
    assert origins == ["anthropic", "openai"]
    roles = [message["role"] for message in chat.history.to_messages()]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "user", "assistant"]
    turns = chat.history.to_messages("anthropic")
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 3
    assert [block["type"] for block in turns[2]["content"]][:2] == ["tool_result", "tool_result"]


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_existing_histories_are_converted(name: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query":"x"}'}}
    old: list[dict[str, Any]] = [
        {"role": "user", "content": "搜索"},
        {"role": "assistant", "content": "好", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "完成"},
    ]
    messages = ap.AgentHistory.from_messages(old).to_messages(name)
    again = ap.AgentHistory.from_messages(messages, name)
    assert again.to_messages() == old
    key = formats[name].spec.messages_key
    settings = {"openai-chat": {"model": "m"}, "openai-responses": {"model": "m"}, "gemini": {}}
    body = {**settings.get(name, {"model": "m", "max_tokens": 9}), key: messages}
    assert formats[name].check_request(body) == []


def test_a_failed_turn_restores_the_history() -> None:
    chat = ap.Conversation(ap.ScriptedModel("Hello.", ProviderError("down", "server", 500)))
    ap.ToolLoop(chat).run_sync("Hi.")
    before = chat.history.to_messages()
    with pytest.raises(ap.ModelCallFailed):
        ap.ToolLoop(chat, rolls_back_failures=True).run_sync("More.")
    assert chat.history.to_messages() == before


def test_notebook_of_a_new_history_reads_as_empty() -> None:
    history = ap.AgentHistory()
    assert (history.memory_notebook, history.memory_notebook_content) == ("", "（尚无内容）")
    assert ap.render_live_context(history.snapshot()) == []
    history.set_memory_notebook("雅思：7 分")
    assert history.memory_notebook_content == "雅思：7 分"


def test_options_switch_the_live_context_and_debug_data() -> None:
    with StrictUpstream("openai-chat") as upstream:
        upstream.answer = lambda request: text_answer("Hello.", request.model)
        client = HttpProviderClient("openai", base_url=upstream.base_url, keys=["sk-secret-key"])
        chat = ap.Conversation("gpt-4o", provider=client, live_screen="now: 12:00")
        chat.add("Hi.")
        chat.call_model_sync()
        assert "now: 12:00" in str(upstream.bodies[-1])
        chat.call_options = ProviderCallOptions(live_context=False, debug=True)
        version = chat.history.version
        chat.call_model_sync()
        assert "now: 12:00" not in str(upstream.bodies[-1])
        output, note = list(chat.history.entries)[version:]
        assert isinstance(output, ap.ModelOutputEntry)
        assert isinstance(note, ap.DebugLogEntry)
        assert (note.category, msgspec.json.decode(note.message)) == ("request body", upstream.bodies[-1])
        assert "sk-secret-key" not in str(chat.history.entries)
        assert "request body" not in str(chat.context())

        async def call_directly() -> None:
            options = ProviderCallOptions(model="gpt-4o", live_context=False, debug=True)
            async for _ in client.call_model(chat.context(), options):
                pass
            assert "now: 12:00" not in str(upstream.bodies[-1])
            assert [msgspec.json.decode(body) for body in options.report.bodies] == [upstream.bodies[-1]]

        asyncio.run(call_directly())
