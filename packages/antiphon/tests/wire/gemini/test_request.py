"""Requests of Gemini: recorded bodies come back, fields from other formats are translated or a loss."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import example, given

from antiphon.errors import WireError
from antiphon.parts import (
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire.format import WriteOptions
from antiphon.wire.gemini.content import PLACEHOLDER_SIGNATURE
from antiphon.wire.request import (
    CONTINUE_TEXT,
    SYSTEM_NOTE_PREFIX,
    Message,
    ModelRequest,
    OutputFormat,
    Reasoning,
    ToolChoice,
    ToolDefinition,
)
from antiphon.wire.shared_google import PLACEHOLDER_FIRST_TURN
from support.wire_formats import GEMINI
from wire.gemini.bodies import accepted_requests, legal, normalised, request_bodies
from wire.gemini.sample_requests import FAILED, model, tool, user, write, written

read_request = GEMINI.read_request
check_request = GEMINI.check_request

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


def test_recorded_requests_break_no_rule_when_written() -> None:
    for name, model_name, body in accepted_requests():
        if not check_request(body, WriteOptions(model=model_name)):
            assert (
                check_request(write(read_request(body), model=model_name)[0], WriteOptions(model=model_name)) == []
            ), name


@given(request_bodies)
@example({"contents": [], "generationConfig": {"stopSequences": "END"}})
@example({"contents": [], "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {}}]}]})
@example({"contents": [], "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": 1}}]}]})
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


@pytest.mark.parametrize("name", ["gemini-flash-latest", "models/gemini-pro-latest", "gemini-exp-1206"])
def test_calls_are_signed_for_names_without_a_version(name: str) -> None:
    call = ToolCallRequest("f", "c", "{}")
    contents = written(user("go"), model(call), tool(ToolCallResult.of(call, "ok")), model=name)
    assert contents[1]["parts"][0]["thoughtSignature"] == PLACEHOLDER_SIGNATURE


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
    assert [loss.path for loss in losses] == ["tools[0].name", "tools[1]"]
    name = body["tools"][0]["functionDeclarations"][0]["name"]
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == name
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == name
    assert body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [name]
    assert check_request(body) == []


@pytest.mark.parametrize(
    ("part", "path"),
    [
        (Thinking("hm", native={"anthropic": {"signature": "x"}}), "messages[0].parts[0]"),
        (Refusal("no"), "messages[0].parts[0].refusal"),
        (Native("anthropic", {"type": "server_tool_use"}), "messages[0].parts[0]"),
        (Image(file_id="file-1"), "messages[0].parts[0]"),
        (Image("image/png", "é"), "messages[0].parts[0]"),
        (Document("application/pdf", "aGk=", name="a.pdf"), "messages[0].parts[0].name"),
        (Text("x", native={"anthropic": {"cache_control": {}}}), "messages[0].parts[0].cache_control"),
        (ToolCallRequest("f", "c", "[1]"), "messages[0].parts[0].arguments"),
        (ToolCallRequest("f", "c", native={"openai-responses": {"phase": "p"}}), "messages[0].parts[0].phase"),
        (
            ToolCallResult("f", "c", content=(Text("x", native={"anthropic": {"citations": []}}),)),
            "messages[0].parts[0].content[0].citations",
        ),
        (ToolCallResult("f", "c", content=(Image(file_id="f"),)), "messages[0].parts[0].content[0]"),
        (ToolCallResult("f", "c", content=(Native("anthropic", {}),)), "messages[0].parts[0].content[0]"),
    ],
)
def test_losses_of_parts(part: Part, path: str) -> None:
    losses = write(ModelRequest(messages=(Message("assistant", (part,)),)))[1]
    assert [loss.path for loss in losses if not loss.what.endswith(" turn")] == [path]  # turns are added around it


NATIVE = {"anthropic": {"x": 1}}


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


def test_base64_in_the_alphabet_of_urls_is_what_others_take_too() -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw-_-w=="}}]}]
    }
    (part,) = read_request(body).messages[0].parts
    assert isinstance(part, Image)
    assert part.data == "iVBORw+/+w=="
