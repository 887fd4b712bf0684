"""Parts, schemas, choices and thinking of Gemini, each read and written."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire import formats
from antiphon.wire.format import WriteOptions
from antiphon.wire.request import Message, ModelRequest, Reasoning, ToolChoice, ToolDefinition
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX
from support.wire_formats import GEMINI
from wire.gemini.sample_requests import FAILED, model, read_parts, tool, user, write, written

read_request = GEMINI.read_request
check_request = GEMINI.check_request

# Single things, both ways

CASES: list[tuple[str, dict[str, Any], Part]] = [
    ("text", {"text": "hi"}, Text("hi")),
    (
        "a signature alone",
        {"text": "", "thoughtSignature": "c2ln"},
        Text("", native={"gemini": {"thoughtSignature": "c2ln"}}),
    ),
    ("a thought", {"text": "hm", "thought": True}, Thinking("hm", source=Source("gemini"))),
    (
        "a signed thought",
        {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
        Thinking("hm", native={"gemini": {"thoughtSignature": "c2ln"}}, source=Source("gemini")),
    ),
    ("a picture", {"inlineData": {"mimeType": "image/png", "data": "aGk="}}, Image("image/png", "aGk=")),
    ("sound", {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}}, Audio("audio/wav", "aGk=")),
    ("a file", {"inlineData": {"mimeType": "application/pdf", "data": "aGk="}}, Document("application/pdf", "aGk=")),
    ("a video", {"inlineData": {"mimeType": "video/mp4", "data": "aGk="}}, Document("video/mp4", "aGk=")),
    (
        "a file by its address",
        {"fileData": {"fileUri": "gs://a/b.png", "mimeType": "image/png"}},
        Image("image/png", url="gs://a/b.png"),
    ),
    (
        "a clip of a video",
        {"fileData": {"fileUri": "https://y/v"}, "videoMetadata": {"fps": 2}},
        Document(
            url="https://y/v", native={"gemini": {"videoMetadata": {"fps": 2}}}, source=Source("gemini", ("untyped",))
        ),
    ),
    (
        "a call",
        {"functionCall": {"id": "c1", "name": "f", "args": {"a": [1, 2.5]}}},
        ToolCallRequest("f", "c1", '{"a":[1,2.5]}'),
    ),
    (
        "a signed call without an id",
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"},
        ToolCallRequest("f", f"{GENERATED_ID_PREFIX}0", "{}", native={"gemini": {"thoughtSignature": "c2ln"}}),
    ),
    (
        "a result",
        {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "sunny"}}},
        ToolCallResult("f", "c1", content=(Text("sunny"),)),
    ),
    (
        "a result that is an object",
        {"functionResponse": {"id": "c1", "name": "f", "response": {"sky": "blue", "t": 7}}},
        ToolCallResult("f", "c1", content=(Text('{"sky":"blue","t":7}'),)),
    ),
    (
        "a failure",
        {"functionResponse": {"id": "c1", "name": "f", "response": {"error": "no such city"}}},
        ToolCallResult("f", "c1", FAILED, (Text("no such city"),)),
    ),
    (
        "a result as the SDK wraps it",
        {"functionResponse": {"id": "c1", "name": "f", "response": {"result": "sunny"}}},
        ToolCallResult("f", "c1", content=(Text("sunny"),), source=Source("gemini", ("result",))),
    ),
    (
        "a result with a picture",
        {
            "functionResponse": {
                "id": "c1",
                "name": "f",
                "response": {"output": "see"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
            }
        },
        ToolCallResult("f", "c1", content=(Text("see"), Image("image/png", "aGk="))),
    ),
    (
        "code",
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        Native("gemini", {"executableCode": {"language": "PYTHON", "code": "1"}}),
    ),
    ("a part of the future", {"hologram": {"x": 1}}, Native("gemini", {"hologram": {"x": 1}})),
]


@pytest.mark.parametrize(("part", "read"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_part_both_ways(part: dict[str, Any], read: Part) -> None:
    assert read_parts(part) == (read,)
    assert written(Message("user", (read,)))[0]["parts"] == [part]


def test_result_with_an_empty_list_of_parts_keeps_its_text() -> None:
    function = {"id": "c1", "name": "f", "response": {"output": "sunny"}}
    (read,) = read_parts({"functionResponse": {**function, "parts": []}})
    assert read == ToolCallResult("f", "c1", content=(Text("sunny"),))
    assert written(Message("user", (read,)))[0]["parts"] == [{"functionResponse": function}]


@pytest.mark.parametrize(
    "response", [{"result": 5}, {"error": {"code": 3}}, {"output": '{"a": 1}'}, {"output": [1]}, {}]
)
def test_a_response_keeps_its_field_spelling(response: dict[str, Any]) -> None:
    part = {"functionResponse": {"name": "f", "response": response}}
    read = read_parts(part)
    assert written(Message("user", read))[0]["parts"] == [part]
    assert not any((result.native or {}).get("gemini") for result in read if isinstance(result, ToolCallResult))


def test_snake_case_is_read_and_unknown_names_keep_their_spelling() -> None:
    body = {
        "contents": [
            {"role": "model", "parts": [{"function_call": {"name": "f", "args": {"a_b": 1}}, "part_kind": 1}]}
        ],
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"include_thoughts": True}, "new_knob": 1},
        "system_instruction": {"parts": {"text": "be brief"}},
        "new_field": {"a_b": None},
    }
    request = read_request(body)
    assert request.max_output_tokens == 5
    assert request.reasoning == Reasoning(shown="auto")
    again, losses = write(request)
    assert [loss.what for loss in losses] == ["first turn"]
    assert again["contents"][1]["parts"] == [{"functionCall": {"name": "f", "args": {"a_b": 1}}, "part_kind": 1}]
    assert again["generationConfig"] == {
        "maxOutputTokens": 5,
        "thinkingConfig": {"includeThoughts": True},
        "new_knob": 1,
    }
    assert again["new_field"] == {"a_b": None}
    assert again["systemInstruction"] == {"parts": [{"text": "be brief"}]}


def test_results_without_ids_find_their_calls() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": {}}}

    def result(name: str, text: str) -> dict[str, Any]:
        return {"functionResponse": {"name": name, "response": {"output": text}}}

    body = {
        "contents": [
            {"role": "model", "parts": [call("f"), call("g"), call("f")]},
            {"role": "user", "parts": [result("g", "1"), result("f", "2"), result("f", "3")]},
            {"role": "model", "parts": [call("f")]},
            {"role": "user", "parts": [result("h", "4")]},
        ]
    }
    messages = read_request(body).messages
    calls = [part.tool_call_id for message in messages for part in message.parts if isinstance(part, ToolCallRequest)]
    results = [part.tool_call_id for message in messages for part in message.parts if isinstance(part, ToolCallResult)]
    assert len(set(calls)) == 4
    assert results == [calls[1], calls[0], calls[2], calls[3]]
    assert write(read_request(body))[0]["contents"][1:] == body["contents"]


def test_adjacent_contents_of_the_model_are_one_step() -> None:
    parts = [{"functionCall": {"name": name, "args": {}}} for name in "fg"]
    results = [{"functionResponse": {"name": name, "response": {"a": 1}}} for name in "gf"]
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            *({"role": "model", "parts": [part]} for part in parts),
            {"role": "user", "parts": results},
        ]
    }
    _go, first, second, answers = read_request(body).messages
    calls = {
        part.tool_name: part.tool_call_id for part in (*first.parts, *second.parts) if isinstance(part, ToolCallRequest)
    }
    assert {part.tool_name: part.tool_call_id for part in answers.parts if isinstance(part, ToolCallResult)} == calls
    assert write(read_request(body))[0]["contents"][1] == {"role": "model", "parts": parts}


def test_results_in_another_order_are_matched() -> None:
    body = {
        "contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"n": n}}} for n in (1, 2)]}]
    }
    first, second = (part for part in read_request(body).messages[0].parts if isinstance(part, ToolCallRequest))
    contents = written(
        user("go"),
        model(first, second),
        tool(ToolCallResult("f", second.tool_call_id, content=(Text("two"),))),
        tool(ToolCallResult("f", first.tool_call_id, content=(Text("one"),))),
    )
    assert [part["functionResponse"]["response"]["output"] for part in contents[2]["parts"]] == ["one", "two"]


def test_a_schema_is_json_schema_to_others_and_comes_back_as_it_was() -> None:
    own = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "enum": ["a"]},
            "n": {"type": "ARRAY", "items": {"type": "INTEGER"}},
        },
        "required": ["n"],
    }
    body = {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": own}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": own},
    }
    request = read_request(body)
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["a", None]},
            "n": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["n"],
    }
    definition = request.tools[0]
    assert isinstance(definition, ToolDefinition)
    assert definition.parameters == schema
    assert request.output_format is not None
    assert request.output_format.schema == schema
    assert write(request) == (body, [])
    assert formats["openai-chat"].write_request(request).losses == [], "a translated schema is not a loss"


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({"mode": "AUTO"}, ToolChoice("auto")),
        ({"mode": "NONE"}, ToolChoice("none")),
        ({"mode": "ANY"}, ToolChoice("required")),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice("tool", ("f",))),
        ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, ToolChoice("allowed", ("f", "g"), must_call=True)),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}, ToolChoice("allowed", ("f",))),
        ({"mode": "VALIDATED"}, ToolChoice("auto", native={"gemini": {"mode": "VALIDATED"}})),
        ({"mode": 2}, ToolChoice("required", native={"gemini": {"mode": 2}})),
    ],
)
def test_a_tool_choice_both_ways(config: dict[str, Any], choice: ToolChoice) -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}],
        "toolConfig": {"functionCallingConfig": config},
    }
    assert read_request(body).tool_choice == choice
    assert write(read_request(body)) == (body, [])


@pytest.mark.parametrize(
    ("config", "reasoning"),
    [
        ({"thinkingBudget": 0}, Reasoning(budget_tokens=0)),
        ({"thinkingBudget": -1}, Reasoning(enabled=True)),
        ({"thinkingBudget": 512, "includeThoughts": True}, Reasoning(budget_tokens=512, shown="auto")),
        ({"thinkingLevel": "HIGH", "includeThoughts": False}, Reasoning("high", shown="omitted")),
        ({"thinkingLevel": "low"}, Reasoning("low", source=Source("gemini", ("level:small",)))),
    ],
)
def test_thinking_both_ways(config: dict[str, Any], reasoning: Reasoning) -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "generationConfig": {"thinkingConfig": config},
    }
    assert read_request(body).reasoning == reasoning
    assert write(read_request(body)) == (body, [])


@pytest.mark.parametrize(
    ("reasoning", "name", "config"),
    [
        (Reasoning("high"), "gemini-3-flash-preview", {"thinkingLevel": "HIGH"}),
        (Reasoning("max"), "gemini-3-flash-preview", {"thinkingLevel": "HIGH"}),
        (Reasoning("none"), "gemini-3-flash-preview", {"thinkingLevel": "MINIMAL"}),
        (Reasoning("high"), "gemini-2.5-flash", {"thinkingBudget": 16384}),
        (Reasoning("none"), "gemini-2.5-flash", {"thinkingBudget": 0}),
        (Reasoning("none"), "gemini-2.5-pro", {"thinkingBudget": 128}),
        (Reasoning(enabled=False), "gemini-3-pro-preview", {"thinkingLevel": "LOW"}),
        (Reasoning(budget_tokens=2000), "gemini-3-flash-preview", {"thinkingBudget": 2000}),
    ],
)
def test_thinking_as_the_model_takes_it(reasoning: Reasoning, name: str, config: dict[str, Any]) -> None:
    body, _losses = write(ModelRequest(messages=(user("x"),), reasoning=reasoning), model=name)
    assert body["generationConfig"] == {"thinkingConfig": config}
    assert check_request(body, WriteOptions(model=name)) == []
