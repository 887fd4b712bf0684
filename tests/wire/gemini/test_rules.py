"""Each rule of generateContent: a body that breaks it, the nearest body that does not, and the recorded traffic for both."""

from __future__ import annotations

import copy
import json
import re
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.wire.format import WriteOptions
from antiphon.wire.gemini.rules import check_request, check_sequence
from antiphon.wire.rules import Violation
from support.corpus import CORPUS

E_RULES = {f"GM-{number:02}" for number in range(1, 20)}
A_RULES = {"GM-20"}


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


class Case(NamedTuple):
    rule: str
    broken: Any
    path: str
    words: str
    clean: Any
    model: str = ""


# fmt: off
CASES = [
    Case("GM-01", None, "", "Invalid JSON payload", body()),
    Case("GM-01", {}, "contents", "* GenerateContentRequest.contents: contents is not specified", body()),
    Case("GM-01", body(contents=[]), "contents", "contents is not specified", body(contents=ASK)),
    Case("GM-01", body("hello"), "contents[0]", "Invalid value at 'contents[0]'", body()),
    Case("GM-02", body(content("assistant", text())), "contents[0].role",
         "Please use a valid role: user, model.", body(content(None, text()))),
    Case("GM-02", body({"role": ["user"], "parts": [text()]}), "contents[0].role", "valid role",
         body(content("", text()))),
    Case("GM-03", body(ASK, model(), ASK), "contents[1].parts",
         "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
         body(ASK, model(text()), ASK)),
    Case("GM-03", body({"role": "user"}), "contents[0].parts", "must not be empty",
         body(ASK, {"role": "model"}, ASK)),
    Case("GM-04", body(user({"type": "text", "text": "hi"})), "contents[0].parts[0].type",
         "Unknown name \"type\" at 'contents[0].parts[0]': Cannot find field.", body(user(text("")))),
    Case("GM-04", body(user({**text(), "fileData": {"fileUri": "files/1"}})), "contents[0].parts[0].fileData",
         "oneof field 'data' is already set",
         body(user({"text": None, "file_data": {"file_uri": "files/1"}}))),
    Case("GM-04", body(user({})), "contents[0].parts[0]", "must have one initialized field",
         body(user({"videoMetadata": {"fps": 1}}))),
    Case("GM-04", body(user("hi")), "contents[0].parts[0]", "Invalid value",
         body({"role": "user", "parts": text()})),
    Case("GM-04", body(user(text(5))), "contents[0].parts[0].text", "(TYPE_STRING)", body(user(text("5")))),
    Case("GM-04", body(user({"fileData": "files/1"})), "contents[0].parts[0].fileData",
         "contents[0].parts[0].file_data'", body()),
    Case("GM-05", body(model(call()), user(response())), "contents[0]",
         "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
         body(*ROUND)),
    Case("GM-06", body(ASK, model(text()), user(response())), "contents[2]",
         "Please ensure that function response turn comes immediately after a function call turn.",
         body(*ROUND)),
    Case("GM-06", body(user(response())), "contents[0]", "immediately after a function call turn",
         body(*ROUND, model(call()), user(response()))),
    Case("GM-07", body(ASK, model(call(), call()), user(response())), "contents[2]",
         "Please ensure that the number of function response parts is equal to the number of function call parts",
         body(ASK, model(call(), call()), user(response(), response()))),
    Case("GM-07", body(ASK, model(call()), ASK), "contents[2]", "number of function response parts",
         body(ASK, model(call()), user(response(), text()))),
    Case("GM-07", body(ASK, model(call()), model(call()), user(response())), "contents[3]",
         "is equal to the number",
         body(ASK, model(call()), model(call()), user(response()), content("function", response()), ASK)),
    Case("GM-08", body(ASK, model(call(args=[])), user(response())), "contents[1].parts[0].functionCall.args",
         "at 'contents[1].parts[0].function_call': Proto field is not repeating, cannot start list.",
         body(ASK, model(call(args=None)), user(response()))),
    Case("GM-08", body(ASK, model(call(args="{}")), user(response())),
         "contents[1].parts[0].functionCall.args", "google.protobuf.Struct", body(*ROUND)),
    Case("GM-08", body(ASK, model(call(name="")), user(response())), "contents[1].parts[0].functionCall.name",
         "Name cannot be empty", body(*ROUND)),
    Case("GM-08", body(ASK, model({"functionCall": "weather"}), user(response())),
         "contents[1].parts[0].functionCall", "Invalid value", body(*ROUND)),
    Case("GM-09", body(ASK, model(call()), user(response(response=["rain"]))),
         "contents[2].parts[0].functionResponse.response",
         "Unknown name \"response\" at 'contents[2].parts[0].function_response': Proto field is not repeating",
         body(ASK, model(call()), user({"function_response": response()["functionResponse"]}))),
    Case("GM-09", body(ASK, model(call()), user(response(response="rain"))),
         "contents[2].parts[0].functionResponse.response", "google.protobuf.Struct", body(*ROUND)),
    Case("GM-09", body(ASK, model(call()), user(response(name=None))),
         "contents[2].parts[0].functionResponse.name", "Name cannot be empty", body(*ROUND)),
    Case("GM-10", body(*ROUND), "contents[1].parts[0].functionCall",
         "function call `default_api:weather`, position 2.", body(*ROUND, model(text()), ASK),
         "gemini-3-flash-preview"),
    Case("GM-10", body(ASK, model(call(), call(signature="c2ln")), user(response(), response())),
         "contents[1].parts[0].functionCall", "missing a thought_signature",
         body(ASK, model(call(signature="c2ln"), call()), user(response(), response())), "gemini-3.5-pro"),
    Case("GM-10", body(ASK, model(call(signature="c2ln")), user(response()), model(call()), user(response())),
         "contents[3].parts[0].functionCall", "position 4.",
         body(ASK, model({"function_call": {"name": "f"}, "thought_signature": "c2ln"}), user(response())),
         "gemini-3-pro"),
    Case("GM-11", declared({"name": "1st"}), "tools[0].functionDeclarations[0].name",
         "Invalid function name. Must start with a letter or an underscore.",
         declared({"name": "_1st.of:all-" + "x" * 40})),
    Case("GM-11", declared({"name": "x" * 129}), "tools[0].functionDeclarations[0].name", "maximum length",
         declared({"name": "x" * 128})),
    Case("GM-11", declared("weather"), "tools[0].functionDeclarations[0]", "Invalid value",
         declared({"name": "weather"})),
    Case("GM-11", declared({}), "tools[0].functionDeclarations[0].name", "Invalid function name",
         body(tools={"function_declarations": {"name": "f"}})),
    Case("GM-11", declared({"name": "f"}, {"name": "f"}), "tools[0].functionDeclarations[1].name",
         "Duplicate function declaration found: f", declared({"name": "f"}, {"name": "g"})),
    Case("GM-12", schema(type="STRING", const="a"), f"{PARAMETER}.const",
         f"Unknown name \"const\" at '{PARAMETER}': Cannot find field.", schema(type="STRING", enum=["a"])),
    Case("GM-12", schema(additionalProperties=False), f"{PARAMETER}.additionalProperties",
         "Cannot find field.", schema(anyOf=[{"type": "STRING"}, {"type": "null"}], nullable=True)),
    Case("GM-12", schema(type=["string", "null"]), f"{PARAMETER}.type", "Unknown name \"type\"",
         schema(type="string", nullable=True)),
    Case("GM-12", schema(type="float"), f"{PARAMETER}.type", "Invalid value", schema(type=3)),
    Case("GM-12", schema(type=8), f"{PARAMETER}.type", "Invalid value", schema(type=6)),
    Case("GM-12", schema(type="STRING", enum=["1", 2]), f"{PARAMETER}.enum[1]", "(TYPE_STRING)",
         schema(type="STRING", enum=["1", "2"])),
    Case("GM-12", schema(type="INTEGER", enum=["1"]), f"{PARAMETER}.enum", "only allowed for STRING type",
         schema(type="INTEGER", enum=[])),
    Case("GM-12", schema(type="STRING", properties={"b": {}}), f"{PARAMETER}.properties",
         "properties: only allowed for OBJECT type", schema(type="OBJECT", properties={"b": {}})),
    Case("GM-12", schema(type="ARRAY"), f"{PARAMETER}.items", "items: missing field.",
         schema(type="ARRAY", items={"type": "STRING"})),
    Case("GM-12", schema(type="ARRAY", items={"anyOf": [{}, {"$ref": "#"}]}),
         f"{PARAMETER}.items.anyOf[1].$ref", "Cannot find field",
         schema(type="ARRAY", items={"any_of": [{}]})),
    Case("GM-12", schema(items=True), f"{PARAMETER}.items", "Invalid value", schema(items={})),
    Case("GM-12", declared({"name": "f", "parameters": {}, "parametersJsonSchema": {}}),
         "tools[0].functionDeclarations[0].parametersJsonSchema", "mutually exclusive",
         declared({"name": "f", "parametersJsonSchema": {"additionalProperties": False}})),
    Case("GM-12", config(responseSchema={"type": "OBJECT", "oneOf": []}),
         "generationConfig.responseSchema.oneOf", "Cannot find field",
         config(responseJsonSchema={"type": "object", "oneOf": []})),
    Case("GM-13", calling(mode="REQUIRED"), "toolConfig.functionCallingConfig.mode", "Invalid value",
         calling(mode="VALIDATED")),
    Case("GM-13", calling(mode="AUTO", allowedFunctionNames=["weather"]),
         "toolConfig.functionCallingConfig.allowedFunctionNames", "only be set when the mode is ANY",
         calling(mode="ANY", allowedFunctionNames=["weather"])),
    Case("GM-13", calling(tools=[], mode="AUTO"), "toolConfig.functionCallingConfig",
         "Function calling config is set without function_declarations",
         calling(tools=[{"googleSearch": {}}], mode="AUTO")),
    Case("GM-13", body(tool_config="AUTO"), "tool_config", "Invalid value",
         body(tool_config={"includeServerSideToolInvocations": True})),
    Case("GM-14", config(temperature=2.1), "generationConfig.temperature",
         "temperature value of 2.1 but the supported range is from 0 (inclusive) to 2.0001 (exclusive)",
         config(temperature=2)),
    Case("GM-14", config(temperature="warm"), "generationConfig.temperature", "(TYPE_FLOAT)",
         config(temperature="0.5")),
    Case("GM-14", config(top_p=1.5), "generationConfig.top_p", "top_p value of 1.5", config(top_p=1)),
    Case("GM-14", config(stopSequences=["a"] * 6), "generationConfig.stopSequences", "maximum is 5",
         config(stopSequences=["a"] * 5)),
    Case("GM-14", config(thinkingConfig={"thinkingBudget": 9, "thinkingLevel": "LOW"}),
         "generationConfig.thinkingConfig", "only one of thinking budget and thinking level",
         config(thinkingConfig={"thinkingLevel": "LOW", "includeThoughts": True})),
    Case("GM-14", config(thinkingConfig={"thinkingBudget": 0}),
         "generationConfig.thinkingConfig.thinkingBudget",
         "Budget 0 is invalid. This model only works in thinking mode.",
         config(thinkingConfig={"thinkingBudget": 128}), "gemini-2.5-pro"),
    Case("GM-14", body(generationConfig=[]), "generationConfig", "Invalid value",
         body(generationConfig=None)),
    Case("GM-15", body(systemInstruction="Be brief."), "systemInstruction",
         "Invalid value at 'system_instruction'", body(systemInstruction={"parts": [text()]})),
    Case("GM-15", body(systemInstruction=user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}})),
         "systemInstruction.parts[0]", "only supports text", body(system_instruction={"parts": text()})),
    Case("GM-15", body(systemInstruction={"content": "Be brief."}), "systemInstruction.content",
         "Unknown name \"content\"", body(systemInstruction=user(text()))),
    Case("GM-15", body(systemInstruction=user(text(1))), "systemInstruction.parts[0].text", "Invalid value",
         body(systemInstruction=user(text("1")))),
    Case("GM-16", body(model(text())), "contents[0]",
         "Please ensure that single turn requests end with a user role or the role field is empty.",
         body(ASK, model(text()))),
    Case("GM-16", body(ASK, model(text())), "contents[1]",
         "Requests ending with a model turn are not supported unless the last part is a function response.",
         body(ASK, model(text()), ASK), "gemini-3.6-flash"),
    Case("GM-16", body(ASK, model(text())), "contents[1]", "ending with a model turn",
         body(ASK, model(text(), response())), "models/gemini-3.5-flash-lite"),
    Case("GM-17",
         body(user({"inlineData": {"mimeType": "image/png", "data": "data:image/png;base64,iVBORw0="}})),
         "contents[0].parts[0].inlineData.data", "Base64 decoding failed",
         body(user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}}))),
    Case("GM-17", body(user({"inline_data": {"data": "iVBORw0="}})),
         "contents[0].parts[0].inline_data.mimeType", "mime_type: must be specified",
         body(user({"inline_data": {"mime_type": "image/png", "data": "iVBORw0="}}))),
    Case("GM-17", body(user({"inlineData": "iVBORw0="})), "contents[0].parts[0].inlineData", "Invalid value",
         body()),
    Case("GM-18", body(messages=[]), "messages",
         "Invalid JSON payload received. Unknown name \"messages\": Cannot find field.",
         body(safety_settings=[], labels={}, model="models/m")),
    Case("GM-18", body({**ASK, "content": "hi"}), "contents[0].content",
         "Unknown name \"content\" at 'contents[0]'", body()),
    Case("GM-18", body(tools=[{"type": "function", "functionDeclarations": []}]), "tools[0].type",
         "Unknown name \"type\" at 'tools[0]'", body(tools=[{"aToolOfNextYear": {}}])),
    Case("GM-18", body(tools=["googleSearch"]), "tools[0]", "Invalid value",
         body(tools={"googleSearch": {}})),
    Case("GM-19", body(cachedContent="cachedContents/1", systemInstruction=user(text())), "cachedContent",
         "Tool config, tools and system instruction should not be set in the request when using cached content.",
         body(cachedContent="cachedContents/1", systemInstruction=None)),
    Case("GM-19", body(cached_content="cachedContents/1", tools=FUNCTIONS), "cached_content",
         "when using cached content", body(tools=FUNCTIONS)),
]

ADVICE = [
    Case("GM-02", body(ASK, model(call()), content("function", response())), "contents[2].role", "valid role",
         body(*ROUND)),
    Case("GM-03", body(ASK, {"role": "model"}, ASK), "contents[1].parts", "must not be empty",
         body(ASK, ASK)),
    Case("GM-20", declared({"name": "x" * 65}), "tools[0].functionDeclarations[0].name", "length of 64",
         declared({"name": "x" * 64})),
]
# fmt: on


def label(case: Case) -> str:
    return f"{case.rule} {case.path or 'body'}: {case.words[:30]}"


@pytest.mark.parametrize("case", CASES, ids=label)
def test_only_the_broken_rule_is_found(case: Case) -> None:
    found = check_request(case.broken, WriteOptions(model=case.model))
    assert [(violation.rule, violation.path) for violation in found] == [(case.rule, case.path)]
    assert case.words in found[0].message


@pytest.mark.parametrize("case", CASES, ids=label)
def test_the_nearest_lawful_body_is_clean(case: Case) -> None:
    assert check_request(case.clean, WriteOptions(model=case.model)) == []


@pytest.mark.parametrize("case", ADVICE, ids=label)
def test_advice_is_given_when_asked_for(case: Case) -> None:
    assert check_request(case.broken) == []
    found = check_request(case.broken, advisories=True)
    assert [(violation.rule, violation.path, violation.advisory) for violation in found] == [
        (case.rule, case.path, True)
    ]
    assert case.words in found[0].message
    assert check_request(case.clean, advisories=True) == []


def test_every_rule_of_the_book_has_a_case() -> None:
    assert {case.rule for case in CASES} == E_RULES
    assert {case.rule for case in ADVICE} >= A_RULES


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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
# Words of the format in any place reach further into the checks than arbitrary ones.
FORMAT_WORDS = "user model role parts text functionCall function_response inlineData name args response type enum items"
words = st.sampled_from(FORMAT_WORDS.split())
format_values = st.recursive(
    json_values | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=10,
)
bodies = [value for case in CASES for value in (case.broken, case.clean)]
models = st.sampled_from(["", "gemini-3-pro", "gemini-3.6-flash", "gemini-2.5-pro"])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a JSON value."""
    found, stack = [], [value]
    while stack:
        node = stack.pop()
        keys: Any = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            found.append((node, key))
            stack.append(node[key])
    return found


@st.composite
def mutated_bodies(draw: st.DrawFn) -> Any:
    value = copy.deepcopy(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 3))):
        spots = places(value)
        if spots:
            container, key = draw(st.sampled_from(spots))
            if draw(st.booleans()):
                container[key] = draw(format_values)
            else:
                del container[key]
    return value


@given(
    json_values | format_values | mutated_bodies() | st.fixed_dictionaries({"contents": st.lists(format_values)}),
    models,
)
@settings(max_examples=400, deadline=None)
def test_no_value_makes_it_raise_or_change(value: Any, name: str) -> None:
    before = repr(value)
    found = check_request(value, WriteOptions(model=name), advisories=True)
    assert all(isinstance(violation, Violation) for violation in found)
    assert check_request(value, WriteOptions(model=name)) == [
        violation for violation in found if not violation.advisory
    ]
    if isinstance(value, list):
        check_sequence(value)
    assert repr(value) == before


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


def recorded() -> list[dict[str, Any]]:
    path = CORPUS / "recorded" / "gemini.jsonl"
    if not path.exists():
        pytest.skip("the recorded corpus is not beside this checkout")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def captures() -> list[tuple[str, dict[str, Any]]]:
    folder = CORPUS / "clients"
    if not folder.exists():
        pytest.skip("the captured requests are not beside this checkout")
    found = [(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    return [(name, capture) for name, capture in found if capture["wire"] == "gemini"]


def model_in(path: str, otherwise: str = "") -> str:
    match = re.search(r"models/([^:/?]+)", path)
    return match[1] if match else otherwise


def test_no_accepted_request_is_flagged() -> None:
    checked = 0
    for record in recorded():
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
    for record in recorded():
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
    for name, capture in captures():
        found = check_request(capture["body"], WriteOptions(model=model_in(capture["path"])))
        if found:
            flagged[name] = {violation.rule for violation in found}
    assert flagged == {name: {"GM-07"} for name in INTERRUPTED}
