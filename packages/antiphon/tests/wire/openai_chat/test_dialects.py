"""What hosts of Chat Completions want differently from OpenAI."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.errors import WireError
from antiphon.parts import (
    Source,
    Text,
    Thinking,
    ToolCallRequest,
)
from antiphon.wire.format import WriteOptions
from antiphon.wire.request import Message, ModelRequest, Reasoning, ToolChoice, ToolDefinition
from support.wire_formats import CHAT
from wire.openai_chat.bodies import FORMAT
from wire.openai_chat.sample_requests import CALLED, USER, written

read_request = CHAT.read_request
write_request = CHAT.write_request
check_request = CHAT.check_request

# What hosts want differently: the dialect, a request, and a look at the body.
THOUGHT = Message(
    "assistant", (Thinking("hm", source=Source(FORMAT, ("reasoning",))), ToolCallRequest("look", "c1", ""))
)

PROOF = Thinking(native={FORMAT: {"reasoning_details": [{"type": "reasoning.encrypted"}]}})


def host(dialect: str, *messages: Message, **fields: Any) -> dict[str, Any]:
    return written(ModelRequest(messages=messages or (USER,), **fields), dialect)[0]


def test_dialects_differ_where_their_hosts_do() -> None:
    assert host("openai", THOUGHT)["messages"][0]["reasoning"] == "hm"
    assert host("deepseek", THOUGHT)["messages"][0]["reasoning_content"] == "hm"
    assert host("groq", THOUGHT)["messages"][0]["reasoning"] == "hm"
    assert host("mistral", THOUGHT)["messages"][0]["content"][0]["type"] == "thinking"
    assert "reasoning" not in host("azure", THOUGHT)["messages"][0]
    assert host("openai", THOUGHT)["messages"][0]["tool_calls"][0]["function"]["arguments"] == ""
    assert host("ollama", THOUGHT)["messages"][0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert host("openai", CALLED[0])["messages"][0]["content"] is None
    assert host("ollama", CALLED[0])["messages"][0]["content"] == ""
    assert host("openai", max_output_tokens=5)["max_completion_tokens"] == 5
    assert host("mistral", max_output_tokens=5)["max_tokens"] == 5
    assert host("mistral", seed=5)["random_seed"] == 5
    assert host("openrouter", top_k=5)["top_k"] == 5
    assert host("mistral", tools=(ToolDefinition("a"),), tool_choice=ToolChoice("required"))["tool_choice"] == "any"
    assert "stream_options" not in host("mistral", stream=True)
    assert host("openai", stream=True)["stream_options"] == {"include_usage": True}
    assert host("zai", Message("developer", (Text("a"),)))["messages"][0]["role"] == "system"
    assert host("openrouter", Message("assistant", (PROOF,)))["messages"][0]["reasoning_details"]
    assert "reasoning_details" not in host("groq", Message("assistant", (PROOF,)))["messages"][0]
    assert host("deepseek", reasoning=Reasoning(enabled=True))["thinking"] == {"type": "enabled"}
    assert host("deepseek", reasoning=Reasoning("low"))["reasoning_effort"] == "low"
    assert host("volcengine", reasoning=Reasoning("low"))["thinking"] == {"type": "enabled"}
    assert host("zai", reasoning=Reasoning(enabled=False))["thinking"] == {"type": "disabled"}
    assert host("alibaba", reasoning=Reasoning(budget_tokens=99))["thinking_budget"] == 99
    assert host("openrouter", reasoning=Reasoning(budget_tokens=99))["reasoning"] == {"max_tokens": 99}
    assert host("openai", reasoning=Reasoning(budget_tokens=5000))["reasoning_effort"] == "medium"
    assert host("openai", reasoning=Reasoning(enabled=False))["reasoning_effort"] == "none"
    asked = host("llamacpp", tools=(ToolDefinition("a"),), tool_choice=ToolChoice("tool", ("a",)))
    assert asked["tool_choice"] == "required"


def test_deepseek_gets_reasoning_with_every_call_while_it_thinks() -> None:
    body = host("deepseek", USER, *CALLED, model="deepseek-chat", reasoning=Reasoning(enabled=True))
    assert body["messages"][1]["reasoning_content"] == ""
    assert not [found for found in check_request(body, advisories=True) if found.rule == "DS-01"]


def test_google_gets_its_signatures_back() -> None:
    call = ToolCallRequest("look", "c1", native={"gemini": {"thoughtSignature": "sig"}})
    body, losses = written(ModelRequest(messages=(Message("assistant", (call,)),)), "google")
    assert body["messages"][0]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "sig"}}
    assert losses == []


def test_mistral_gets_an_assistant_between_a_tool_and_a_user() -> None:
    body = host("mistral", USER, *CALLED, USER, model="mistral-large-latest")
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert not [found for found in check_request(body, advisories=True) if found.rule.startswith("MI")]


def test_unsupported_values_are_replaced_by_the_nearest() -> None:
    assert host("openai", model="o3", reasoning=Reasoning(enabled=False))["reasoning_effort"] == "low"
    assert host("openai", model="gpt-5", reasoning=Reasoning(budget_tokens=0))["reasoning_effort"] == "minimal"
    body, losses = written(ModelRequest(model="o4-mini", messages=(USER,), reasoning=Reasoning("minimal")))
    assert body["reasoning_effort"] == "low"
    assert [loss.path for loss in losses] == ["reasoning.effort"]
    assert host("openai", service_tier="standard_only")["service_tier"] == "default"
    assert host("groq", service_tier="standard")["service_tier"] == "standard"


def test_both_openai_formats_share_their_common_fields() -> None:
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "safety_identifier": "a",
        "prompt_cache_options": {"ttl": "1h"},
    }
    request = read_request(body)
    assert request.native == {"openai": {"safety_identifier": "a", "prompt_cache_options": {"ttl": "1h"}}}
    assert written(request) == (body, [])


def test_an_unknown_dialect_is_refused_by_name() -> None:
    with pytest.raises(WireError, match='unknown dialect "acme" for openai-chat'):
        write_request(ModelRequest(messages=(USER,)), [], WriteOptions(dialect="acme"))


def test_reasoning_switches_of_hosts_are_read_and_kept() -> None:
    body = {"messages": [], "thinking": {"type": "enabled", "budget_tokens": 2000}}
    reasoning = read_request(body).reasoning
    assert reasoning is not None
    assert (reasoning.enabled, reasoning.budget_tokens) == (True, 2000)
    assert host("openai", reasoning=reasoning)["thinking"] == body["thinking"]
    assert host("groq", reasoning=reasoning)["reasoning_effort"] == "low"
    reasoning = read_request({"messages": [], "reasoning": {"effort": "high", "exclude": True}}).reasoning
    assert reasoning is not None
    assert (reasoning.effort, reasoning.shown) == ("high", "omitted")
    reasoning = read_request({"messages": [], "enable_thinking": False}).reasoning
    assert reasoning is not None
    assert reasoning.enabled is False
