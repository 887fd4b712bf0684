"""Each rule of generateContent: a body that breaks it, the nearest body that does not, and the recorded traffic for both."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.wire.format import WriteOptions
from antiphon.wire.gemini.rules import RULES, check_request, check_sequence
from support.corpus import client_captures, recorded
from support.rule_cases import (
    Case,
    any_bodies,
    assert_advised_on_demand,
    assert_check_only_reports,
    assert_only_this_rule_is_broken,
    label,
)


def content(role: str | None, *parts: Any) -> dict[str, Any]:
    return {"parts": list(parts)} if role is None else {"role": role, "parts": list(parts)}


def user(*parts: Any) -> dict[str, Any]:
    return content("user", *parts)


def model(*parts: Any) -> dict[str, Any]:
    return content("model", *parts)


def text(words: Any = "Is it raining in Oslo?") -> dict[str, Any]:
    return {"text": words}


def call(name: Any = "weather", signature: str = "", **fields: Any) -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": name, "args": {"city": "Oslo"}, **fields}, **signed}


def response(name: Any = "weather", **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "rain"}, **fields}}


ASK = user(text())
ROUND = (ASK, model(call()), user(response()))
FUNCTIONS = [{"functionDeclarations": [{"name": "weather"}]}]


def body(*contents: Any, **parameters: Any) -> dict[str, Any]:
    return {"contents": list(contents) or [ASK], **parameters}


def declared(*declarations: Any) -> dict[str, Any]:
    return body(tools=[{"functionDeclarations": list(declarations)}])


def schema(**keywords: Any) -> dict[str, Any]:
    return declared({"name": "weather", "parameters": {"type": "OBJECT", "properties": {"a": keywords}}})


def calling(tools: Any = FUNCTIONS, **config: Any) -> dict[str, Any]:
    return body(tools=tools, toolConfig={"functionCallingConfig": config})


def config(**fields: Any) -> dict[str, Any]:
    return body(generationConfig=fields)


PARAMETER = "tools[0].functionDeclarations[0].parameters.properties.a"


def case(rule: str, broken: Any, path: str, message: str, legal: Any, model: str = "") -> Case:
    return Case(rule, path, message, broken, legal, WriteOptions(model=model))


# fmt: off
CASES = [
    case("GM-01", None, "", "Invalid JSON payload", body()),
    case("GM-01", {}, "contents", "* GenerateContentRequest.contents: contents is not specified", body()),
    case("GM-01", body(contents=[]), "contents", "contents is not specified", body(contents=ASK)),
    case("GM-01", body("hello"), "contents[0]", "Invalid value at 'contents[0]'", body()),
    case("GM-02", body(content("assistant", text())), "contents[0].role",
         "Please use a valid role: user, model.", body(content(None, text()))),
    case("GM-02", body({"role": ["user"], "parts": [text()]}), "contents[0].role", "valid role",
         body(content("", text()))),
    case("GM-03", body(ASK, model(), ASK), "contents[1].parts",
         "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
         body(ASK, model(text()), ASK)),
    case("GM-03", body({"role": "user"}), "contents[0].parts", "must not be empty",
         body(ASK, {"role": "model"}, ASK)),
    case("GM-04", body(user({"type": "text", "text": "hi"})), "contents[0].parts[0].type",
         "Unknown name \"type\" at 'contents[0].parts[0]': Cannot find field.", body(user(text("")))),
    case("GM-04", body(user({**text(), "fileData": {"fileUri": "files/1"}})), "contents[0].parts[0].fileData",
         "oneof field 'data' is already set",
         body(user({"text": None, "file_data": {"file_uri": "files/1"}}))),
    case("GM-04", body(user({})), "contents[0].parts[0]", "must have one initialized field",
         body(user({"videoMetadata": {"fps": 1}}))),
    case("GM-04", body(user("hi")), "contents[0].parts[0]", "Invalid value",
         body({"role": "user", "parts": text()})),
    case("GM-04", body(user(text(5))), "contents[0].parts[0].text", "(TYPE_STRING)", body(user(text("5")))),
    case("GM-04", body(user({"fileData": "files/1"})), "contents[0].parts[0].fileData",
         "contents[0].parts[0].file_data'", body()),
    case("GM-05", body(model(call()), user(response())), "contents[0]",
         "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
         body(*ROUND)),
    case("GM-06", body(ASK, model(text()), user(response())), "contents[2]",
         "Please ensure that function response turn comes immediately after a function call turn.",
         body(*ROUND)),
    case("GM-06", body(user(response())), "contents[0]", "immediately after a function call turn",
         body(*ROUND, model(call()), user(response()))),
    case("GM-07", body(ASK, model(call(), call()), user(response())), "contents[2]",
         "Please ensure that the number of function response parts is equal to the number of function call parts",
         body(ASK, model(call(), call()), user(response(), response()))),
    case("GM-07", body(ASK, model(call()), ASK), "contents[2]", "number of function response parts",
         body(ASK, model(call()), user(response(), text()))),
    case("GM-07", body(ASK, model(call()), model(call()), user(response())), "contents[3]",
         "is equal to the number",
         body(ASK, model(call()), model(call()), user(response()), content("function", response()), ASK)),
    case("GM-08", body(ASK, model(call(args=[])), user(response())), "contents[1].parts[0].functionCall.args",
         "at 'contents[1].parts[0].function_call': Proto field is not repeating, cannot start list.",
         body(ASK, model(call(args=None)), user(response()))),
    case("GM-08", body(ASK, model(call(args="{}")), user(response())),
         "contents[1].parts[0].functionCall.args", "google.protobuf.Struct", body(*ROUND)),
    case("GM-08", body(ASK, model(call(name="")), user(response())), "contents[1].parts[0].functionCall.name",
         "Name cannot be empty", body(*ROUND)),
    case("GM-08", body(ASK, model({"functionCall": "weather"}), user(response())),
         "contents[1].parts[0].functionCall", "Invalid value", body(*ROUND)),
    case("GM-09", body(ASK, model(call()), user(response(response=["rain"]))),
         "contents[2].parts[0].functionResponse.response",
         "Unknown name \"response\" at 'contents[2].parts[0].function_response': Proto field is not repeating",
         body(ASK, model(call()), user({"function_response": response()["functionResponse"]}))),
    case("GM-09", body(ASK, model(call()), user(response(response="rain"))),
         "contents[2].parts[0].functionResponse.response", "google.protobuf.Struct", body(*ROUND)),
    case("GM-09", body(ASK, model(call()), user(response(name=None))),
         "contents[2].parts[0].functionResponse.name", "Name cannot be empty", body(*ROUND)),
    case("GM-10", body(*ROUND), "contents[1].parts[0].functionCall",
         "function call `default_api:weather`, position 2.", body(*ROUND, model(text()), ASK),
         "gemini-3-flash-preview"),
    case("GM-10", body(ASK, model(call(), call(signature="c2ln")), user(response(), response())),
         "contents[1].parts[0].functionCall", "missing a thought_signature",
         body(ASK, model(call(signature="c2ln"), call()), user(response(), response())), "gemini-3.5-pro"),
    case("GM-10", body(ASK, model(call(signature="c2ln")), user(response()), model(call()), user(response())),
         "contents[3].parts[0].functionCall", "position 4.",
         body(ASK, model({"function_call": {"name": "f"}, "thought_signature": "c2ln"}), user(response())),
         "gemini-3-pro"),
    case("GM-11", declared({"name": "1st"}), "tools[0].functionDeclarations[0].name",
         "Invalid function name. Must start with a letter or an underscore.",
         declared({"name": "_1st.of:all-" + "x" * 40})),
    case("GM-11", declared({"name": "x" * 129}), "tools[0].functionDeclarations[0].name", "maximum length",
         declared({"name": "x" * 128})),
    case("GM-11", declared("weather"), "tools[0].functionDeclarations[0]", "Invalid value",
         declared({"name": "weather"})),
    case("GM-11", declared({}), "tools[0].functionDeclarations[0].name", "Invalid function name",
         body(tools={"function_declarations": {"name": "f"}})),
    case("GM-11", declared({"name": "f"}, {"name": "f"}), "tools[0].functionDeclarations[1].name",
         "Duplicate function declaration found: f", declared({"name": "f"}, {"name": "g"})),
    case("GM-12", schema(type="STRING", const="a"), f"{PARAMETER}.const",
         f"Unknown name \"const\" at '{PARAMETER}': Cannot find field.", schema(type="STRING", enum=["a"])),
    case("GM-12", schema(additionalProperties=False), f"{PARAMETER}.additionalProperties",
         "Cannot find field.", schema(anyOf=[{"type": "STRING"}, {"type": "null"}], nullable=True)),
    case("GM-12", schema(type=["string", "null"]), f"{PARAMETER}.type", "Unknown name \"type\"",
         schema(type="string", nullable=True)),
    case("GM-12", schema(type="float"), f"{PARAMETER}.type", "Invalid value", schema(type=3)),
    case("GM-12", schema(type=8), f"{PARAMETER}.type", "Invalid value", schema(type=6)),
    case("GM-12", schema(type="STRING", enum=["1", 2]), f"{PARAMETER}.enum[1]", "(TYPE_STRING)",
         schema(type="STRING", enum=["1", "2"])),
    case("GM-12", schema(type="INTEGER", enum=["1"]), f"{PARAMETER}.enum", "only allowed for STRING type",
         schema(type="INTEGER", enum=[])),
    case("GM-12", schema(type="STRING", properties={"b": {}}), f"{PARAMETER}.properties",
         "properties: only allowed for OBJECT type", schema(type="OBJECT", properties={"b": {}})),
    case("GM-12", schema(type="ARRAY"), f"{PARAMETER}.items", "items: missing field.",
         schema(type="ARRAY", items={"type": "STRING"})),
    case("GM-12", schema(type="ARRAY", items={"anyOf": [{}, {"$ref": "#"}]}),
         f"{PARAMETER}.items.anyOf[1].$ref", "Cannot find field",
         schema(type="ARRAY", items={"any_of": [{}]})),
    case("GM-12", schema(items=True), f"{PARAMETER}.items", "Invalid value", schema(items={})),
    case("GM-12", declared({"name": "f", "parameters": {}, "parametersJsonSchema": {}}),
         "tools[0].functionDeclarations[0].parametersJsonSchema", "mutually exclusive",
         declared({"name": "f", "parametersJsonSchema": {"additionalProperties": False}})),
    case("GM-12", config(responseSchema={"type": "OBJECT", "oneOf": []}),
         "generationConfig.responseSchema.oneOf", "Cannot find field",
         config(responseJsonSchema={"type": "object", "oneOf": []})),
    case("GM-13", calling(mode="REQUIRED"), "toolConfig.functionCallingConfig.mode", "Invalid value",
         calling(mode="VALIDATED")),
    case("GM-13", calling(mode="AUTO", allowedFunctionNames=["weather"]),
         "toolConfig.functionCallingConfig.allowedFunctionNames", "only be set when the mode is ANY",
         calling(mode="ANY", allowedFunctionNames=["weather"])),
    case("GM-13", calling(tools=[], mode="AUTO"), "toolConfig.functionCallingConfig",
         "Function calling config is set without function_declarations",
         calling(tools=[{"googleSearch": {}}], mode="AUTO")),
    case("GM-13", body(tool_config="AUTO"), "tool_config", "Invalid value",
         body(tool_config={"includeServerSideToolInvocations": True})),
    case("GM-14", config(temperature=2.1), "generationConfig.temperature",
         "temperature value of 2.1 but the supported range is from 0 (inclusive) to 2.0001 (exclusive)",
         config(temperature=2)),
    case("GM-14", config(temperature="warm"), "generationConfig.temperature", "(TYPE_FLOAT)",
         config(temperature="0.5")),
    case("GM-14", config(top_p=1.5), "generationConfig.top_p", "top_p value of 1.5", config(top_p=1)),
    case("GM-14", config(stopSequences=["a"] * 6), "generationConfig.stopSequences", "maximum is 5",
         config(stopSequences=["a"] * 5)),
    case("GM-14", config(thinkingConfig={"thinkingBudget": 9, "thinkingLevel": "LOW"}),
         "generationConfig.thinkingConfig", "only one of thinking budget and thinking level",
         config(thinkingConfig={"thinkingLevel": "LOW", "includeThoughts": True})),
    case("GM-14", config(thinkingConfig={"thinkingBudget": 0}),
         "generationConfig.thinkingConfig.thinkingBudget",
         "Budget 0 is invalid. This model only works in thinking mode.",
         config(thinkingConfig={"thinkingBudget": 128}), "gemini-2.5-pro"),
    case("GM-14", body(generationConfig=[]), "generationConfig", "Invalid value",
         body(generationConfig=None)),
    case("GM-15", body(systemInstruction="Be brief."), "systemInstruction",
         "Invalid value at 'system_instruction'", body(systemInstruction={"parts": [text()]})),
    case("GM-15", body(systemInstruction=user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}})),
         "systemInstruction.parts[0]", "only supports text", body(system_instruction={"parts": text()})),
    case("GM-15", body(systemInstruction={"content": "Be brief."}), "systemInstruction.content",
         "Unknown name \"content\"", body(systemInstruction=user(text()))),
    case("GM-15", body(systemInstruction=user(text(1))), "systemInstruction.parts[0].text", "Invalid value",
         body(systemInstruction=user(text("1")))),
    case("GM-16", body(model(text())), "contents[0]",
         "Please ensure that single turn requests end with a user role or the role field is empty.",
         body(ASK, model(text()))),
    case("GM-16", body(ASK, model(text())), "contents[1]",
         "Requests ending with a model turn are not supported unless the last part is a function response.",
         body(ASK, model(text()), ASK), "gemini-3.6-flash"),
    case("GM-16", body(ASK, model(text())), "contents[1]", "ending with a model turn",
         body(ASK, model(text(), response())), "models/gemini-3.5-flash-lite"),
    case("GM-17",
         body(user({"inlineData": {"mimeType": "image/png", "data": "data:image/png;base64,iVBORw0="}})),
         "contents[0].parts[0].inlineData.data", "Base64 decoding failed",
         body(user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}}))),
    case("GM-17", body(user({"inline_data": {"data": "iVBORw0="}})),
         "contents[0].parts[0].inline_data.mimeType", "mime_type: must be specified",
         body(user({"inline_data": {"mime_type": "image/png", "data": "iVBORw0="}}))),
    case("GM-17", body(user({"inlineData": "iVBORw0="})), "contents[0].parts[0].inlineData", "Invalid value",
         body()),
    case("GM-18", body(messages=[]), "messages",
         "Invalid JSON payload received. Unknown name \"messages\": Cannot find field.",
         body(safety_settings=[], labels={}, model="models/m")),
    case("GM-18", body({**ASK, "content": "hi"}), "contents[0].content",
         "Unknown name \"content\" at 'contents[0]'", body()),
    case("GM-18", body(tools=[{"type": "function", "functionDeclarations": []}]), "tools[0].type",
         "Unknown name \"type\" at 'tools[0]'", body(tools=[{"aToolOfNextYear": {}}])),
    case("GM-18", body(tools=["googleSearch"]), "tools[0]", "Invalid value",
         body(tools={"googleSearch": {}})),
    case("GM-19", body(cachedContent="cachedContents/1", systemInstruction=user(text())), "cachedContent",
         "Tool config, tools and system instruction should not be set in the request when using cached content.",
         body(cachedContent="cachedContents/1", systemInstruction=None)),
    case("GM-19", body(cached_content="cachedContents/1", tools=FUNCTIONS), "cached_content",
         "when using cached content", body(tools=FUNCTIONS)),
]

ADVICE = [
    case("GM-02", body(ASK, model(call()), content("function", response())), "contents[2].role", "valid role",
         body(*ROUND)),
    case("GM-03", body(ASK, {"role": "model"}, ASK), "contents[1].parts", "must not be empty",
         body(ASK, ASK)),
    case("GM-20", declared({"name": "x" * 65}), "tools[0].functionDeclarations[0].name", "length of 64",
         declared({"name": "x" * 64})),
]
# fmt: on


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_broken_rule_is_found_and_the_nearest_legal_body_is_clean(case: Case) -> None:
    assert_only_this_rule_is_broken(check_request, case)


@pytest.mark.parametrize("case", ADVICE, ids=label)
def test_an_advisory_is_given_on_demand(case: Case) -> None:
    assert_advised_on_demand(check_request, case)


def test_every_rule_of_the_book_has_a_case() -> None:
    assert {case.rule for case in [*CASES, *ADVICE]} == set(RULES.rules)


@pytest.mark.parametrize("name", ["", "gemini-2.5-flash", "gemini-3.5-flash", "a-model-we-do-not-know"])
def test_a_model_turn_may_end_the_request_where_the_model_takes_it(name: str) -> None:
    assert check_request(body(ASK, model(text())), WriteOptions(model=name)) == []


@pytest.mark.parametrize("name", ["", "gemini-2.5-pro", "gemini-3-pro-image-preview"])
def test_signatures_are_asked_for_only_where_the_model_asks(name: str) -> None:
    assert check_request(body(*ROUND), WriteOptions(model=name)) == []


@pytest.mark.parametrize("case", CASES, ids=label)
def test_paths_can_be_followed_in_the_body(case: Case) -> None:
    steps: list[Any] = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", case.path)]
    value = case.broken
    for step in steps[:-1]:
        # One object may stand for a list of one, and the last step may be the field that is missing.
        value = value[step]
    assert not steps or isinstance(value, dict | list)


def test_the_sequence_can_be_asked_alone() -> None:
    assert check_sequence([*ROUND]) == []
    found = check_sequence([model(call()), ASK, user(response()), model(text()), user(response())])
    assert [violation.rule for violation in found] == ["GM-05", "GM-06"]


WORDS = "user model role parts text functionCall function_response inlineData name args response type enum items"
BODIES = [case.legal for case in CASES] + [case.broken for case in CASES]
MODELS = st.sampled_from(["", "gemini-3-pro", "gemini-3.6-flash", "gemini-2.5-pro"])


@given(any_bodies(BODIES, WORDS, "contents"), MODELS)
@settings(max_examples=400, deadline=None)
def test_no_body_makes_the_check_fail(value: Any, name: str) -> None:
    assert_check_only_reports(check_request, value, WriteOptions(model=name))
    if isinstance(value, list):
        check_sequence(value)


def test_deep_nesting_is_safe() -> None:
    deep: dict[str, Any] = {"type": "STRING"}
    for _ in range(50_000):
        deep = {"type": "OBJECT", "properties": {"a": deep}}
    assert check_request(declared({"name": "f", "parameters": deep})) == []
    assert check_request(config(responseSchema=deep)) == []
    value: Any = []
    for _ in range(50_000):
        value = [value]
    for place in ("contents", "tools", "toolConfig", "systemInstruction", "generationConfig"):
        assert check_request(body(**{place: value}))
    assert check_request(body({"role": value, "parts": value}))
    assert check_request(schema(type=value, enum=value, items=value))
    assert check_request(body(ASK, model(call(name=value, args=value)), user(response(name=value))))


def test_numbers_of_any_size_are_numbers() -> None:
    for number in (10**5000, float("inf"), float("nan"), -1):
        assert [violation.rule for violation in check_request(config(temperature=number))] == ["GM-14"]


def model_in(path: str, otherwise: str = "") -> str:
    match = re.search(r"models/([^:/?]+)", path)
    return match[1] if match else otherwise


def test_no_accepted_request_is_flagged() -> None:
    checked = 0
    for record in recorded("gemini"):
        if 200 <= record["status"] < 300 and isinstance(record["request"], dict):
            checked += 1
            found = check_request(
                record["request"], WriteOptions(model=model_in(record["url_path"], record["model"] or ""))
            )
            assert found == [], record["id"]
    sys.stdout.write(f"{checked} accepted requests checked\n")
    assert checked >= 595


def test_refused_requests_are_found_with_the_providers_message() -> None:
    refused = caught = 0
    for record in recorded("gemini"):
        if record["status"] != 400 or not isinstance(record["request"], dict):
            continue
        error_text = record["response"]["error"]["message"]
        # A key the provider does not know says nothing of the body.
        if "API key" in error_text:
            continue
        refused += 1
        found = check_request(record["request"], WriteOptions(model=model_in(record["url_path"])))
        caught += any(violation.message in error_text for violation in found)
        assert bool(found) == any(violation.message in error_text for violation in found)
    sys.stdout.write(f"{caught} of {refused} refused requests caught\n")
    # The one left over asks for a page that the web site would not give.
    assert caught >= 3


# Captured after an interrupt: the client answers its one call twice, which the provider would not take.
INTERRUPTED = {
    "gemini-cli.gemini.interrupted-text.04.side-call.json",
    "gemini-cli.gemini.interrupted-text.05.after-interrupt.json",
    "gemini-cli.gemini.interrupted-text.06.after-tool.json",
}


def test_captured_client_requests_are_clean_but_for_one_interrupt() -> None:
    flagged = {}
    for name, capture in client_captures("gemini"):
        found = check_request(capture["body"], WriteOptions(model=model_in(capture["path"])))
        if found:
            flagged[name] = {violation.rule for violation in found}
    assert flagged == {name: {"GM-07"} for name in INTERRUPTED}
