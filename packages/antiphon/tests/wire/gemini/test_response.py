"""Responses and errors of Gemini: what comes in goes out the same, and the official SDK reads what we write."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from antiphon.errors import WireError
from antiphon.parts import Native, Refusal, Source, Text, Thinking, TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.wire.loss import Loss
from antiphon.wire.output import ModelOutput, StopReason
from antiphon.wire.request import ToolDefinition
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX
from support.wire_formats import GEMINI
from wire.gemini.bodies import answers, decoded, normalised_response, response_bodies
from wire.gemini.official_sdk import Server

read_error = GEMINI.read_error
write_error = GEMINI.write_error
read_request = GEMINI.read_request
read_response = GEMINI.read_response
write_response = GEMINI.write_response


def write(output: ModelOutput) -> tuple[dict[str, Any], list[Loss]]:
    losses: list[Loss] = []
    return decoded(write_response(output, losses)), losses


def answer(*parts: Any, **candidate: Any) -> dict[str, Any]:
    content = {"parts": list(parts), "role": "model"}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0, **candidate}]}


def test_every_recorded_response_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = answers()
    for name, body in bodies:
        before = copy.deepcopy(body)
        output = read_response(body)
        again, losses = write(output)
        assert losses == [], name
        assert normalised_response(again) == normalised_response(body), name
        assert read_response(again) == output, name
        assert body == before, f"{name} was changed by reading it"
    with capsys.disabled():
        print(f"\n{len(bodies)} Gemini responses came back")


@given(response_bodies)
def test_any_response_is_read_and_comes_back(body: dict[str, Any]) -> None:
    again, losses = write(read_response(body))
    assert losses == []
    assert normalised_response(again) == normalised_response(body)


@pytest.mark.parametrize("candidates", ["x", 5, True])
def test_invalid_candidates_are_refused(candidates: Any) -> None:
    with pytest.raises(WireError, match="candidates: expected an array"):
        read_response({"candidates": candidates})


@pytest.mark.parametrize(
    ("word", "stop"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("SPII", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "malformed_call"),
        ("UNEXPECTED_TOOL_CALL", "malformed_call"),
        ("CONTINUATION", "paused"),
        ("OTHER", "other"),
        ("LANGUAGE", "other"),
        ("A_NEW_ONE", "other"),
        (1, "end"),
        (2, "length"),
        (None, ""),
    ],
)
def test_stop_reasons(word: Any, stop: StopReason) -> None:
    body = answer({"text": "x"}, finishReason=word)
    output = read_response(body)
    assert output.stop_reason == stop
    assert normalised_response(write(output)[0]) == normalised_response(body)


def test_calls_decide_the_stop_reason() -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    assert read_response(answer(call)).stop_reason == "tool_calls"
    assert read_response(answer(call, finishReason="MAX_TOKENS")).stop_reason == "length"


def test_made_up_ids_differ_from_turn_to_turn_and_never_go_out() -> None:
    body = {**answer({"functionCall": {"name": "f", "args": {}}}, {"functionCall": {"name": "f", "args": {}}})}
    ids = {
        part.tool_call_id
        for response_id in ("one", "two")
        for part in read_response({**body, "responseId": response_id}).parts
        if isinstance(part, ToolCallRequest)
    }
    assert len(ids) == 4
    assert all(call_id.startswith(GENERATED_ID_PREFIX) for call_id in ids)
    assert GENERATED_ID_PREFIX not in str(write(read_response({**body, "responseId": "one"})))


def test_a_blocked_prompt_is_an_answer_without_parts() -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}
    output = read_response(body)
    assert output.parts == ()
    assert output.stop_reason == "content_filter"
    assert write(output) == (body, [])


def test_further_candidates_are_others() -> None:
    first, second = answer({"text": "a"})["candidates"][0], answer({"text": "b"}, index=1)["candidates"][0]
    output = read_response({"candidates": [first, second], "responseId": "r", "modelVersion": "m"})
    assert [other.parts for other in (output, *output.others)] == [(Text("a"),), (Text("b"),)]
    assert write(output)[0]["candidates"] == [first, second]


def test_usage_includes_what_gemini_counts_apart() -> None:
    raw = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "toolUsePromptTokenCount": 7,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "totalTokenCount": 157,
    }
    usage = read_response({"usageMetadata": raw}).usage
    assert usage == TokenUsage(107, 50, 40, 0, 30, 157, raw, "gemini")
    assert usage.prompt_tokens + usage.completion_tokens == usage.total


def test_usage_of_other_formats_is_converted_to_geminis() -> None:
    usage = TokenUsage(100, 50, 40, 10, 30, raw={"input_tokens": 50}, format="anthropic")
    body, losses = write(
        ModelOutput(parts=(Text("x"),), stop_reason="end", usage=usage, format="anthropic", id="msg_1")
    )
    assert body["usageMetadata"] == {
        "promptTokenCount": 100,
        "candidatesTokenCount": 20,
        "totalTokenCount": 150,
        "thoughtsTokenCount": 30,
        "cachedContentTokenCount": 40,
    }
    assert [loss.path for loss in losses] == ["usage.cache_write_tokens"]
    assert body["responseId"] == "msg_1"


FOREIGN = ModelOutput(
    parts=(
        Thinking("hm", native={"anthropic": {"signature": "x"}}),
        Text("It rains."),
        ToolCallRequest("get_weather", "toolu_1", '{"city": "Oslo"}'),
    ),
    stop_reason="tool_calls",
    id="msg_1",
    model="claude",
    created=1_700_000_000,
    usage=TokenUsage(10, 20, 0, 0, 5, format="anthropic"),
    format="anthropic",
)


def test_an_answer_from_another_model() -> None:
    body, losses = write(FOREIGN)
    assert [loss.path for loss in losses] == ["parts[0].signature"]
    assert body == {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "It rains."},
                        {"functionCall": {"id": "toolu_1", "name": "get_weather", "args": {"city": "Oslo"}}},
                    ],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 15,
            "totalTokenCount": 30,
            "thoughtsTokenCount": 5,
        },
        "modelVersion": "claude",
        "createTime": "2023-11-14T22:13:20Z",
        "responseId": "msg_1",
    }


@pytest.mark.parametrize(
    ("output", "path"),
    [
        (ModelOutput(parts=(Refusal("no"),)), "parts[0].refusal"),
        (ModelOutput(parts=(Native("anthropic", {}),)), "parts[0]"),
        (ModelOutput(parts=(ToolCallRequest("f", "c", "{"),)), "parts[0].arguments"),
        (ModelOutput(stop_reason="stop_sequence", stop_sequence="END"), "stop_sequence"),
        (ModelOutput(native={"openai-chat": {"system_fingerprint": "x"}}), "native.system_fingerprint"),
        (ModelOutput(others=(ModelOutput(parts=(Refusal("no"),)),)), "others[0].parts[0].refusal"),
    ],
)
def test_losses_of_an_answer_name_their_path(output: ModelOutput, path: str) -> None:
    assert [loss.path for loss in write(output)[1]] == [path]


def test_an_answer_without_an_id_gets_one() -> None:
    assert write(ModelOutput(format="openai-chat"))[0]["responseId"]
    assert "responseId" not in write(ModelOutput(format="gemini"))[0]


# The official SDK


def has_numbered_enums(body: dict[str, Any]) -> bool:
    return any(type(candidate.get("finishReason")) is int for candidate in body.get("candidates", ()))


def without_empty_parts(response: dict[str, Any]) -> dict[str, Any]:
    for candidate in response.get("candidates", ()):
        if not candidate["content"].get("parts"):
            candidate["content"].pop("parts", None)
    return response


def shape(value: Any) -> Any:
    """What kind of body it is: the names in it, however often they come."""
    if isinstance(value, dict):
        return frozenset((name, shape(content)) for name, content in value.items())
    return frozenset(map(shape, value)) if isinstance(value, list) else type(value)


def test_the_sdk_reads_every_kind_of_response(capsys: pytest.CaptureFixture[str]) -> None:
    # The SDK itself cannot read enums that are encoded as numbers.
    bodies = {shape(body): body for _name, body in answers() if not has_numbered_enums(body)}
    with Server() as server:
        for body in bodies.values():
            ours, theirs = (
                server.plain(server.client.models.generate_content(model="gemini-2.5-flash", contents="x"))
                for _ in map(server.answer, (write(read_response(body))[0], normalised_response(body)))
            )
            assert without_empty_parts(ours) == without_empty_parts(theirs)
    with capsys.disabled():
        print(f"\nthe SDK read our Gemini responses as the originals, one of each of {len(bodies)} kinds")


def test_the_sdk_reads_an_answer_of_another_model() -> None:
    with Server() as server:
        server.answer(write(FOREIGN)[0])
        response = server.client.models.generate_content(model="gemini-2.5-flash", contents="x")
    assert response.text == "It rains."
    (call,) = response.function_calls
    assert (call.id, call.name, call.args) == ("toolu_1", "get_weather", {"city": "Oslo"})
    assert response.usage_metadata.thoughts_token_count == 5


def test_the_sdks_own_requests_are_read() -> None:
    with Server() as server:
        types = server.types
        server.answer(answer({"text": "ok"}))
        server.client.models.generate_content(
            model="gemini-2.5-flash",
            contents=[
                types.Content(role="user", parts=[types.Part(text="Is it raining?")]),
                types.Content(
                    role="model",
                    parts=[
                        types.Part(function_call=types.FunctionCall(name="f", args={"a": 1}), thought_signature=b"sig")
                    ],
                ),
                types.Content(
                    role="user", parts=[types.Part.from_function_response(name="f", response={"result": "yes"})]
                ),
            ],
            config=types.GenerateContentConfig(
                system_instruction="be brief",
                temperature=0.5,
                stop_sequences=["END"],
                thinking_config=types.ThinkingConfig(thinking_budget=0, include_thoughts=True),
                tools=[
                    types.Tool(
                        function_declarations=[
                            types.FunctionDeclaration(
                                name="f",
                                parameters=types.Schema(
                                    type=types.Type.OBJECT, properties={"a": types.Schema(type=types.Type.INTEGER)}
                                ),
                            )
                        ]
                    )
                ],
                tool_config=types.ToolConfig(
                    function_calling_config=types.FunctionCallingConfig(mode="ANY", allowed_function_names=["f"])
                ),
            ),
        )
        request = read_request(server.requests[-1])
    system, question, step, result = request.messages
    assert system.parts == (Text("be brief"),)
    assert question.parts == (Text("Is it raining?"),)
    assert step.parts == (
        ToolCallRequest("f", f"{GENERATED_ID_PREFIX}0", '{"a":1}', native={"gemini": {"thoughtSignature": "c2ln"}}),
    )
    assert result.parts == (
        ToolCallResult("f", f"{GENERATED_ID_PREFIX}0", content=(Text("yes"),), source=Source("gemini", ("result",))),
    )
    assert request.temperature == 0.5
    assert request.stop == ("END",)
    assert request.tool_choice is not None
    assert request.tool_choice.names == ("f",)
    (tool,) = request.tools
    assert isinstance(tool, ToolDefinition)
    assert tool.parameters == {"type": "object", "properties": {"a": {"type": "integer"}}}
