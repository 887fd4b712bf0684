"""Seed 000: what a loop of tool calls leaves in the conversation, in OpenAI's own message format."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import openai
import pytest

import antiphon as ap
from antiphon.history import ToolCallResultsEntry
from antiphon.providers import HttpProviderClient, ProviderCallOptions
from antiphon.wire import formats
from gateway.strict_upstream import StrictUpstream
from providers.scripted_server import Received, Reply, ScriptedServer


def search(query: str) -> dict[str, Any]:
    "Search."
    return {"query": query, "hits": 2}


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % msgspec.json.encode({**body, "choices": [choice]})


def call(index: int, call_id: str, query: str) -> dict[str, Any]:
    arguments = msgspec.json.encode({"query": query}).decode()
    return {"index": index, "id": call_id, "type": "function", "function": {"name": "search", "arguments": arguments}}


def upstream(request: Received) -> Reply:
    results = sum(message["role"] == "tool" for message in msgspec.json.decode(request.body)["messages"])
    if results == 0:
        stream = chunk({"content": "我先搜索。"}) + chunk({"tool_calls": [call(0, "c1", "a"), call(1, "c2", "b")]})
        stream += chunk({}, "tool_calls")
    elif results == 2:
        stream = chunk({"tool_calls": [call(0, "c3", "c")]}) + chunk({}, "tool_calls")
    else:
        stream = chunk({"content": "完成。"}) + chunk({}, "stop")
    return Reply(body=stream + b"data: [DONE]\n\n")


@pytest.fixture
def played(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three iterations over a real socket."""
    caplog.set_level(logging.DEBUG, "antiphon.history")
    with ScriptedServer(upstream) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with ap.Conversation("openai/gpt-4o", tools=[search], system="Be brief.") as chat:
            result = ap.ToolLoop(chat).run_sync("搜索")
            assert (result.text, result.rounds) == ("完成。", 3)
            sent = [msgspec.json.decode(request.body)["messages"] for request in server.received]
    return chat, sent, list(caplog.records)


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def test_every_iteration_has_the_whole_conversation(played: Any) -> None:
    chat, sent, _ = played
    assert roles(sent[1]) == ["system", "user", "assistant", "tool", "tool"]
    assert roles(sent[2]) == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
    merged = chat.history.to_messages()
    assert merged[: len(sent[2])] == [{key: value for key, value in m.items() if key != "name"} for m in sent[2]]
    assert merged[2]["content"] == "我先搜索。"
    assert [one["id"] for one in merged[2]["tool_calls"]] == ["c1", "c2"]
    assert merged[3]["content"] == '{"query":"a","hits":2}'  # an object is sent as JSON text


def test_the_three_strategies(played: Any) -> None:
    history = played[0].history
    merged, parts, tagged = (history.to_messages(strategy=name) for name in ("merged", "per_part", "iterations"))
    assert (len(merged), len(parts), len(tagged)) == (8, 10, 9)
    assert [message.get("name") for message in tagged[1:]] == ["iteration_1"] * 5 + ["iteration_2"] * 2 + [
        "iteration_3"
    ]
    for messages in (merged, parts, tagged):
        assert formats["openai-chat"].check_request({"model": "gpt-4o", "messages": messages}) == []


def test_a_strict_server_accepts_each_strategy(played: Any) -> None:
    history = played[0].history
    with StrictUpstream("openai-chat") as strict, openai.OpenAI(base_url=strict.base_url, api_key="sk-x") as client:
        for strategy in ("merged", "per_part", "iterations"):
            messages = [*history.to_messages(strategy=strategy), {"role": "user", "content": "more"}]
            assert client.chat.completions.create(model="gpt-4o", messages=messages).choices


def test_appends_are_logged(played: Any) -> None:
    lines = "\n".join(record.getMessage() for record in played[2])
    assert "model_output hasText=True toolCallsCount=2" in lines
    assert "tool_call_results toolCallId=c1 contentLength=22" in lines


def test_values_are_fields_of_the_records(played: Any) -> None:
    chat, _, records = played
    outputs = [record for record in records if record.kind == "model_output"]
    assert [(record.hasText, record.toolCallsCount) for record in outputs] == [(True, 2), (False, 1), (True, 0)]
    results = [record for record in records if record.kind == "tool_call_results"]
    assert [(record.toolCallId, record.contentLength) for record in results] == [("c1", 22), ("c2", 22), ("c3", 22)]
    assert {record.conversation for record in records} == {"memory"}
    assert [record.sequenceNumber for record in records][-1] == chat.history.version


@pytest.mark.parametrize("strategy", ["merged", "per_part", "iterations"])
def test_strategy_is_a_setting_of_a_running_conversation(strategy: Any) -> None:
    """Requests are laid out by it, and it can be changed between two rounds."""
    with ScriptedServer(upstream) as server:
        provider = HttpProviderClient("openai", base_url=server.url, keys=["sk-x"])
        chat = ap.Conversation("gpt-4o", provider=provider, tools=[search], system="Be brief.")
        chat.call_options.strategy = strategy
        chat.add("搜索")
        chat.call_model_sync()
        chat.execute_tool_calls_sync()
        written = roles(chat.to_messages())
        chat.call_model_sync()
        sent = msgspec.json.decode(server.received[-1].body)
        assert formats["openai-chat"].check_request(sent) == []
        expected = {
            "merged": ["system", "user", "assistant", "tool", "tool"],
            "per_part": ["system", "user", "assistant", "assistant", "tool", "assistant", "tool"],
            "iterations": ["system", "user", "assistant", "assistant", "tool", "tool"],
        }
        assert roles(sent["messages"]) == written == expected[strategy]
        chat.execute_tool_calls_sync()
        chat.call_options.strategy = "merged"
        chat.call_model_sync()
        again = roles(msgspec.json.decode(server.received[-1].body)["messages"])
        assert again == [*expected["merged"], "assistant", "tool"]


def test_unknown_strategy_is_named() -> None:
    with ScriptedServer(upstream) as server:
        provider = HttpProviderClient("openai", base_url=server.url, keys=["sk-x"])
        options = ProviderCallOptions(strategy="all")  # type: ignore[arg-type]
        chat = ap.Conversation("gpt-4o", provider=provider, call_options=options)
        chat.add("搜索")
        with pytest.raises(
            ap.AntiphonError, match="unknown strategy 'all'; expected one of: merged, per_part, iterations"
        ):
            chat.call_model_sync()


def test_ids_stay_the_same_through_the_whole_conversation(played: Any) -> None:
    history = played[0].history
    asked = [call.tool_call_id for entry in history.entries for call in getattr(entry, "tool_calls", ())]
    answered = [r.tool_call_id for e in history.entries if isinstance(e, ToolCallResultsEntry) for r in e.results]
    assert asked == answered == ["c1", "c2", "c3"]
