"""Each rule of the Interactions API refuses what it is about; every rule has a case, and the specification agrees."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.wire.gemini_interactions.rules import RULES
from support.interactions_spec import request_problems
from wire.gemini_interactions.bodies import CALL, MODEL, RESULT, TOOL, WIRE, output, text, user

OLDER = "gemini-2.5-flash"
SVG = {"type": "image", "data": "AA", "mime_type": "image/svg+xml"}
SOUND = {"type": "audio", "data": "AA"}
SPECIFIED = "refused by the specification too"
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("GI-01", {"input": None}, "input", SPECIFIED),
    ("GI-01", {"input": 5}, "input", SPECIFIED),
    ("GI-01", {"input": []}, "input", ""),
    ("GI-01", {"model": None}, "model", SPECIFIED),
    ("GI-01", {"agent": "deep-research-preview-04-2026"}, "agent", ""),
    ("GI-02", {"temperature": 1}, "temperature", ""),
    ("GI-02", {"store": "no"}, "store", SPECIFIED),
    ("GI-02", {"system_instruction": {"parts": []}}, "system_instruction", SPECIFIED),
    ("GI-03", {"input": [user("?"), 5]}, "input[1]", SPECIFIED),
    ("GI-03", {"input": [{"type": "user_input", "content": "Hi"}]}, "input[0].content", SPECIFIED),
    ("GI-03", {"input": [text("?"), user("?")]}, "input[0]", SPECIFIED),
    ("GI-03", {"input": [user("?"), {"type": "thought", "summary": "Hm."}, user("?")]}, "input[1].summary", SPECIFIED),
    ("GI-03", {"input": [user("?"), CALL, {**RESULT, "call_id": 5}]}, "input[2].call_id", SPECIFIED),
    ("GI-04", {"input": [user("?"), {**CALL, "name": ""}, RESULT]}, "input[1].name", ""),
    ("GI-04", {"input": [user("?"), {**CALL, "arguments": "{}"}, RESULT]}, "input[1].arguments", SPECIFIED),
    ("GI-05", {"input": [user({"type": "text"})]}, "input[0].content[0].text", SPECIFIED),
    ("GI-05", {"input": [user({"type": "input_text", "text": "?"})]}, "input[0].content[0]", SPECIFIED),
    ("GI-05", {"input": [user({"type": "image", "mime_type": "image/png"})]}, "input[0].content[0]", ""),
    ("GI-05", {"input": [user({"type": "image", "data": "data:image/png;base64,AA"})]}, "input[0].content[0].data", ""),
    (
        "GI-06",
        {"input": [user(SVG)]},
        "input[0].content[0].mime_type",
        SPECIFIED,
    ),
    ("GI-07", {"generation_config": 5}, "generation_config", SPECIFIED),
    ("GI-07", {"generation_config": {"temperature": 3}}, "generation_config.temperature", ""),
    ("GI-07", {"generation_config": {"thinking_level": "max"}}, "generation_config.thinking_level", SPECIFIED),
    (
        "GI-07",
        {"model": OLDER, "generation_config": {"thinking_level": "low"}},
        "generation_config.thinking_level",
        "",
    ),
    ("GI-07", {"generation_config": {"thinking_summaries": "all"}}, "generation_config.thinking_summaries", SPECIFIED),
    ("GI-07", {"generation_config": {"stop_sequences": ["a"] * 6}}, "generation_config.stop_sequences", ""),
    ("GI-08", {"tools": [{"name": "f"}]}, "tools[0]", SPECIFIED),
    ("GI-08", {"tools": [{"type": "function", "name": "1 bad"}]}, "tools[0].name", ""),
    ("GI-08", {"tools": [TOOL, TOOL]}, "tools[1].name", ""),
    ("GI-08", {"tools": [{"type": "function", "name": "f", "function": {}}]}, "tools[0].function", ""),
    (
        "GI-09",
        {"tools": [TOOL], "generation_config": {"tool_choice": "required"}},
        "generation_config.tool_choice",
        SPECIFIED,
    ),
    ("GI-09", {"generation_config": {"tool_choice": "any"}}, "generation_config.tool_choice", ""),
    ("GI-10", {"input": [CALL, RESULT]}, "input[0]", ""),
    ("GI-10", {"input": [user("?"), RESULT]}, "input[1].call_id", ""),
    ("GI-10", {"input": [user("?"), CALL, user("?")]}, "input[1]", ""),
    ("GI-10", {"input": [user("?"), output("Yes.")]}, "input[1]", ""),
    ("GI-11", {"response_format": "json"}, "response_format", SPECIFIED),
    ("GI-11", {"response_format": {"type": "text", "mime_type": "text/html"}}, "response_format.mime_type", ""),
    ("GI-11", {"response_format": {"type": "text", "schema": {}}}, "response_format.schema", ""),
    ("GI-12", {"service_tier": "auto"}, "service_tier", SPECIFIED),
    ("GI-13", {"background": True, "store": False}, "background", ""),
    ("GI-14", {"input": [user("?"), CALL, {**RESULT, "result": 5}]}, "input[2].result", SPECIFIED),
    (
        "GI-14",
        {"input": [user("?"), CALL, {**RESULT, "result": [SOUND]}]},
        "input[2].result[0]",
        SPECIFIED,
    ),
]


def body_with(fields: dict[str, Any]) -> dict[str, Any]:
    body = {"model": MODEL, "input": [user("?")], **fields}
    return {name: value for name, value in body.items() if value is not None}


@pytest.mark.parametrize(("rule", "fields", "path", "judge"), CASES)
def test_a_broken_rule_is_found(rule: str, fields: dict[str, Any], path: str, judge: str) -> None:
    body = body_with(fields)
    assert [(found.rule, found.path) for found in WIRE.check_request(body)] == [(rule, path)]
    if judge:
        assert request_problems(body) != []


def test_a_model_of_text_refuses_media() -> None:
    from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable

    table = CapabilityTable([CapabilityOverride(model=MODEL, text_only=True)])
    body = body_with({"input": [user({"type": "image", "data": "AA", "mime_type": "image/png"})]})
    assert [found.rule for found in WIRE.check_request(body, capabilities=table)] == ["GI-15"]


def test_a_thought_without_its_signature_is_an_advisory() -> None:
    body = body_with({"input": [user("?"), {"type": "thought", "summary": [text("Hm.")]}, user("?")]})
    assert WIRE.check_request(body) == []
    assert [found.rule for found in WIRE.check_request(body, advisories=True)] == ["GI-16"]


def test_every_rule_has_a_case_and_a_source() -> None:
    assert {rule for rule, *_ in CASES} | {"GI-15", "GI-16"} == set(RULES.rules)
    assert all(rule.source for rule in RULES.rules.values())


@pytest.mark.parametrize("body", [None, 5, [], "x", {}])
def test_anything_can_be_checked(body: Any) -> None:
    assert WIRE.check_request(body)[0].rule == "GI-01"
