"""Parameters of the Messages API: read, written, brought into range; thinking as each model takes it."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.parts import (
    Native,
    Text,
)
from antiphon.wire import (
    Message,
    OutputFormat,
    Reasoning,
    ToolChoice,
    ToolDefinition,
)
from antiphon.wire.format import WriteOptions
from support.wire_formats import ANTHROPIC
from wire.anthropic.sample_requests import (
    ANSWER,
    ASK,
    CALL,
    LATE,
    LATEST,
    MARK,
    MIDDLE,
    NEW,
    OLD,
    OTHER,
    OWN,
    RESULT,
    SCHEMA,
    SIGNED,
    TOOL,
    model,
    request,
    text,
    user,
    written,
)

read_request = ANTHROPIC.read_request
check_request = ANTHROPIC.check_request

PARAMETERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"stream": True}, {"stream": True}),
    ({"temperature": 0.5, "top_p": 0.9, "top_k": 4}, {"temperature": 0.5, "top_p": 0.9, "top_k": 4}),
    ({"top_p": -1, "top_k": -1}, {"top_p": -1, "top_k": -1}),
    ({"stop_sequences": ["END", "\n\nHuman:"]}, {"stop": ("END", "\n\nHuman:")}),
    ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    ({"metadata": {"user_id": "u", "x": 1}}, {"user": "u", "native": {"anthropic": {"metadata": {"x": 1}}}}),
    ({"service_tier": "standard_only"}, {"service_tier": "standard_only"}),
    ({"thinking": {"type": "disabled"}}, {"reasoning": Reasoning(enabled=False, source=OWN)}),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}},
        {"reasoning": Reasoning(budget_tokens=2048, enabled=True, shown="omitted", source=OWN)},
    ),
    (
        {"model": "claude-opus-4-8", "thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
        {"reasoning": Reasoning("xhigh", enabled=True, source=OWN)},
    ),
    (
        {"output_config": {"effort": "low", "task_budget": {"total": 5}}},
        {
            "reasoning": Reasoning("low", source=OWN),
            "native": {"anthropic": {"output_config": {"task_budget": {"total": 5}}}},
        },
    ),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": OutputFormat("json_schema", SCHEMA)},
    ),
    (
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        {"output_format": OutputFormat("json_schema", SCHEMA, source=OWN)},
    ),
    (
        {"tools": [{"name": "weather", "description": "d", "input_schema": SCHEMA, "strict": True, **MARK}]},
        {"tools": (ToolDefinition("weather", "d", SCHEMA, True, native={"anthropic": MARK}),)},
    ),
    (
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]},
        {"tools": (Native("anthropic", {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}),)},
    ),
    ({"mcp_servers": [{"name": "m"}], "tool_choice": {"type": "any"}}, {"tool_choice": ToolChoice("required")}),
    (
        {"mcp_servers": [{}], "tool_choice": {"type": "tool", "name": "a", "disable_parallel_tool_use": True}},
        {"tool_choice": ToolChoice("tool", ("a",)), "parallel_tool_calls": False},
    ),
    (
        {"mcp_servers": [{}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
        {"tool_choice": ToolChoice("auto"), "parallel_tool_calls": True},
    ),
    ({"system": [text("a", **MARK), text("b")]}, {}),
    ({"container": "c", "context_management": {"edits": []}, "cache_control": {"type": "ephemeral"}}, {}),
    ({"of_tomorrow": {"x": 1}, "speed": "fast", "betas": ["b"], "inference_geo": "eu"}, {}),
    ({"temperature": "hot", "max_tokens": "many", "tools": 5, "system": 6, "thinking": 7, "tool_choice": 8}, {}),
    ({"thinking": {"type": "dreaming"}, "output_config": {"effort": "heroic"}, "service_tier": "best"}, {}),
]


@pytest.mark.parametrize(
    ("fields_given", "fields"), PARAMETERS, ids=[str(fields_given)[:70] for fields_given, _ in PARAMETERS]
)
def test_a_parameter_is_a_field_and_back(fields_given: dict[str, Any], fields: dict[str, Any]) -> None:
    body = {
        "model": "claude",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": "?"}],
        **fields_given,
    }
    read = read_request(body)
    for name, value in fields.items():
        assert getattr(read, name) == value
    again, losses = written(read)
    assert losses == []
    assert again == body


TUNED = {"temperature": 0.5, "top_p": 0.5, "top_k": 5}


@pytest.mark.parametrize(
    ("fields", "options", "expected", "lost"),
    [
        ({"temperature": 1.7}, {}, {"temperature": 1}, ["temperature"]),
        ({"temperature": -1.0}, {}, {"temperature": 0}, ["temperature"]),
        ({"top_p": 3.0}, {}, {"top_p": 1}, ["top_p"]),
        ({"top_k": -7}, {}, {"top_k": None}, ["top_k"]),
        ({"temperature": float("nan")}, {}, {"temperature": None}, ["temperature"]),
        (TUNED, {"version": NEW}, dict.fromkeys(TUNED), list(TUNED)),
        ({"model": "claude-opus-4-7", **TUNED}, {}, dict.fromkeys(TUNED), list(TUNED)),
        ({"model": "claude-opus-4-7", "temperature": 1.0}, {}, {"temperature": 1.0}, []),
        ({"stop": ("END", " ", "")}, {}, {"stop_sequences": ["END"]}, ["stop[1]", "stop[2]"]),
        ({"max_output_tokens": -3}, {}, {"max_tokens": 0}, ["max_output_tokens"]),
        ({}, {}, {"max_tokens": 4096}, []),
        ({"user": "u" * 600}, {}, {"metadata": {"user_id": "u" * 512}}, ["user"]),
        ({"service_tier": "flex"}, {}, {"service_tier": None}, ["service_tier"]),
        ({"service_tier": "default"}, {}, {"service_tier": "standard_only"}, []),
        ({"tool_choice": ToolChoice("required")}, {}, {"tool_choice": None}, ["tool_choice"]),
        ({"parallel_tool_calls": True}, {}, {"tool_choice": None}, ["parallel_tool_calls"]),
        (
            {"tools": (TOOL,), "parallel_tool_calls": False},
            {},
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            [],
        ),
        (
            {"tools": (TOOL,), "parallel_tool_calls": False, "tool_choice": ToolChoice("none")},
            {},
            {"tool_choice": {"type": "none"}},
            ["parallel_tool_calls"],
        ),
        (
            {"tools": (TOOL,), "tool_choice": ToolChoice("tool", ("missing",))},
            {},
            {"tool_choice": {"type": "auto"}},
            ["tool_choice"],
        ),
        (
            {"tools": (TOOL,), "tool_choice": ToolChoice("required"), "model": "claude-opus-5-5"},
            {},
            {"tool_choice": {"type": "auto"}},
            ["tool_choice"],
        ),
        ({"candidates": 1, "logprobs": False, "presence_penalty": 0.0}, {}, {}, []),
    ],
)
def test_parameters_are_brought_into_range(
    fields: dict[str, Any], options: dict[str, Any], expected: dict[str, Any], lost: list[str]
) -> None:
    body, losses = written(request(**fields), **options)
    assert {name: body.get(name) for name in expected} == expected
    assert losses == lost
    assert check_request(body, WriteOptions(**options)) == []


@pytest.mark.parametrize(
    ("name", "reasoning", "thinking", "effort", "lost"),
    [
        (OLD, Reasoning("high"), {"type": "enabled", "budget_tokens": 16384}, None, []),
        (OTHER, Reasoning("minimal"), {"type": "enabled", "budget_tokens": 1024}, None, []),
        (MIDDLE, Reasoning("high"), {"type": "adaptive"}, "high", []),
        (MIDDLE, Reasoning("xhigh"), {"type": "adaptive"}, "high", ["reasoning.effort"]),
        (MIDDLE, Reasoning("minimal"), {"type": "adaptive"}, "low", []),
        (LATE, Reasoning("xhigh", shown="auto"), {"type": "adaptive", "display": "summarized"}, "xhigh", []),
        (LATE, Reasoning(budget_tokens=5000), {"type": "adaptive"}, "medium", []),
        (LATE, Reasoning(budget_tokens=5000, enabled=True, source=OWN), {"type": "adaptive"}, "medium", []),
        (OLD, Reasoning(budget_tokens=5000), {"type": "enabled", "budget_tokens": 5000}, None, []),
        (
            OLD,
            Reasoning(budget_tokens=10),
            {"type": "enabled", "budget_tokens": 1024},
            None,
            ["reasoning.budget_tokens"],
        ),
        (OLD, Reasoning(budget_tokens=-1), {"type": "enabled", "budget_tokens": 4096}, None, []),
        (OLD, Reasoning("none"), {"type": "disabled"}, None, []),
        (OLD, Reasoning(budget_tokens=0), {"type": "disabled"}, None, []),
        (LATEST, Reasoning("none"), None, None, ["reasoning"]),
        (OLD, Reasoning(enabled=True, source=OWN), {"type": "enabled", "budget_tokens": 4096}, None, ["reasoning"]),
        (OTHER, Reasoning(enabled=True, source=OWN), {"type": "adaptive"}, None, []),
        (OTHER, Reasoning("max", source=OWN), None, "max", []),
        (OLD, Reasoning("heroic"), None, None, ["reasoning.effort"]),
        (LATE, Reasoning(shown="auto"), None, None, ["reasoning.shown"]),
        (LATE, Reasoning("low", shown="sung"), {"type": "adaptive"}, "low", ["reasoning.shown"]),
        (LATE, Reasoning("none", shown="auto"), {"type": "disabled"}, None, ["reasoning.shown"]),
        (
            OLD,
            Reasoning("low", native={"gemini": {"x": 1}}),
            {"type": "enabled", "budget_tokens": 1024},
            None,
            ["reasoning.x"],
        ),
    ],
)
def test_reasoning_as_the_model_takes_it(
    name: str, reasoning: Reasoning, thinking: Any, effort: str | None, lost: list[str]
) -> None:
    body, losses = written(request(reasoning=reasoning, model=name))
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    assert losses == lost
    assert check_request(body) == []


BUDGET = Reasoning(budget_tokens=2000)


@pytest.mark.parametrize(
    ("messages", "fields", "thinking", "lost"),
    [
        ((ASK,), {"max_output_tokens": 1500}, {"type": "enabled", "budget_tokens": 1499}, ["reasoning.budget_tokens"]),
        ((ASK,), {"max_output_tokens": 1500, "tools": (TOOL,)}, {"type": "enabled", "budget_tokens": 2000}, []),
        ((ASK,), {"max_output_tokens": 900}, None, ["reasoning"]),
        ((ASK,), {"tools": (TOOL,), "tool_choice": ToolChoice("required")}, None, ["reasoning"]),
        ((ASK, model(CALL), user(RESULT)), {"tools": (TOOL,)}, None, ["reasoning"]),
        ((ASK, model(CALL), user(RESULT), model(Text("")), ASK), {"tools": (TOOL,)}, None, ["reasoning"]),
        ((ASK, model(SIGNED, CALL), user(RESULT)), {"tools": (TOOL,)}, {"type": "enabled", "budget_tokens": 2000}, []),
        (
            (ASK, model(CALL), user(RESULT), ANSWER, ASK),
            {"tools": (TOOL,)},
            {"type": "enabled", "budget_tokens": 2000},
            [],
        ),
        (
            (ASK,),
            {"temperature": 0.2, "top_k": 3},
            {"type": "enabled", "budget_tokens": 2000},
            ["temperature", "top_k"],
        ),
    ],
)
def test_thinking_that_goes_with_the_rest(
    messages: tuple[Message, ...], fields: dict[str, Any], thinking: Any, lost: list[str]
) -> None:
    body, losses = written(request(*messages, reasoning=BUDGET, **fields))
    assert body.get("thinking") == thinking
    assert losses == lost
    assert check_request(body) == []


def test_adaptive_thinking_is_as_strict_about_sampling() -> None:
    tuned = {"temperature": 0.2, "top_p": 0.5, "top_k": 3}
    body, losses = written(request(reasoning=Reasoning("low"), model=MIDDLE, **tuned))
    assert losses == ["temperature", "top_p", "top_k"]
    body, losses = written(request(reasoning=Reasoning("low"), model=MIDDLE, temperature=1.0))
    assert (body["temperature"], losses) == (1.0, [])
    body, losses = written(request(reasoning=Reasoning("low"), model=MIDDLE, top_p=0.96))
    assert (body["top_p"], losses) == (0.96, [])
