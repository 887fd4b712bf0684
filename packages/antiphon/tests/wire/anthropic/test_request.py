"""Requests of the Messages API: recorded and captured bodies, required fields, and that every field is written or a loss."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest

from antiphon.errors import WireError
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Text,
    ToolCallRequest,
)
from antiphon.wire import (
    Loss,
    Message,
    ModelRequest,
    OutputFormat,
    ToolChoice,
    formats,
)
from antiphon.wire.format import WriteOptions
from support.corpus import CORPUS, in_collection
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import (
    accepted_requests,
    normalised,
    sent,
    without_nulls,
)
from wire.anthropic.sample_requests import ASK, CALL, NEW, PNG, RESULT, SCHEMA, TOOL, model, request, user, written

read_request = ANTHROPIC.read_request
write_request = ANTHROPIC.write_request
check_request = ANTHROPIC.check_request


def test_recorded_requests_mean_the_same_after_a_round_trip(capsys: pytest.CaptureFixture[str]) -> None:
    count = 0
    for name, body in accepted_requests():
        before = json.dumps(body)
        losses: list[Loss] = []
        again = sent(write_request(read_request(body), losses))
        assert losses == [], name
        expected = normalised(body)
        # A request to count tokens has no limit, and gets the default.
        expected.setdefault("max_tokens", 4096)
        assert normalised(again) == expected, name
        assert json.dumps(body) == before, name
        count += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{count} requests read and written again\n")
    assert count >= in_collection(839)


def test_captured_requests_go_through_in_the_version_they_were_sent_with() -> None:
    for path in sorted((CORPUS / "clients").glob("*anthropic*.json")):
        capture = json.loads(path.read_text(encoding="utf-8"))
        version = capture["headers"].get("anthropic-version", "2023-06-01")
        losses: list[Loss] = []
        body = sent(write_request(read_request(capture["body"]), losses, WriteOptions(version=version)))
        assert losses == [], path.name
        assert check_request(body, WriteOptions(version=version)) == [], path.name


def test_required_fields_of_a_request() -> None:
    for hopeless in ({}, {"messages": None}, {"messages": {"role": "user"}}, {"messages": "hi"}):
        with pytest.raises(WireError, match="messages: expected an array, got"):
            read_request(hopeless)


def test_odd_messages_are_kept() -> None:
    odd: list[Any] = [
        5,
        None,
        {},
        {"role": "user"},
        {"role": "user", "content": {"a": 1}},
        {"role": "bard", "content": ""},
    ]
    fields_given = {"role": "user", "content": "?", "name": "Ada"}
    read = read_request({"messages": [*odd, fields_given], "max_tokens": 1})
    assert [message.role for message in read.messages] == ["unknown"] * 6 + ["user"]
    body, losses = written(read)
    assert body["messages"] == [*odd, fields_given]
    assert losses == []
    neighbours = [{"role": "assistant", "x": 1}, {"role": "assistant", "content": "a"}]
    assert written(read_request({"messages": neighbours}))[0]["messages"] == neighbours


def test_the_new_version_has_no_documents_in_answers_and_no_citations_of_users() -> None:
    cited = Text("?", native={"anthropic": {"citations": [{"x": 1}]}})
    wanted = request(user(cited), model(Document("text/plain", text="a"), Text("b")), ASK)
    body, losses = written(wanted, version=NEW)
    assert losses == ["messages[0].parts[0].citations", "messages[1].parts[0]"]
    assert check_request(body, WriteOptions(version=NEW)) == []


def test_a_host_that_takes_no_urls() -> None:
    wanted = request(
        user(Image(url="https://x.org/a.png"), Text("?")),
        model="",
        native={"anthropic": {"anthropic_version": "bedrock-2023-05-31"}},
    )
    body, losses = written(wanted)
    assert losses == ["messages[0].parts[0]"]
    assert check_request(body) == []


def test_an_extra_of_another_format_is_a_loss() -> None:
    _, losses = written(request(native={"gemini": {"cachedContent": "c"}}))
    assert losses == ["native.cachedContent"]


NESTED: list[tuple[ModelRequest, str]] = [
    (request(Message("user", (Text("?"),), native={"gemini": {"x": 1}})), "messages[0].x"),
    (request(user(Text("?", native={"openai": {"x": 1}}))), "messages[0].parts[0].x"),
    (request(user(Image("image/png", PNG, native={"openai": {"detail": "low"}}))), "messages[0].parts[0].detail"),
    (request(tools=(msgspec.structs.replace(TOOL, native={"gemini": {"x": 1}}),)), "tools[0].x"),
    (request(tools=(TOOL, Native("gemini", {"googleSearch": {}}))), "tools[1]"),
    (request(tools=(TOOL,), tool_choice=ToolChoice("auto", native={"gemini": {"x": 1}})), "tool_choice.x"),
    (request(output_format=OutputFormat("json_schema", SCHEMA, description="d")), "output_format.description"),
    (request(output_format=OutputFormat("json_schema", SCHEMA, native={"gemini": {"x": 1}})), "output_format.x"),
    (
        request(ASK, model(msgspec.structs.replace(CALL, native={"gemini": {"x": 1}})), user(RESULT)),
        "messages[1].parts[0].x",
    ),
    (
        request(ASK, model(CALL), user(msgspec.structs.replace(RESULT, native={"x": {"y": 1}}))),
        "messages[2].parts[0].y",
    ),
    (
        request(ASK, model(CALL), user(RESULT.of(CALL, Text("a", native={"x": {"y": 1}})))),
        "messages[2].parts[0].content[0].y",
    ),
    (request(ASK, model(CALL), user(RESULT.of(CALL, Audio("audio/wav", "AA")))), "messages[2].parts[0].content[0]"),
    (request(ASK, model(CALL), user(RESULT.of(CALL, Native("gemini", {})))), "messages[2].parts[0].content[0]"),
    (request(Message("bard", (Text("Tra la."),)), ASK), "messages[0].parts[0]"),
]


@pytest.mark.parametrize(("wanted", "path"), NESTED, ids=[path for _, path in NESTED])
def test_nested_foreign_parts_are_losses(wanted: ModelRequest, path: str) -> None:
    assert written(wanted)[1] == [path]


def test_deep_nesting_is_safe() -> None:
    deep: Any = {}
    for _ in range(50_000):  # more than any Python can encode
        deep = {"properties": {"a": deep}, "type": "object"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "t", "input": deep}
    body = {
        "messages": [{"role": "assistant", "content": [call]}],
        "tools": [{"name": "t", "input_schema": deep}],
        "output_config": {"format": {"type": "json_schema", "schema": deep}},
    }
    read = read_request(body)
    (part,) = read.messages[0].parts  # how deep is too deep to be encoded differs from Python to Python
    assert type(part) in (Native, ToolCallRequest)
    with pytest.raises(WireError, match="nested too deeply"):
        write_request(read, [])


def test_the_format_finds_its_modules() -> None:
    anthropic = formats["anthropic"]
    body = b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"?"}]}'
    again, losses = anthropic.write_request(anthropic.read_request(body))
    assert (again, losses) == (msgspec.json.decode(body), [])
    assert without_nulls({"a": None}) == {}
