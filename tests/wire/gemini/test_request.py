"""Requests of Gemini: what comes in goes out the same, from other formats only what the API takes, and nothing in silence."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.format import WriteOptions
from antiphon.wire.gemini.content import PLACEHOLDER_SIGNATURE
from antiphon.wire.gemini.messages import CONTINUE_TEXT, PLACEHOLDER_FIRST_TURN, SYSTEM_NOTE_PREFIX
from antiphon.wire.gemini.request import read_request, write_request
from antiphon.wire.gemini.rules import check_request
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition
from antiphon.wire.tool_calls import GENERATED_ID_PREFIX
from wire.gemini.bodies import accepted_requests, decoded, legal, normalised, request_bodies

FAILED = ToolExecutionStatus.FAILED


def write(request: ModelRequest, **options: Any) -> tuple[dict[str, Any], list[Loss]]:
    losses: list[Loss] = []
    return decoded(write_request(request, losses, WriteOptions(**options))), losses


def written(*messages: Message, **options: Any) -> list[Any]:
    contents: list[Any] = write(ModelRequest(messages=messages), **options)[0]["contents"]
    return contents


def user(*parts: Part | str) -> Message:
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def model(*parts: Part | str) -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def tool(*results: ToolCallResult) -> Message:
    return Message("tool", results)


def read_parts(*parts: Any, role: str = "user") -> tuple[Part, ...]:
    return read_request({"contents": [{"role": role, "parts": list(parts)}]}).messages[0].parts


# The corpus


def test_every_accepted_request_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = accepted_requests()
    for name, model_name, body in bodies:
        before = copy.deepcopy(body)
        request = read_request(body)
        for options in ({}, {"model": model_name}):
            again, losses = write(request, **options)
            assert losses == [], name
            assert normalised(again) == normalised(body), name
            assert read_request(again) == msgspec.structs.replace(read_request(again), model=""), name
        assert body == before, f"{name} was changed by reading it"
    with capsys.disabled():
        print(f"\n{len(bodies)} accepted Gemini requests came back, each with and without its model's name")


def test_what_was_accepted_breaks_no_rule_after_it() -> None:
    for name, model_name, body in accepted_requests():
        if not check_request(body, WriteOptions(model=model_name)):
            assert (
                check_request(write(read_request(body), model=model_name)[0], WriteOptions(model=model_name)) == []
            ), name


@given(request_bodies)
def test_any_body_is_read_and_comes_back(body: dict[str, Any]) -> None:
    again, losses = write(read_request(body))
    expected = normalised(body)
    expected["contents"] = expected["contents"] or [{"role": "user", "parts": [{"text": CONTINUE_TEXT}]}]
    assert {loss.path.partition("[")[0] for loss in losses} <= {"tools", "tool_choice", "temperature", "messages"}
    got = normalised(without_additions(again, expected))
    if losses:
        got, expected = legal(got), legal(expected)
    assert got == expected


def without_additions(body: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The body without the turns that make a history legal, where the original had none."""
    contents = body["contents"]
    spoken_parts = [{"role": "user", "parts": [{"text": text}]} for text in (PLACEHOLDER_FIRST_TURN, CONTINUE_TEXT)]
    if contents[0] == spoken_parts[0]:
        contents = contents[1:]
    if len(contents) > 1 and contents[-1] == spoken_parts[1] and expected["contents"][-1] != spoken_parts[1]:
        contents = contents[:-1]
    return {**body, "contents": contents}


@pytest.mark.parametrize("contents", ["hello", 5, True])
def test_invalid_contents_are_refused(contents: Any) -> None:
    with pytest.raises(WireError, match="contents: expected an array"):
        read_request({"contents": contents})


# Single things, both ways

CASES: list[tuple[str, dict[str, Any], Part]] = [
    ("text", {"text": "hi"}, Text("hi")),
    (
        "a signature alone",
        {"text": "", "thoughtSignature": "c2ln"},
        Text("", native={"gemini": {"thoughtSignature": "c2ln"}}),
    ),
    ("a thought", {"text": "hm", "thought": True}, Thinking("hm", native={"gemini": {}})),
    (
        "a signed thought",
        {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
        Thinking("hm", native={"gemini": {"thoughtSignature": "c2ln"}}),
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
        Document(url="https://y/v", native={"gemini": {"videoMetadata": {"fps": 2}}, "gemini:untyped": {}}),
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
        ToolCallResult("f", "c1", content=(Text("sunny"),), native={"gemini:result": {}}),
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


@pytest.mark.parametrize(
    "response", [{"result": 5}, {"error": {"code": 3}}, {"output": '{"a": 1}'}, {"output": [1]}, {}]
)
def test_a_response_is_spelled_again_as_it_was(response: dict[str, Any]) -> None:
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
    assert not (definition.native or {}).get("gemini"), "a translated schema is not a loss"
    assert request.output_format is not None
    assert request.output_format.schema == schema
    assert write(request) == (body, [])


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
        ({"thinkingLevel": "low"}, Reasoning("low", native={"gemini:level:small": {}})),
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


# From other formats


def test_turns_are_made_of_messages() -> None:
    call = ToolCallRequest("f", "c1", '{"a": 1}')
    other = ToolCallRequest("g", "c2", "")
    contents = written(
        Message("system", (Text("be brief"),)),
        user("one"),
        user("two"),
        model("let me see"),
        model(call, other),
        tool(ToolCallResult("", "c1", content=(Text("1"),))),
        user("hurry up"),
        tool(ToolCallResult("", "c2", FAILED, (Text("broken"),))),
        Message("system", (Text("mind the gap"),)),
        model("done"),
    )
    assert contents == [
        {"role": "user", "parts": [{"text": "one"}, {"text": "two"}]},
        {
            "role": "model",
            "parts": [
                {"text": "let me see"},
                {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}},
                {"functionCall": {"id": "c2", "name": "g", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "1"}}},
                {"functionResponse": {"id": "c2", "name": "g", "response": {"error": "broken"}}},
                {"text": "hurry up"},
                {"text": SYSTEM_NOTE_PREFIX + "mind the gap"},
            ],
        },
        {"role": "model", "parts": [{"text": "done"}]},
    ]


def test_the_first_call_of_each_step_is_signed_for_gemini_3() -> None:
    def step(number: int) -> tuple[Message, ...]:
        calls = [ToolCallRequest("f", f"c{number}{letter}", "{}") for letter in "ab"]
        return model(*calls), tool(*(ToolCallResult.of(call, "ok") for call in calls))

    messages = (user("go"), *step(1), model("well"), user("again"), *step(2), *step(3))
    assert PLACEHOLDER_SIGNATURE not in str(written(*messages, model="gemini-2.5-flash"))
    assert PLACEHOLDER_SIGNATURE not in str(written(*messages))
    contents = written(*messages, model="models/gemini-3-flash-preview")
    signed = [
        [part.get("thoughtSignature") for part in content["parts"]]
        for content in contents
        if content["role"] == "model"
    ]
    assert signed == [
        [PLACEHOLDER_SIGNATURE, None],
        [None],
        [PLACEHOLDER_SIGNATURE, None],
        [PLACEHOLDER_SIGNATURE, None],
    ]
    for length in range(1, len(contents)):  # L9: a turn keeps its bytes when the next begins
        shorter = written(*messages[:length], model="models/gemini-3-flash-preview")
        assert contents[: len(shorter) - 1] == shorter[:-1]
    body = write(ModelRequest(messages=messages), model="gemini-3-flash-preview")[0]
    assert check_request(body, WriteOptions(model="gemini-3-flash-preview")) == []


def test_a_signature_of_its_own_is_kept() -> None:
    call = ToolCallRequest("f", "c", "{}", native={"gemini": {"thoughtSignature": "c2ln"}})
    contents = written(user("go"), model(call), tool(ToolCallResult.of(call, "ok")), model="gemini-3-flash")
    assert contents[1]["parts"][0]["thoughtSignature"] == "c2ln"


def test_a_history_neither_begins_with_a_call_nor_ends_with_the_model() -> None:
    call = ToolCallRequest("f", "c", "{}")
    history = (model(call), tool(ToolCallResult.of(call, "ok")), model("done"))
    assert written(*history)[0] == {"role": "user", "parts": [{"text": PLACEHOLDER_FIRST_TURN}]}
    assert written(*history)[-1]["role"] == "model"
    assert written(*history, model="gemini-3.6-flash")[-1] == {"role": "user", "parts": [{"text": CONTINUE_TEXT}]}
    assert [content["role"] for content in written(model("hello"))] == ["model", "user"]
    assert written(Message("system", (Text("be brief"),))) == [{"role": "user", "parts": [{"text": CONTINUE_TEXT}]}]


def test_media_of_a_result_go_to_the_user_where_the_model_requires_it() -> None:
    call, other = ToolCallRequest("f", "c", "{}"), ToolCallRequest("f", "d", "{}")
    picture = Image("image/png", "aGk=")
    messages = (user("go"), model(call, other), tool(ToolCallResult.of(call, picture), ToolCallResult.of(other, "ok")))
    parts = written(*messages, model="gemini-2.5-flash")[2]["parts"]
    assert [next(iter(part)) for part in parts] == ["functionResponse", "functionResponse", "inlineData"]
    parts = written(*messages, model="gemini-3-flash")[2]["parts"]
    assert parts[0]["functionResponse"]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]


def test_freeform_tools_become_functions() -> None:
    request = ModelRequest(
        messages=(user("go"), model(ToolCallRequest("patch", "c", "*** Begin", freeform=True))),
        tools=(ToolDefinition("patch", "Edit files.", freeform=True),),
    )
    body, losses = write(request)
    assert losses == []
    (declaration,) = body["tools"][0]["functionDeclarations"]
    assert declaration["parametersJsonSchema"]["required"] == ["input"]
    assert body["contents"][1]["parts"][0]["functionCall"]["args"] == {"input": "*** Begin"}


def test_illegal_names_get_the_same_replacement_everywhere() -> None:
    call = ToolCallRequest("1 bad name", "c", "{}")
    request = ModelRequest(
        messages=(user("go"), model(call), tool(ToolCallResult("", "c"))),
        tools=(ToolDefinition("1 bad name"), ToolDefinition("1 bad name")),
        tool_choice=ToolChoice("tool", ("1 bad name",)),
    )
    body, losses = write(request)
    assert [loss.path for loss in losses] == ["tools[1]"]
    name = body["tools"][0]["functionDeclarations"][0]["name"]
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == name
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == name
    assert body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [name]
    assert check_request(body) == []


@pytest.mark.parametrize(
    ("part", "path"),
    [
        (Thinking("hm", native={"anthropic": {"signature": "x"}}), "messages[0].parts[0].thinking"),
        (Refusal("no"), "messages[0].parts[0].refusal"),
        (Native("anthropic", {"type": "server_tool_use"}), "messages[0].parts[0]"),
        (Image(file_id="file-1"), "messages[0].parts[0]"),
        (Image("image/png", "é"), "messages[0].parts[0]"),
        (Document("application/pdf", "aGk=", name="a.pdf"), "messages[0].parts[0].name"),
        (Text("x", native={"anthropic": {"cache_control": {}}}), "messages[0].parts[0].cache_control"),
        (ToolCallRequest("f", "c", "[1]"), "messages[0].parts[0].arguments"),
        (ToolCallRequest("f", "c", native={"openai-responses": {"id": "fc_1"}}), "messages[0].parts[0].id"),
        (
            ToolCallResult("f", "c", content=(Text("x", native={"anthropic": {"citations": []}}),)),
            "messages[0].parts[0].content[0].citations",
        ),
        (ToolCallResult("f", "c", content=(Image(file_id="f"),)), "messages[0].parts[0].content[0]"),
        (ToolCallResult("f", "c", content=(Native("anthropic", {}),)), "messages[0].parts[0].content[0]"),
    ],
)
def test_what_a_part_loses(part: Part, path: str) -> None:
    losses = write(ModelRequest(messages=(Message("assistant", (part,)),)))[1]
    assert [loss.path for loss in losses if not loss.what.endswith(" turn")] == [path]  # turns are added around it


NATIVE = {"anthropic": {"x": 1}}
FIELDS: dict[str, Any] = {
    "messages": (user("x"),),
    "tools": (ToolDefinition("f"),),
    "tool_choice": ToolChoice("required"),
    "parallel_tool_calls": False,
    "output_format": OutputFormat("json_object"),
    "reasoning": Reasoning("low"),
    "max_output_tokens": 5,
    "stop": ("x",),
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "seed": 5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "candidates": 2,
    "logprobs": True,
    "top_logprobs": 2,
    "verbosity": "low",
    "user": "me",
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "cache_key": "k",
    "store": True,
    "native": NATIVE,
}
IN_THE_URL = {"model", "stream"}


def test_every_field_is_known() -> None:
    assert FIELDS.keys() | IN_THE_URL == set(ModelRequest.__struct_fields__)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_translated_or_a_loss(field: str) -> None:
    nothing = write(ModelRequest())
    assert write(ModelRequest(**{field: FIELDS[field]})) != nothing


@pytest.mark.parametrize(
    "request_",
    [
        ModelRequest(messages=(Message("user", (Text("x"),), name="me"),)),
        ModelRequest(messages=(Message("user", (Text("x"),), native=NATIVE),)),
        ModelRequest(messages=(Message("system", (Text("x"),), native=NATIVE),)),
        ModelRequest(messages=(Message("system", (Image("image/png", "aGk="),)),)),
        ModelRequest(messages=(user("x"), Message("system", (Text("x"),)))),
        ModelRequest(messages=(Message("unknown", (Native("anthropic", 1),)),)),
        ModelRequest(tools=(ToolDefinition("f", strict=True),)),
        ModelRequest(tools=(ToolDefinition("f", native=NATIVE),)),
        ModelRequest(tools=(Native("anthropic", {"type": "web_search"}),)),
        ModelRequest(tools=(ToolDefinition("f"),), tool_choice=ToolChoice("auto", native=NATIVE)),
        ModelRequest(tool_choice=ToolChoice("auto")),
        ModelRequest(output_format=OutputFormat("json_schema", {}, name="n")),
        ModelRequest(output_format=OutputFormat("json_schema", {}, description="d")),
        ModelRequest(output_format=OutputFormat("json_schema", {}, strict=True)),
        ModelRequest(output_format=OutputFormat("json_object", native=NATIVE)),
        ModelRequest(reasoning=Reasoning("ultra")),
        ModelRequest(reasoning=Reasoning("low", 5)),
        ModelRequest(reasoning=Reasoning(native=NATIVE)),
        ModelRequest(temperature=3.0),
        ModelRequest(top_p=1.5),
        ModelRequest(seed=2**40),
        ModelRequest(stop=("a", "b", "c", "d", "e", "f")),
        ModelRequest(service_tier="auto"),
        ModelRequest(
            messages=(Message("system", (Text("x"),)),), native={"gemini": {"cachedContent": "cachedContents/1"}}
        ),
    ],
)
def test_inexpressible_fields_are_losses(request_: ModelRequest) -> None:
    body, losses = write(request_)
    assert len([loss for loss in losses if loss.path != "messages"]) == 1  # the added turn
    assert check_request(body) == []


# L4: whatever is in a legal sequence, what goes out is legal

texts = st.sampled_from(["", " ", "rain", "雨", '{"a": 1}', "[1]", "{"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=10
)
natives: st.SearchStrategy[Any] = st.none() | st.just({"anthropic": {"cache_control": {}}, "openai": {"detail": "low"}})
base64s = st.sampled_from(["aGk=", "iVBORw0KGgo=", "data:image/png;base64,aGk=", "é", ""])
media_types = st.sampled_from(["", "image/png", "application/pdf", "audio/wav"])
urls = st.sampled_from(["", "https://x/a.png", "data:image/gif;base64,aGk="])
media: st.SearchStrategy[Any] = st.one_of(
    st.builds(Image, media_types, base64s, urls, st.sampled_from(["", "file-1"]), native=natives),
    st.builds(Audio, media_types, base64s, urls),
    st.builds(Document, media_types, base64s, texts, urls, name=texts),
)
foreign = st.builds(Native, st.sampled_from(["anthropic", "openai-chat"]), st.just({"type": "x"}))
input_parts = st.one_of(st.builds(Text, texts, native=natives), media, foreign)
output_parts = st.one_of(
    input_parts,
    st.builds(Thinking, texts, native=natives | st.just({"gemini": {"thoughtSignature": "c2ln"}})),
    st.builds(Refusal, texts),
)
tool_names = st.sampled_from(["get_weather", "1 bad", "", "x" * 200, "mcp__a__b", "a.b:c"])
call_ids = st.sampled_from(
    ["toolu_1|fc_2", "call_1", f"{GENERATED_ID_PREFIX}0", f"{GENERATED_ID_PREFIX}ab_1", "é", "x" * 99, "y"]
)
definitions = st.builds(
    ToolDefinition,
    tool_names,
    st.none() | texts,
    st.none() | st.just({"type": "object", "$schema": "x", "additionalProperties": False}) | st.just({}),
    st.none() | st.booleans(),
    st.booleans(),
    natives,
)


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """An answer of the model, with its calls answered at once."""
    ids = draw(st.lists(call_ids, max_size=3, unique=True))
    calls = [
        ToolCallRequest(draw(tool_names), call_id, draw(texts), draw(st.booleans()), native=draw(natives))
        for call_id in ids
    ]
    spoken_parts = draw(st.lists(output_parts, max_size=2))
    messages = [Message("assistant", (*spoken_parts, *calls), native=draw(natives))]
    results = [
        ToolCallResult(
            draw(st.sampled_from(["", call.tool_name])),
            call.tool_call_id,
            draw(st.sampled_from(list(ToolExecutionStatus))),
            tuple(draw(st.lists(input_parts, max_size=2))),
        )
        for call in draw(st.permutations(calls))
    ]
    if draw(st.booleans()):
        messages += [Message("tool", (result,)) for result in results]
    elif results:
        messages.append(Message("user", (*results, *draw(st.lists(input_parts, max_size=2)))))
    return messages


@st.composite
def legal_requests(draw: st.DrawFn) -> ModelRequest:
    messages = [Message("system", (Text(draw(texts)),)) for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.integers(0, 3)):
            messages.append(
                Message("user", tuple(draw(st.lists(input_parts, max_size=2))), name=draw(st.none() | texts))
            )
        if not draw(st.integers(0, 4)):
            messages.append(Message(draw(st.sampled_from(["system", "developer"])), (Text(draw(texts)),)))
        for step in draw(st.lists(steps(), max_size=2)):
            messages += step
    return ModelRequest(
        messages=tuple(messages),
        tools=tuple(draw(st.lists(definitions | foreign, max_size=3))),
        tool_choice=draw(
            st.none()
            | st.builds(
                ToolChoice,
                st.sampled_from(["auto", "none", "required", "tool", "allowed"]),
                st.lists(tool_names, max_size=2).map(tuple),
                st.booleans(),
            )
        ),
        output_format=draw(
            st.none()
            | st.builds(OutputFormat, st.sampled_from(["text", "json_object", "json_schema"]), st.just({"$ref": "#"}))
        ),
        reasoning=draw(
            st.none()
            | st.builds(
                Reasoning,
                st.sampled_from([None, "none", "low", "max", "ultra"]),
                st.sampled_from([None, 0, 5000]),
                st.sampled_from([None, True, False]),
                st.sampled_from([None, "auto", "omitted"]),
            )
        ),
        temperature=draw(st.none() | st.floats(-1, 5)),
        top_p=draw(st.none() | st.floats(-1, 5)),
        stop=draw(st.none() | st.lists(texts, max_size=9).map(tuple)),
    )


MODELS = ["", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro-preview", "gemini-3.6-flash", "gemini-3-pro-image"]


@given(legal_requests(), st.sampled_from(MODELS))
def test_what_goes_out_is_accepted(request_: ModelRequest, model_name: str) -> None:
    body, _losses = write(request_, model=model_name)
    assert check_request(body, WriteOptions(model=model_name)) == []


@given(legal_requests(), st.sampled_from(MODELS))
def test_writing_is_deterministic_and_changes_no_input(request_: ModelRequest, model_name: str) -> None:
    before = copy.deepcopy(request_)
    first = write(request_, model=model_name)
    assert write(request_, model=model_name) == first
    assert request_ == before


@given(legal_requests())
def test_what_was_written_is_read_back(request_: ModelRequest) -> None:
    """A request written for Gemini is read back without loss."""
    body, _losses = write(request_)
    again, losses = write(read_request(body))
    assert losses == []
    assert again == body


def test_base64_in_the_alphabet_of_urls_is_what_others_take_too() -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw-_-w=="}}]}]
    }
    (part,) = read_request(body).messages[0].parts
    assert isinstance(part, Image)
    assert part.data == "iVBORw+/+w=="
