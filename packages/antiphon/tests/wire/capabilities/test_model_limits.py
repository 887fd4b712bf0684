"""What named models refuse (public bug reports and recorded refusals) is not sent to them, and every change is reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Text
from antiphon.wire import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition, formats
from support.cases import each_case

ASK = Message("user", (Text("Is it raining?"),))
SAID = Message("assistant", (Text("It is"),))
TOOL = ToolDefinition("weather", "Weather.", {"type": "object", "properties": {}, "additionalProperties": False})
CHAT, RESPONSES = "openai-chat", "openai-responses"
OPENAI = (CHAT, RESPONSES)


def write(target: str, model: str, **fields: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The body for a model, checked by its rules, and the reported changes by path."""
    messages = fields.pop("messages", (ASK,))
    request = ModelRequest(messages=messages, model=model, **fields)
    body, losses = formats[target].write_request(request)
    options: dict[str, Any] = {"model": model} if target == "gemini" else {}
    assert formats[target].check_request(msgspec.json.decode(msgspec.json.encode(body)), **options) == []
    return body, {loss.path: loss.why for loss in losses}


def effort_of(target: str, body: dict[str, Any]) -> str | None:
    effort = body.get("reasoning_effort") if target == CHAT else (body.get("reasoning") or {}).get("effort")
    return effort if isinstance(effort, str) else None


SAMPLING = {
    "temperature": 0.3,
    "top_p": 0.5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logprobs": True,
    "top_logprobs": 3,
}


@pytest.mark.parametrize("target", OPENAI)
@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "gpt-5-nano-2025-08-07", "o1", "o3", "o3-mini", "o4-mini"])
def test_reasoning_models_get_no_sampling(target: str, model: str) -> None:
    body, losses = write(target, model, **SAMPLING)
    assert not SAMPLING.keys() & body.keys()
    assert "include" not in body
    assert losses.keys() == SAMPLING.keys()


@pytest.mark.parametrize("target", OPENAI)
@pytest.mark.parametrize(
    ("model", "reasoning", "kept"),
    [
        ("gpt-5.1", None, True),
        ("gpt-5.4-nano", None, True),  # recorded: temperature 0 was accepted
        ("gpt-5.4", Reasoning("low"), False),
        ("gpt-5.6-sol", Reasoning("none"), True),  # recorded
        ("gpt-5.6-sol", None, False),
        ("gpt-6-astra", None, False),
        ("gpt-4o", None, True),
        ("gpt-5-chat-latest", None, True),
    ],
)
def test_newer_models_accept_sampling_while_they_do_not_reason(
    target: str, model: str, reasoning: Reasoning | None, kept: bool
) -> None:
    body, losses = write(target, model, temperature=0, reasoning=reasoning)
    assert ("temperature" in body) == kept
    assert ("temperature" in losses) == (not kept)


def test_default_sampling_is_not_reported_as_a_loss() -> None:
    body, losses = write(CHAT, "gpt-5", temperature=1, top_p=1, presence_penalty=0, logprobs=False)
    assert losses == {}
    assert body["temperature"] == 1  # recorded: the default was accepted
    assert "top_p" not in body


def test_logit_bias_and_web_search_of_chat_clients() -> None:
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "?"}], "logit_bias": {"50256": -100}}
    written, losses = formats[CHAT].write_request(formats[CHAT].read_request(body))
    assert "logit_bias" not in written
    assert [loss.path for loss in losses] == ["native.logit_bias"]
    assert [found.path for found in formats[CHAT].check_request(body)] == ["logit_bias"]
    searching = {"model": "gpt-4o", "messages": body["messages"], "web_search_options": {}}
    written, losses = formats[CHAT].write_request(formats[CHAT].read_request(searching))
    assert "web_search_options" not in written
    assert [loss.path for loss in losses] == ["native.web_search_options"]


@pytest.mark.parametrize("dialect", ["openai", "compatible"])
def test_max_tokens_is_renamed_also_for_an_alias_of_the_same_format(dialect: str) -> None:
    body = {"model": "fast", "messages": [{"role": "user", "content": "?"}], "max_tokens": 50}
    request = msgspec.structs.replace(formats[CHAT].read_request(body), model="gpt-5-mini")
    written, losses = formats[CHAT].write_request(request, dialect=dialect)
    assert (written["max_completion_tokens"], losses) == (50, [])
    assert "max_tokens" not in written
    sent = {**body, "model": "gpt-5-mini"}
    assert [found.path for found in formats[CHAT].check_request(sent)] == ["max_tokens"]


def test_both_limits_of_one_body_become_one() -> None:
    body = {
        "model": "gpt-5",
        "messages": [{"role": "user", "content": "?"}],
        "max_tokens": 5,
        "max_completion_tokens": 9,
    }
    written, losses = formats[CHAT].write_request(formats[CHAT].read_request(body))
    assert written["max_completion_tokens"] == 9
    assert [loss.path for loss in losses] == ["native.max_tokens"]
    assert formats[CHAT].check_request(written) == []


EFFORTS = [
    ("gpt-5.1", "minimal", "low"),
    ("gpt-5", "none", "minimal"),
    ("gpt-5", "max", "high"),
    ("gpt-5", "xhigh", "high"),
    ("gpt-5-codex", "minimal", "low"),
    ("gpt-5-pro", "low", "high"),
    ("gpt-5.2", "max", "xhigh"),
    ("gpt-5.4-pro", "low", "medium"),
    ("gpt-5.1-chat-latest", "high", "medium"),
    ("o3", "none", "low"),
    ("o4-mini", "minimal", "low"),
    ("o1", "max", "high"),
    ("gpt-6-astra", "none", "low"),
    ("gpt-5.6-terra", "max", "max"),
    ("gpt-5.2", "none", "none"),
]


@each_case("target", OPENAI)
@each_case(("model", "asked", "sent"), EFFORTS)
def test_efforts_are_those_of_the_model(target: str, model: str, asked: str, sent: str) -> None:
    body, losses = write(target, model, reasoning=Reasoning(asked))
    assert effort_of(target, body) == sent
    assert (list(losses) == []) == (asked == sent)
    assert list(losses) == ([] if asked == sent else ["reasoning.effort"])


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1", "gpt-3.5-turbo", "gpt-5-chat-latest", "o1-mini"])
@pytest.mark.parametrize("target", OPENAI)
def test_a_model_without_reasoning_gets_no_effort(target: str, model: str) -> None:
    body, losses = write(target, model, reasoning=Reasoning("high"))
    assert effort_of(target, body) is None
    assert "reasoning" not in body
    assert list(losses) == ["reasoning.effort"]
    assert write(target, model, reasoning=Reasoning("none"))[1] == {}


@each_case("model", ["gpt-5", "gpt-5.1", "gpt-5.6", "o3", "gpt-6-astra", "gpt-4o", "some-model"])
@each_case(
    "reasoning",
    [
        *(
            Reasoning(budget_tokens=tokens)
            for tokens in (0, 1, 511, 512, 1024, 2000, 4096, 9000, 16_384, 40_000, 99_999)
        ),
        *(Reasoning(effort) for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max")),
        Reasoning(enabled=True),
        Reasoning(enabled=False),
        Reasoning(budget_tokens=-1),
    ],
)
def test_chat_and_responses_agree(model: str, reasoning: Reasoning) -> None:
    (chat, chat_losses), (responses, responses_losses) = (
        write(target, model, reasoning=reasoning) for target in OPENAI
    )
    assert effort_of(CHAT, chat) == effort_of(RESPONSES, responses)
    assert list(chat_losses) == list(responses_losses)


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o4-mini"])
@pytest.mark.parametrize("target", OPENAI)
def test_the_parallel_switch_is_left_out_for_the_o_series(target: str, model: str) -> None:
    body, losses = write(target, model, tools=(TOOL,), parallel_tool_calls=False)
    assert ("parallel_tool_calls" in body, list(losses)) == (False, ["parallel_tool_calls"])
    body, losses = write(target, model, tools=(TOOL,), parallel_tool_calls=True)
    assert ("parallel_tool_calls" in body, losses) == (False, {})


@pytest.mark.parametrize("model", ["claude-opus-4-1", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-6"])
def test_claude_gets_temperature_or_top_p(model: str) -> None:
    body, losses = write("anthropic", model, temperature=0.5, top_p=0.9)
    assert (body["temperature"], "top_p" in body, list(losses)) == (0.5, False, ["top_p"])
    body, losses = write("anthropic", model, temperature=1, top_p=0.9)
    assert (body["top_p"], "temperature" in body, losses) == (0.9, False, {})
    body, losses = write("anthropic", model, temperature=0, top_p=1)
    assert (body["temperature"], "top_p" in body, losses) == (0, False, {})


def test_older_claude_keeps_both() -> None:
    body, losses = write("anthropic", "claude-sonnet-4-0", temperature=0.7, top_p=0.3)  # recorded
    assert (body["temperature"], body["top_p"], losses) == (0.7, 0.3, {})


def test_claude_on_a_chat_host_gets_temperature_or_top_p() -> None:
    request = ModelRequest(messages=(ASK,), model="anthropic/claude-sonnet-4.5", temperature=0.5, top_p=0.9)
    body, losses = formats[CHAT].write_request(request, dialect="compatible")
    assert ("top_p" in body, [loss.path for loss in losses]) == (False, ["top_p"])


def anthropic_request(model: str, **fields: Any) -> ModelRequest:
    body = {"model": model, "max_tokens": 4000, "messages": [{"role": "user", "content": "?"}], **fields}
    return formats["anthropic"].read_request(body)


@pytest.mark.parametrize(
    "model", ["claude-sonnet-4-5", "claude-haiku-4-5", "claude-sonnet-4-0", "claude-3-5-haiku-latest"]
)
def test_effort_is_left_out_for_claude_models_without_it(model: str) -> None:
    body, losses = formats["anthropic"].write_request(anthropic_request(model, output_config={"effort": "high"}))
    assert "output_config" not in body
    assert [loss.path for loss in losses] == ["reasoning.effort"]


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [("claude-opus-4-5", "max", "high"), ("claude-opus-4-6", "xhigh", "high"), ("claude-opus-4-7", "xhigh", "xhigh")],
)
def test_claude_efforts(model: str, asked: str, sent: str) -> None:
    body, losses = formats["anthropic"].write_request(anthropic_request(model, output_config={"effort": asked}))
    assert body["output_config"] == {"effort": sent}
    assert len(losses) == (asked != sent)


def test_top_efforts_need_thinking_on_opus_5() -> None:
    fields = {"output_config": {"effort": "max"}, "thinking": {"type": "disabled"}}
    body, losses = formats["anthropic"].write_request(anthropic_request("claude-opus-5", **fields))
    assert (body["output_config"], [loss.path for loss in losses]) == ({"effort": "high"}, ["reasoning.effort"])
    body, losses = formats["anthropic"].write_request(anthropic_request("claude-opus-4-8", **fields))
    assert (body["output_config"], losses) == ({"effort": "max"}, [])


@pytest.mark.parametrize("model", ["claude-3-haiku-20240307", "claude-3-5-sonnet-20241022"])
@pytest.mark.parametrize(
    "reasoning", [Reasoning("high"), Reasoning(budget_tokens=5000), Reasoning(enabled=True)], ids=str
)
def test_old_claude_does_not_think(model: str, reasoning: Reasoning) -> None:
    body, losses = write("anthropic", model, reasoning=reasoning)
    assert "thinking" not in body
    assert list(losses) == ["reasoning"]
    assert write("anthropic", model, reasoning=Reasoning("none"))[1] == {}


@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        ("claude-sonnet-4-5", False),
        ("claude-opus-4-6", False),
        ("claude-opus-4-7", False),
        ("claude-opus-4-8", True),
        ("claude-opus-5", True),
    ],
)
def test_thinking_with_a_forced_tool(model: str, thinks: bool) -> None:
    body, losses = write(
        "anthropic", model, reasoning=Reasoning("high"), tools=(TOOL,), tool_choice=ToolChoice("required")
    )
    assert body["tool_choice"] == {"type": "any"}
    assert ("thinking" in body) == thinks
    assert ("reasoning" in losses) == (not thinks)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1"])
def test_models_that_always_think_cannot_be_forced(model: str) -> None:
    body, losses = write("anthropic", model, tools=(TOOL,), tool_choice=ToolChoice("required"))
    assert (body["tool_choice"], list(losses)) == ({"type": "auto"}, ["tool_choice"])


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-1", "claude-3-7-sonnet-latest"])
def test_thinking_is_left_out_with_a_prefilled_answer(model: str) -> None:
    fields = {"messages": (ASK, SAID), "max_output_tokens": 8000}
    body, losses = write("anthropic", model, reasoning=Reasoning(budget_tokens=2000), **fields)
    assert ("thinking" in body, body["messages"][-1]["role"]) == (False, "assistant")
    assert list(losses) == ["reasoning"]


def test_a_budget_is_kept_below_the_limit_of_the_model() -> None:
    body, losses = write("anthropic", "claude-opus-4-1", reasoning=Reasoning(budget_tokens=60_000))
    assert body["max_tokens"] == 32_000
    assert body["thinking"]["budget_tokens"] == 31_999
    assert list(losses) == ["reasoning.budget_tokens"]


LIMITS = [
    (CHAT, "gpt-4o", "max_completion_tokens", 16_384),
    (RESPONSES, "gpt-4o", "max_output_tokens", 16_384),
    ("anthropic", "claude-sonnet-4-5", "max_tokens", 64_000),
    ("anthropic", "claude-3-haiku-20240307", "max_tokens", 4096),
    ("gemini", "gemini-2.5-flash", "maxOutputTokens", 65_536),
    ("gemini", "gemini-2.0-flash", "maxOutputTokens", 8192),
]


@pytest.mark.parametrize(("target", "model", "key", "limit"), LIMITS)
def test_output_tokens_are_limited_to_what_the_model_gives(target: str, model: str, key: str, limit: int) -> None:
    body, losses = write(target, model, max_output_tokens=10_000_000)
    assert body.get("generationConfig", body)[key] == limit
    assert list(losses) == ["max_output_tokens"]
    body, losses = write(target, model, max_output_tokens=limit)
    assert (body.get("generationConfig", body)[key], losses) == (limit, {})


GEMINI_THINKING = [
    ("gemini-3-pro-preview", Reasoning("minimal"), {"thinkingLevel": "LOW"}, ["reasoning.effort"]),
    ("gemini-3-pro-preview", Reasoning("medium"), {"thinkingLevel": "LOW"}, ["reasoning.effort"]),
    ("gemini-3-pro-preview", Reasoning("high"), {"thinkingLevel": "HIGH"}, []),
    ("gemini-3-pro-preview", Reasoning("none"), {"thinkingLevel": "LOW"}, ["reasoning.effort"]),
    ("gemini-3.1-pro-preview", Reasoning("medium"), {"thinkingLevel": "MEDIUM"}, []),
    ("gemini-3-flash-preview", Reasoning("minimal"), {"thinkingLevel": "MINIMAL"}, []),
    ("gemini-3.8-flash", Reasoning("minimal"), {"thinkingLevel": "LOW"}, ["reasoning.effort"]),
    ("gemini-4-argon", Reasoning(budget_tokens=0), {"thinkingLevel": "LOW"}, ["reasoning.budget_tokens"]),
    ("gemini-2.5-flash", Reasoning(budget_tokens=50_000), {"thinkingBudget": 24_576}, ["reasoning.budget_tokens"]),
    ("gemini-2.5-flash", Reasoning("max"), {"thinkingBudget": 24_576}, ["reasoning.budget_tokens"]),
    ("gemini-2.5-flash", Reasoning(budget_tokens=128), {"thinkingBudget": 128}, []),
    ("gemini-2.5-flash", Reasoning("none"), {"thinkingBudget": 0}, []),
    ("gemini-2.5-pro", Reasoning(budget_tokens=50_000), {"thinkingBudget": 32_768}, ["reasoning.budget_tokens"]),
    ("gemini-2.5-pro", Reasoning("none"), {"thinkingBudget": 128}, ["reasoning.effort"]),
    ("gemini-2.5-flash-lite", Reasoning(budget_tokens=100), {"thinkingBudget": 512}, ["reasoning.budget_tokens"]),
    ("gemini-2.5-flash-lite", Reasoning(enabled=False), {"thinkingBudget": 0}, []),
    ("gemini-2.0-flash", Reasoning("high"), None, ["reasoning.effort"]),
    ("gemini-2.0-flash", Reasoning(budget_tokens=500), None, ["reasoning.budget_tokens"]),
    ("gemini-2.0-flash", Reasoning("none"), None, []),
    ("gemini-2.5-flash-image", Reasoning("low"), None, ["reasoning.effort"]),
    ("gemini-1.5-pro", Reasoning("low", shown="auto"), None, ["reasoning.effort", "reasoning.shown"]),
]


@pytest.mark.parametrize(("model", "reasoning", "sent", "lost"), GEMINI_THINKING)
def test_gemini_thinking(model: str, reasoning: Reasoning, sent: dict[str, Any] | None, lost: list[str]) -> None:
    body, losses = write("gemini", model, reasoning=reasoning)
    assert body.get("generationConfig", {}).get("thinkingConfig") == sent
    assert list(losses) == lost


@pytest.mark.parametrize(
    ("field", "value", "key", "sent"),
    [
        ("candidates", 9, "candidateCount", 8),
        ("candidates", 0, "candidateCount", 1),
        ("max_output_tokens", 0, "maxOutputTokens", None),
        ("max_output_tokens", 65_537, "maxOutputTokens", 65_536),
    ],
)
def test_gemini_ranges(field: str, value: int, key: str, sent: int | None) -> None:
    body, losses = write("gemini", "gemini-2.5-flash", **{field: value})
    assert body.get("generationConfig", {}).get(key) == sent
    assert list(losses) == [field]


SCHEMA = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 1, "description": "in years"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 5},
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "home": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}},
    },
    "required": ["age", "tags", "names", "home"],
}
LEGAL = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "description": "in years (minimum: 1)"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "maxItems: 5, minItems: 2"},
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "home": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "maxLength: 9"}},
            "additionalProperties": False,
        },
    },
    "required": ["age", "tags", "names", "home"],
    "additionalProperties": False,
}
CHANGED = {
    "additionalProperties",
    "properties.age.minimum",
    "properties.tags.maxItems",
    "properties.tags.minItems",
    "properties.home.additionalProperties",
    "properties.home.properties.city.maxLength",
}


def test_output_schemas_for_claude_are_closed_and_without_bounds() -> None:
    before = msgspec.json.encode(SCHEMA)
    body, losses = write("anthropic", "claude-sonnet-4-5", output_format=OutputFormat("json_schema", SCHEMA))
    assert body["output_config"]["format"]["schema"] == LEGAL
    assert losses.keys() == {f"output_format.schema.{path}" for path in CHANGED}
    assert msgspec.json.encode(SCHEMA) == before


def test_strict_tools_for_claude_are_closed_and_without_bounds() -> None:
    strict, loose = ToolDefinition("a", None, SCHEMA, strict=True), ToolDefinition("b", None, SCHEMA)
    body, losses = write("anthropic", "claude-sonnet-4-5", tools=(strict, loose))
    assert [tool["input_schema"] for tool in body["tools"]] == [LEGAL, SCHEMA]
    assert losses.keys() == {f"tools[0].parameters.{path}" for path in CHANGED}


def test_claude_models_without_structured_output() -> None:
    wanted = OutputFormat("json_schema", LEGAL)
    body, losses = write(
        "anthropic", "claude-3-5-haiku-latest", output_format=wanted, tools=(ToolDefinition("a", None, LEGAL, True),)
    )
    assert "output_config" not in body
    assert "strict" not in body["tools"][0]
    assert list(losses) == ["tools[0].strict", "output_format"]


CAPTURED = [
    # What GitHub Copilot and gptme set beside the conversation; Claude 4.5 answered such requests with a 400.
    {"temperature": 0, "top_p": 1, "max_tokens": 16_384, "n": 1, "stream": True},
    {"temperature": 0.1, "top_p": 0.95, "max_tokens": 4096, "stream": True},
    {"temperature": 0.6, "top_p": 0.9, "max_tokens": 200_000},
    {"temperature": 0, "top_p": 1, "reasoning_effort": "high", "max_completion_tokens": 9000},
]


@pytest.mark.parametrize("settings", CAPTURED, ids=str)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-1"])
def test_parameters_of_chat_clients_are_fitted_to_claude(model: str, settings: dict[str, Any]) -> None:
    chat = {"model": "x", "messages": [{"role": "user", "content": "Hi"}], **settings}
    request = msgspec.structs.replace(formats[CHAT].read_request(chat), model=model)
    body, _ = formats["anthropic"].write_request(request)
    assert formats["anthropic"].check_request(body) == []
    assert not {"temperature", "top_p"} <= body.keys()


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_an_unset_top_p_is_left_out(target: str) -> None:
    body, losses = write(target, "some-model", top_p=-1)
    assert ("top_p" in body, "generationConfig" in body, losses) == (False, False, {})


@pytest.mark.parametrize("wanted", [Reasoning(enabled=False, budget_tokens=8192), Reasoning("none", 8192)])
@pytest.mark.parametrize(
    ("target", "model", "sent"),
    [
        (CHAT, "gpt-5.2", {"reasoning_effort": "none"}),
        (RESPONSES, "gpt-5.2", {"reasoning": {"effort": "none"}}),
        ("anthropic", "claude-sonnet-4-5", {"thinking": {"type": "disabled"}}),
        ("gemini", "gemini-2.5-flash", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}),
        ("gemini-interactions", "gemini-3-flash-preview", {"generation_config": {"thinking_level": "minimal"}}),
    ],
)
def test_no_thinking_wins_over_a_budget(target: str, model: str, sent: dict[str, Any], wanted: Reasoning) -> None:
    body, _ = write(target, model, reasoning=wanted)
    assert {key: body[key] for key in sent} == sent


def test_a_dynamic_budget_is_not_read_as_no_thinking() -> None:
    body, losses = write("gemini-interactions", "gemini-3-flash-preview", reasoning=Reasoning(budget_tokens=-1))
    assert ("generation_config" in body, losses) == (False, {})
