"""Answers and errors of the Messages API: read and written again, written from other formats, and parsed by the official SDK."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.parts import (
    Audio,
    Image,
    Native,
    OutputPart,
    Refusal,
    Source,
    Text,
    Thinking,
    TokenUsage,
    ToolCallRequest,
)
from antiphon.wire import Loss, ModelOutput, ProviderError
from antiphon.wire.output import StopReason
from support.corpus import in_collection
from support.examples import scaled
from support.local_server import LocalServer
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import answers, json_values, normal_block, sent, without_nulls

read_error = ANTHROPIC.read_error
write_error = ANTHROPIC.write_error
read_request = ANTHROPIC.read_request
write_request = ANTHROPIC.write_request
read_response = ANTHROPIC.read_response
write_response = ANTHROPIC.write_response


def written(output: ModelOutput) -> tuple[dict[str, Any], list[str]]:
    losses: list[Loss] = []
    body = sent(write_response(output, losses))
    return body, [loss.path for loss in losses]


def normal_answer(body: dict[str, Any]) -> dict[str, Any]:
    """An answer reduced to what it means, by the normalisations that `response` lists."""
    body = without_nulls(body)
    body["content"] = [normal_block(block) for block in body["content"]]
    return {
        "type": "message",
        "role": "assistant",
        "usage": {"input_tokens": 0, "output_tokens": 0},
        "model": "",
        **body,
    }


def test_recorded_answers_mean_the_same_after_a_round_trip(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = answers()
    for body in bodies:
        before = json.dumps(body)
        again, losses = written(read_response(body))
        assert losses == []
        assert normal_answer(again) == normal_answer(body)
        assert json.dumps(body) == before
    with capsys.disabled():
        sys.stdout.write(f"\n{len(bodies)} answers read and written again\n")
    assert len(bodies) >= max(1, in_collection(447))


def answer(*content: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
        **fields,
    }


RAIN = {"type": "text", "text": "Rain."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}


@pytest.mark.parametrize(
    ("word", "content", "stop", "kept"),
    [
        ("end_turn", [RAIN], "end", False),
        ("end_turn", [CALL], "tool_calls", True),
        ("tool_use", [CALL], "tool_calls", False),
        ("tool_use", [RAIN], "end", True),
        ("max_tokens", [CALL], "length", False),
        ("model_context_window_exceeded", [RAIN], "length", True),
        ("stop_sequence", [RAIN], "stop_sequence", False),
        ("pause_turn", [RAIN], "paused", False),
        ("refusal", [RAIN], "refusal", False),
        ("compaction", [RAIN], "other", True),
        ("of_tomorrow", [RAIN], "other", True),
        (5, [RAIN], "other", True),
        (None, [RAIN], "", False),
    ],
)
def test_stop_reasons(word: Any, content: list[Any], stop: StopReason, kept: bool) -> None:
    output = read_response(answer(*content, stop_reason=word))
    assert output.stop_reason == stop
    assert output.native == ({"anthropic": {"stop_reason": word}} if kept else None)
    assert written(output)[0]["stop_reason"] == word


def test_fields_without_a_place_are_native_and_written_again() -> None:
    body = answer(
        RAIN,
        stop_reason="refusal",
        stop_details={"type": "refusal", "category": "x"},
        stop_sequence="END",
        container={"id": "c"},
        context_management={"applied_edits": []},
        provider="P",
    )
    output = read_response(body)
    assert output.stop_sequence == "END"
    assert output.native is not None
    assert output.native["anthropic"].keys() == {"stop_details", "container", "context_management", "provider"}
    assert written(output) == (body, [])


def test_usage_is_inclusive() -> None:
    raw = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 4},
        "service_tier": "standard",
    }
    usage = read_response(answer(RAIN, usage=raw)).usage
    assert usage == TokenUsage(130, 7, 100, 20, 4, raw=raw, format="anthropic")
    foreign = ModelOutput(usage=TokenUsage(130, 7, 100, 20, 4, raw={"x": 1}, format="openai-chat"))
    assert written(foreign)[0]["usage"] == {
        **raw,
        "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
        "server_tool_use": None,
        "inference_geo": None,
    }


def test_invalid_answers() -> None:
    for hopeless in ({}, {"content": "text"}, {"type": "error", "error": {"message": "Overloaded"}}):
        with pytest.raises(WireError, match="content: expected an array, got"):
            read_response(hopeless)


FOREIGN = ModelOutput(
    parts=(
        Thinking("Hm.", source=Source("openai-chat", ("reasoning",))),
        Text(""),
        Text("Rain."),
        Refusal("No more."),
        ToolCallRequest("weather", "functions.weather:0", '{"city": "Oslo"}'),
        ToolCallRequest("weather", "call_2", "[1]"),
        ToolCallRequest("patch", "call_3", "*** Begin", freeform=True),
        Native("gemini", {"executableCode": {}}),
        Image("image/png", "iVBORw0="),
        Audio("audio/wav", "AA"),
    ),
    stop_reason="tool_calls",
    id="chatcmpl-1",
    model="gpt-4o",
    created=1,
    others=(ModelOutput(),),
    format="openai-chat",
    native={"openai-chat": {"system_fingerprint": "f"}},
)


def test_an_answer_from_another_format() -> None:
    body, losses = written(FOREIGN)
    assert [block["type"] for block in body["content"]] == [
        "thinking",
        "text",
        "text",
        "tool_use",
        "tool_use",
        "tool_use",
    ]
    assert body["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": ""}
    assert [block["input"] for block in body["content"][3:]] == [
        {"city": "Oslo"},
        {"_raw": "[1]"},
        {"input": "*** Begin"},
    ]
    assert body["content"][3]["id"].startswith("toolu_")
    assert body["id"] == "msg_chatcmpl-1"
    assert body["stop_reason"] == "tool_use"
    assert losses == [
        "parts[5].arguments",
        "parts[7]",
        "parts[8]",
        "parts[9]",
        "others[0]",
        "created",
        "native.system_fingerprint",
    ]


@pytest.mark.parametrize(
    ("stop", "part", "word", "lost"),
    [
        ("end", Text("a"), "end_turn", []),
        ("length", Text("a"), "max_tokens", []),
        ("end", Refusal("a"), "refusal", []),
        ("content_filter", Text("a"), "refusal", ["stop_reason"]),
        ("malformed_call", Text("a"), "end_turn", ["stop_reason"]),
        ("other", Text("a"), "end_turn", ["stop_reason"]),
        ("", Text("a"), "end_turn", []),
    ],
)
def test_stop_reasons_of_other_formats_are_written(
    stop: StopReason, part: OutputPart, word: str, lost: list[str]
) -> None:
    body, losses = written(ModelOutput(parts=(part,), stop_reason=stop, format="gemini"))
    assert (body["stop_reason"], losses) == (word, lost)
    assert body["id"].startswith("msg_")


blocks = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "tool_use", "image", "tool_result", "x"])},
        optional={
            "text": json_values,
            "thinking": json_values,
            "signature": json_values,
            "id": st.just("toolu_1") | st.just(5),
            "name": json_values,
            "input": st.dictionaries(st.text(max_size=3), json_values, max_size=2) | st.sampled_from([None, [], ""]),
            "citations": json_values,
        },
    ),
)


@given(
    st.builds(
        lambda content, rest: {"id": "msg_1", **rest, "content": content},
        st.lists(blocks, max_size=4),
        st.dictionaries(
            st.sampled_from(["type", "role", "model", "id", "stop_reason", "stop_sequence", "usage", "x"]), json_values
        ),
    )
)
@settings(max_examples=scaled(25), deadline=None)
def test_any_answer_comes_back(body: dict[str, Any]) -> None:
    before = repr(body)
    again, losses = written(read_response(body))
    assert repr(body) == before
    assert losses == []
    found, expected = normal_answer(again), normal_answer(sent(body))
    if not expected.get("id"):
        expected["id"] = found["id"]
    assert found == expected


@given(st.dictionaries(st.text(max_size=5) | st.just("content"), json_values, max_size=3))
@settings(max_examples=scaled(25), deadline=None)
def test_only_wire_errors_are_raised(body: dict[str, Any]) -> None:
    try:
        read_response(body)
    except WireError:
        assert not isinstance(body.get("content"), list)


def test_the_official_sdk_parses_our_answers_and_we_its_requests(capsys: pytest.CaptureFixture[str]) -> None:
    anthropic = pytest.importorskip("anthropic")
    bodies = [written(read_response(body))[0] for body in answers()[::2]] + [written(FOREIGN)[0]]
    with LocalServer() as server, anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0) as client:
        for body in bodies:
            server.answer(200, "application/json", msgspec.json.encode(body))
            message = client.messages.create(
                model="claude-of-tomorrow",
                max_tokens=100,
                system="Be brief.",
                messages=[{"role": "user", "content": [{"type": "text", "text": "?"}]}],
                tools=[{"name": "weather", "input_schema": {"type": "object"}}],
                tool_choice={"type": "auto", "disable_parallel_tool_use": True},
            )
            dumped = without_nulls(message.to_dict(mode="json", warnings=False))
            if "container" in dumped:  # the SDK writes its time in another way
                dumped["container"] = without_nulls(body["container"])
            assert dumped == without_nulls(body)
            losses: list[Loss] = []
            asked = msgspec.json.decode(server.received)
            again = sent(write_request(read_request(asked), losses))
            assert losses == []
            assert again["messages"] == [{"role": "user", "content": "?"}]
            assert {**again, "messages": 0} == {**asked, "messages": 0}
        server.answer(529, "application/json", msgspec.json.encode(write_error(ProviderError("Busy.", "overloaded"))))
        with pytest.raises(anthropic.APIStatusError, match="Busy") as raised:
            client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "?"}])
        assert raised.value.status_code == 529
    with capsys.disabled():
        sys.stdout.write(f"\n{len(bodies)} answers of ours parsed by the official SDK\n")
