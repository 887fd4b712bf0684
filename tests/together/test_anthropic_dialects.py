"""Hosts that serve the Messages API with differences: what they get, and what is reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.errors import WireError
from antiphon.providers.presets import PRESETS
from antiphon.wire import formats
from antiphon.wire.anthropic.dialects import DIALECTS
from antiphon_gateway.config.settings import Config, ModelSettings, ProviderSettings
from gateway.rig import FAST, Client, serving
from providers.scripted_server import Reply, ScriptedServer

TOOL = {"name": "weather", "type": "custom", "input_schema": {"type": "object", "properties": {}}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
THOUGHT = {"type": "thinking", "thinking": "look it up", "signature": "s"}
QUESTION = {"role": "user", "content": "Is it raining?"}
AUTO = {"type": "auto"}


def written(dialect: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """A Messages body as it is written for a host, and what was lost."""
    body = {"model": "m", "max_tokens": 100, "messages": [QUESTION], **fields}
    anthropic = formats["anthropic"]
    sent, losses = anthropic.write_request(anthropic.read_request(body), dialect=dialect)
    return sent, [loss.path for loss in losses]


@pytest.mark.parametrize(
    ("dialect", "name", "value"),
    [
        ("deepseek", "top_k", 5),
        ("deepseek", "service_tier", "auto"),
        ("minimax", "top_k", 5),
        ("minimax", "stop_sequences", ["END"]),
        ("minimax", "container", "c"),
    ],
)
def test_fields_that_a_host_ignores_are_dropped_and_reported(dialect: str, name: str, value: Any) -> None:
    sent, losses = written(dialect, **{name: value})
    assert name not in sent
    assert name in losses


def test_minimax_needs_a_temperature_above_zero() -> None:
    assert written("minimax", temperature=0)[0]["temperature"] == 0.01
    assert written("minimax", temperature=0.5)[0]["temperature"] == 0.5
    assert written("deepseek", temperature=0)[0]["temperature"] == 0


def test_deepseek_gets_tools_without_a_type() -> None:
    sent, losses = written("deepseek", tools=[TOOL])
    assert "type" not in sent["tools"][0]
    assert losses == []


def test_a_named_tool_turns_the_thinking_of_deepseek_off() -> None:
    named = {"type": "tool", "name": "weather"}
    sent, losses = written("deepseek", tools=[TOOL], tool_choice=named)
    assert (sent["thinking"], sent["tool_choice"], losses) == ({"type": "disabled"}, named, ["reasoning"])
    assert "thinking" not in written("deepseek", tools=[TOOL], tool_choice={"type": "auto"})[0]
    assert "thinking" not in written("moonshot", tools=[TOOL], tool_choice=named)[0]


@pytest.mark.parametrize(
    ("messages", "is_off"),
    [
        ([QUESTION], False),
        ([QUESTION, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}], True),
        ([QUESTION, {"role": "assistant", "content": [THOUGHT, CALL]}, {"role": "user", "content": [RESULT]}], False),
        (
            [
                QUESTION,
                {"role": "assistant", "content": [CALL]},
                {"role": "user", "content": [RESULT]},
                {"role": "assistant", "content": "Yes."},
                QUESTION,
            ],
            False,
        ),
    ],
    ids=["no calls", "calls without thinking", "calls with thinking", "calls of an earlier turn"],
)
def test_calls_without_their_thinking(messages: list[Any], is_off: bool) -> None:
    on = {"type": "enabled", "budget_tokens": 2000}
    fields = {"messages": messages, "tools": [TOOL], "max_tokens": 4000}
    sent, losses = written("deepseek", **fields)
    assert (sent.get("thinking") == {"type": "disabled"}, "reasoning" in losses) == (is_off, is_off)
    sent, losses = written("moonshot", **fields, thinking=on)
    assert ("thinking" not in sent, "reasoning" in losses) == (is_off, is_off)
    assert written("deepseek", **fields, thinking={"type": "disabled"})[1] == []


def test_a_choice_goes_with_the_servers_that_a_host_ignores() -> None:
    sent, losses = written(
        "deepseek", mcp_servers=[{"type": "url", "url": "https://e.x", "name": "m"}], tool_choice=AUTO
    )
    assert sent.keys().isdisjoint({"mcp_servers", "tool_choice"})
    assert sorted(losses) == ["mcp_servers", "tool_choice"]


def test_reasoning_settings_of_other_formats_are_reported_when_thinking_is_off() -> None:
    """L3: the host's own decision replaces the reasoning, not what is reported of it."""
    chat = formats["openai-chat"].read_request(
        {
            "model": "m",
            "messages": [QUESTION],
            "reasoning": {"effort": "high"},
            "tools": [{"type": "function", "function": {"name": "weather"}}],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
        }
    )
    sent, losses = formats["anthropic"].write_request(chat, dialect="deepseek")
    assert sent["thinking"] == {"type": "disabled"}
    assert [loss.path for loss in losses] == ["reasoning", "reasoning.reasoning"]


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(WireError, match="unknown dialect 'other'; known: deepseek"):
        written("other")


@pytest.mark.parametrize("name", ["deepseek-anthropic", "moonshot-anthropic", "zai-anthropic", "minimax"])
def test_presets(name: str) -> None:
    preset = PRESETS[name]
    assert preset.format == "anthropic"
    assert preset.url_for("m").endswith("/anthropic/v1/messages")
    assert preset.dialect is None or preset.dialect in DIALECTS


def test_the_gateway_sends_a_messages_body_as_the_host_accepts_it() -> None:
    anthropic = pytest.importorskip("anthropic")
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "deepseek-v4-pro",
        "content": [{"type": "text", "text": "Yes."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    with ScriptedServer(Reply(body=msgspec.json.encode(answer), content_type="application/json")) as server:
        provider = ProviderSettings(name="deepseek-anthropic", base_url=f"{server.url}/anthropic", keys=("env:KEY",))
        models = (ModelSettings(name="*", targets=("deepseek-anthropic/deepseek-v4-pro",)),)
        with (
            serving(Config(gateway=FAST, providers=(provider,), models=models), {"KEY": "sk-deepseek"}) as ports,
            anthropic.Anthropic(base_url=f"http://127.0.0.1:{ports[0]}", api_key="none", max_retries=0) as client,
        ):
            made = client.messages.create(
                model="claude-x",
                max_tokens=100,
                extra_body={"top_k": 5},
                tools=[TOOL],
                messages=[QUESTION, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}],
            )
            assert made.content[0].text == "Yes."
            sent = msgspec.json.decode(server.received[-1].body)
            assert server.received[-1].target == "/anthropic/v1/messages"
            assert server.received[-1].headers["x-api-key"] == "sk-deepseek"
            assert ("top_k" in sent, sent["thinking"], "type" in sent["tools"][0]) == (
                False,
                {"type": "disabled"},
                False,
            )
            http = Client(ports[0])
            try:
                lossy = http.post("/v1/messages", {"model": "m", "max_tokens": 9, "top_k": 5, "messages": [QUESTION]})
            finally:
                http.close()
    assert "top_k" in lossy.headers["x-antiphon-losses"]
