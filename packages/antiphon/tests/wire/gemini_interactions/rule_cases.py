"""Each rule of the Interactions API: a body that breaks it, and the nearest body that does not.

`SPECIFIED` has the cases whose broken body the specification refuses too.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable
from antiphon.wire.format import WriteOptions
from support.rule_cases import Case
from wire.gemini_interactions.bodies import CALL, IMAGE, MODEL, RESULT, THOUGHT, TOOL, output, text, user

OLDER = "gemini-2.5-flash"
PART = "input[0].content[0]"
SVG = {"type": "image", "data": "AA", "mime_type": "image/svg+xml"}
SOUND = {"type": "audio", "data": "AA"}
TEXT_ONLY = WriteOptions(capabilities=CapabilityTable([CapabilityOverride(model=MODEL, text_only=True)]))


def ask(*steps: Any, **parameters: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": list(steps) or [user("?")], **parameters}


def config(**fields: Any) -> dict[str, Any]:
    return ask(generation_config=fields)


def tools(*declared: Any) -> dict[str, Any]:
    return ask(tools=list(declared))


def answered(**fields: Any) -> dict[str, Any]:
    return ask(user("?"), CALL, {**RESULT, **fields})


def called(**fields: Any) -> dict[str, Any]:
    return ask(user("?"), {**CALL, **fields}, RESULT)


# fmt: off
SPECIFIED = [
    Case("GI-01", "input", {"model": MODEL}, ask()),
    Case("GI-01", "input", {"model": MODEL, "input": 5}, {"model": MODEL, "input": "?"}),
    Case("GI-01", "model", {"input": "?"}, ask()),
    Case("GI-02", "store", ask(store="no"), ask(store=False)),
    Case("GI-02", "system_instruction", ask(system_instruction={"parts": []}), ask(system_instruction="Hi")),
    Case("GI-03", "input[1]", ask(user("?"), 5), ask(user("?"), user("!"))),
    Case("GI-03", "input[0].content", ask({"type": "user_input", "content": "Hi"}), ask(user("Hi"))),
    Case("GI-03", "input[0]", ask(text("?"), user("?")), ask(text("?"), text("?"))),
    Case("GI-03", "input[1].summary",
         ask(user("?"), {"type": "thought", "summary": "Hm."}, user("?")), ask(user("?"), THOUGHT, user("?"))),
    Case("GI-03", "input[2].call_id", answered(call_id=5), answered()),
    Case("GI-04", "input[1].arguments", called(arguments="{}"), called(arguments={})),
    Case("GI-05", f"{PART}.text", ask(user({"type": "text"})), ask(user({"type": "text", "text": ""}))),
    Case("GI-05", PART, ask(user({"type": "input_text", "text": "?"})), ask(user(text("?")))),
    Case("GI-06", f"{PART}.mime_type", ask(user(SVG)), ask(user(IMAGE))),
    Case("GI-07", "generation_config", ask(generation_config=5), ask(generation_config={})),
    Case("GI-07", "generation_config.thinking_level",
         config(thinking_level="max"), config(thinking_level="low")),
    Case("GI-07", "generation_config.thinking_summaries",
         config(thinking_summaries="all"), config(thinking_summaries="auto")),
    Case("GI-08", "tools[0]", tools({"name": "f"}), tools({"type": "function", "name": "f"})),
    Case("GI-09", "generation_config.tool_choice",
         {**tools(TOOL), "generation_config": {"tool_choice": "required"}},
         {**tools(TOOL), "generation_config": {"tool_choice": "any"}}),
    Case("GI-11", "response_format", ask(response_format="json"), ask(response_format={"type": "text"})),
    Case("GI-12", "service_tier", ask(service_tier="auto"), ask(service_tier="flex")),
    Case("GI-14", "input[2].result", answered(result=5), answered(result={"rain": 5})),
    Case("GI-14", "input[2].result[0]", answered(result=[SOUND]), answered(result=[IMAGE])),
]
CASES = [
    *SPECIFIED,
    Case("GI-01", "input", {"model": MODEL, "input": []}, ask()),
    Case("GI-01", "agent",
         ask(agent="deep-research-preview-04-2026"), {"agent": "deep-research-preview-04-2026", "input": "?"}),
    Case("GI-02", "temperature", ask(temperature=1), config(temperature=1)),
    Case("GI-04", "input[1].name", called(name=""), called(name="weather")),
    Case("GI-05", PART,
         ask(user({"type": "image", "mime_type": "image/png"})),
         ask(user({"type": "image", "uri": "https://example.com/a.png"}))),
    Case("GI-05", f"{PART}.data",
         ask(user({"type": "image", "data": "data:image/png;base64,AA"})), ask(user(IMAGE))),
    Case("GI-07", "generation_config.temperature", config(temperature=3), config(temperature=2)),
    Case("GI-07", "generation_config.thinking_level",
         {**config(thinking_level="low"), "model": OLDER}, config(thinking_level="low")),
    Case("GI-07", "generation_config.stop_sequences",
         config(stop_sequences=["a"] * 6), config(stop_sequences=["a"] * 5)),
    Case("GI-08", "tools[0].name",
         tools({"type": "function", "name": "1 bad"}), tools({"type": "function", "name": "good"})),
    Case("GI-08", "tools[1].name", tools(TOOL, TOOL), tools(TOOL, {**TOOL, "name": "other"})),
    Case("GI-08", "tools[0].function",
         tools({"type": "function", "name": "f", "function": {}}), tools({"type": "function", "name": "f"})),
    Case("GI-09", "generation_config.tool_choice", config(tool_choice="any"),
         {**tools(TOOL), "generation_config": {"tool_choice": "any"}}),
    Case("GI-10", "input[0]", ask(CALL, RESULT), ask(user("?"), CALL, RESULT)),
    Case("GI-10", "input[1].call_id", ask(user("?"), RESULT), answered()),
    Case("GI-10", "input[1]", ask(user("?"), CALL, user("?")), ask(user("?"), CALL, RESULT, user("?"))),
    Case("GI-10", "input[1]", ask(user("?"), output("Yes.")), ask(user("?"), output("Yes."), user("?"))),
    Case("GI-11", "response_format.mime_type",
         ask(response_format={"type": "text", "mime_type": "text/html"}),
         ask(response_format={"type": "text", "mime_type": "text/plain"})),
    Case("GI-11", "response_format.schema",
         ask(response_format={"type": "text", "schema": {}}),
         ask(response_format={"type": "text", "mime_type": "application/json", "schema": {}})),
    Case("GI-13", "background", ask(background=True, store=False), ask(background=True)),
    Case("GI-15", PART, ask(user(IMAGE)), ask(user("?")), TEXT_ONLY),
]
ADVICE = [
    Case("GI-16", "input[1].signature",
         ask(user("?"), {"type": "thought", "summary": [text("Hm.")]}, user("?")),
         ask(user("?"), THOUGHT, user("?"))),
]
# fmt: on

WORDS = (
    "type text content user_input model_output function_call function_result call_id id name result arguments call_1"
)
"""Names of the format, for arbitrary bodies."""
