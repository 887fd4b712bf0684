"""Responses of OpenAI Responses: read and written, over recorded bodies and generated ones, and by the official SDK."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.parts import Image, Native, OutputPart, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.loss import Loss
from antiphon.wire.output import ModelOutput, StopReason
from support.corpus import in_collection
from support.history_strategies import output_parts
from support.wire_formats import RESPONSES
from wire.openai_responses.bodies import (
    FORMAT,
    items,
    mostly,
    objects,
    plain,
    response_bodies,
    serving,
    texts,
    without_nulls,
)

read_error = RESPONSES.read_error
write_error = RESPONSES.write_error
read_response = RESPONSES.read_response
write_response = RESPONSES.write_response

Body = dict[str, Any]


def written(output: ModelOutput) -> tuple[Body, list[Loss]]:
    losses: list[Loss] = []
    return plain(write_response(output, losses)), losses


def own(**fields: Any) -> dict[str, dict[str, Any]]:
    return {FORMAT: fields}


def message_item(text: str, item_id: str = "msg_1") -> Body:
    content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
    return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": content}


def test_every_recorded_response_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    count = 0
    for body in response_bodies():
        before = copy.deepcopy(body)
        again, losses = written(read_response(body))
        assert body == before
        assert losses == []
        assert without_nulls(again) == without_nulls(body)
        count += 1
    assert count > in_collection(500)
    with capsys.disabled():
        print(f"\n{count} response bodies round trip")


CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "f",
    "arguments": "{}",
}
REFUSAL = {**message_item(""), "content": [{"type": "refusal", "refusal": "no"}]}


@pytest.mark.parametrize(
    ("status", "details", "output", "reason"),
    [
        ("completed", None, [message_item("a")], "end"),
        ("completed", None, [message_item("a"), CALL], "tool_calls"),
        ("completed", None, [REFUSAL], "refusal"),
        ("incomplete", {"reason": "max_output_tokens"}, [CALL], "length"),
        ("incomplete", {"reason": "content_filter"}, [], "content_filter"),
        ("incomplete", {"reason": "boredom"}, [], "other"),
        ("incomplete", None, [], "other"),
        ("failed", None, [], "other"),
        ("cancelled", None, [], "other"),
        ("queued", None, [], "paused"),
        ("in_progress", None, [], "paused"),
        ("complete", None, [message_item("a")], "end"),
        (None, None, [message_item("a")], "end"),
    ],
)
def test_stop_reasons(status: str | None, details: Any, output: list[Any], reason: StopReason) -> None:
    body = {"id": "resp_1", "object": "response", "status": status, "incomplete_details": details, "output": output}
    read = read_response(body)
    assert read.stop_reason == reason
    again, losses = written(read)
    assert losses == []
    assert without_nulls(again) == without_nulls({**body, "model": ""})


@pytest.mark.parametrize(
    ("reason", "status", "details", "lost"),
    [
        ("", "completed", None, 0),
        ("end", "completed", None, 0),
        ("tool_calls", "completed", None, 0),
        ("length", "incomplete", {"reason": "max_output_tokens"}, 0),
        ("content_filter", "incomplete", {"reason": "content_filter"}, 0),
        ("refusal", "incomplete", {"reason": "content_filter"}, 0),
        ("stop_sequence", "completed", None, 1),
        ("paused", "completed", None, 1),
        ("malformed_call", "completed", None, 1),
        ("other", "completed", None, 1),
    ],
)
def test_stop_reasons_of_other_formats(reason: StopReason, status: str, details: Any, lost: int) -> None:
    body, losses = written(ModelOutput(parts=(Text("a"),), stop_reason=reason, format="anthropic"))
    assert (body["status"], body["incomplete_details"], len(losses)) == (status, details, lost)


def test_an_answer_from_another_format() -> None:
    output = ModelOutput(
        parts=(
            Thinking("hm", native={"anthropic": {"signature": "x"}}),
            Text("a"),
            Text("b"),
            ToolCallRequest("f", "toolu_1", '{"a": 1}'),
            ToolCallRequest("patch", "toolu_2", "*** Begin", freeform=True),
            Native("anthropic", {"type": "server_tool_use"}),
            Image(data="AAAA"),
        ),
        stop_reason="tool_calls",
        id="msg_9",
        model="claude",
        usage=TokenUsage(10, 5, 4, 3, 2, format="anthropic", raw={"input_tokens": 3}),
        others=(ModelOutput(),),
        format="anthropic",
        native={"anthropic": {"container": {}}},
    )
    body, losses = written(output)
    assert body["id"] == "resp_msg_9"
    assert [item["type"] for item in body["output"]] == ["reasoning", "message", "function_call", "custom_tool_call"]
    assert [item["id"].split("_")[0] for item in body["output"]] == ["rs", "msg", "fc", "ctc"]
    assert body["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert [part["text"] for part in body["output"][1]["content"]] == ["a", "b"]
    assert body["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    assert {loss.path for loss in losses} == {
        "others[0]",
        "parts[0].signature",
        "parts[5]",
        "parts[6]",
        "native.container",
    }


def test_reasoning_is_its_content_or_its_summary() -> None:
    def thought(**fields: Any) -> str:
        (part,) = read_response({"output": [{"type": "reasoning", "id": "rs_1", "summary": [], **fields}]}).parts
        assert isinstance(part, Thinking)
        return part.text

    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    assert thought() == ""
    assert thought(summary=summary) == "a\n\nb"
    assert thought(summary=summary, content=[{"type": "reasoning_text", "text": "c"}]) == "c"


@pytest.mark.parametrize("output", [7, {}, "a", True])
def test_an_unreadable_response_is_refused(output: Any) -> None:
    with pytest.raises(WireError, match="output: expected an array"):
        read_response({"output": output})


bodies = objects(
    id=texts,
    object=st.just("response"),
    created_at=st.integers(0, 9),
    model=texts,
    status=st.sampled_from(["completed", "incomplete", "failed", "queued"]),
    incomplete_details=objects(reason=st.sampled_from(["max_output_tokens", "content_filter"])),
    output=st.lists(mostly(items), max_size=4),
    usage=objects(input_tokens=st.integers(0, 9), input_tokens_details=objects(cached_tokens=st.integers(0, 9))),
)


def as_written(body: Body) -> Body:
    """What writing adds: ids that were missing, statuses and the role of items, `{}` for no arguments."""
    output = [_as_written(item) for item in body.get("output") or []]
    return {key: value for key, value in {**body, "object": "response", "output": output}.items() if value != ""}


def _as_written(item: Any) -> Any:
    if not isinstance(item, dict) or item.get("type") not in (
        "message",
        "function_call",
        "custom_tool_call",
        "reasoning",
    ):
        return item
    item = {key: value for key, value in item.items() if key != "id" or (value and "_antiphon_" not in str(value))}
    if item["type"] == "reasoning":
        return item
    if item["type"] == "message" and isinstance(item.get("content"), str):
        item = {**item, "content": [{"type": "output_text", "text": item["content"]}]}
    if item.get("arguments") == "":
        item = {**item, "arguments": "{}"}
    return {"status": "completed", "role": "assistant", **item}


@given(bodies)
def test_any_response_is_read_and_comes_back(body: Body) -> None:
    if not isinstance(body.get("output", []), list | None):
        return
    before = copy.deepcopy(body)
    again, losses = written(read_response(body))
    assert body == before
    assert losses == []
    assert as_written(without_nulls(again)) == as_written(without_nulls(plain(before)))


outputs = st.builds(
    ModelOutput,
    parts=st.lists(output_parts, max_size=5).map(tuple),
    stop_reason=st.sampled_from(["end", "length", "tool_calls", "content_filter"]),
    id=texts,
    model=texts,
    created=st.none() | st.integers(0, 2**31),
    usage=st.none() | st.builds(TokenUsage, st.integers(0, 9), st.integers(0, 9)),
    format=st.sampled_from(["", "anthropic", "gemini", "openai-chat"]),
)


def kept(parts: tuple[OutputPart, ...]) -> list[tuple[type, str]]:
    """What of an answer every client can see."""
    shown: list[tuple[type, str]] = []
    for part in parts:
        if isinstance(part, ToolCallRequest):
            shown.append((ToolCallRequest, f"{part.tool_name} {part.tool_call_id} {part.arguments or '{}'}"))
        elif isinstance(part, Text | Refusal | Thinking):
            shown.append((type(part), part.text))
    return shown


@given(outputs)
def test_answers_from_other_formats_round_trip(output: ModelOutput) -> None:
    body, _ = written(output)
    assert kept(read_response(body).parts) == kept(output.parts)


@given(outputs)
def test_the_official_sdk_reads_answers_from_other_formats(output: ModelOutput) -> None:
    responses = pytest.importorskip("openai.types.responses")
    body, _ = written(output)
    parsed = responses.Response.model_validate(body, strict=True)
    assert parsed.output_text == "".join(part.text for part in output.parts if isinstance(part, Text))
    calls = [part for part in output.parts if isinstance(part, ToolCallRequest)]
    assert [item.call_id for item in parsed.output if hasattr(item, "call_id")] == [call.tool_call_id for call in calls]


def test_the_official_sdk_reads_our_responses(capsys: pytest.CaptureFixture[str]) -> None:
    openai = pytest.importorskip("openai")
    bodies = [
        body for number, body in enumerate(response_bodies()) if number % 8 == 0
    ]  # building its models takes time
    with serving() as server, openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
        for body in bodies:
            output = read_response(body)
            server.reply = msgspec.json.encode(write_response(output, []))
            parsed = client.responses.create(model="m", input="hi")
            assert parsed.output_text == "".join(part.text for part in output.parts if isinstance(part, Text))
            assert [item.type for item in parsed.output] == [item["type"] for item in body["output"]]
            assert read_response(parsed.to_dict(warnings=False)).parts == output.parts
    with capsys.disabled():
        print(f"\n{len(bodies)} responses read by the official SDK")
