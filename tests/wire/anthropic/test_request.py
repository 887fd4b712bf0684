"""Requests of the Messages API: round trips, losses of what cannot be expressed, and legal output."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
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
from antiphon.wire import (
    Loss,
    Message,
    ModelRequest,
    OutputFormat,
    Reasoning,
    ToolChoice,
    ToolDefinition,
    formats,
)
from antiphon.wire.anthropic.request import read_request, write_request
from antiphon.wire.anthropic.rules import check_request
from antiphon.wire.format import WriteOptions
from antiphon.wire.tool_calls import safe_name
from support.corpus import CORPUS
from wire.anthropic.bodies import (
    accepted_requests,
    json_values,
    normalised,
    sent,
    without_nulls,
)

NEW = "2026-10-21"
FAILED, SKIPPED = ToolExecutionStatus.FAILED, ToolExecutionStatus.SKIPPED
PNG = "iVBORw0KGgo="
MARK = {"cache_control": {"type": "ephemeral"}}
OWN: dict[str, dict[str, Any]] = {"anthropic": {}}

ASK = Message("user", (Text("Is it raining in Oslo?"),))
ANSWER = Message("assistant", (Text("It is."),))
TOOL = ToolDefinition("weather", "Rain or not.", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = ToolCallRequest("weather", "toolu_1", '{"city":"Oslo"}')
RESULT = ToolCallResult("weather", "toolu_1", content=(Text("rain"),))
SIGNED = Thinking("Hm.", native={"anthropic": {"signature": "c2ln"}})


def request(*messages: Message, model: str = "claude-sonnet-4-5", **fields: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (ASK,), model=model, **fields)


def written(wanted: ModelRequest, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The body as it is sent, and where something was lost."""
    losses: list[Loss] = []
    body = sent(write_request(wanted, losses, WriteOptions(**options)))
    return body, [loss.path for loss in losses]


def messages_of(*messages: Message, **fields: Any) -> tuple[Any, list[str]]:
    body, losses = written(request(*messages, **fields))
    return body["messages"], losses


def user(*parts: Part) -> Message:
    return Message("user", parts)


def model(*parts: Part) -> Message:
    return Message("assistant", parts)


def system(*parts: Part) -> Message:
    return Message("system", parts)


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
    assert count >= 839


def test_captured_requests_go_through_in_the_version_they_were_sent_with() -> None:
    for path in sorted((CORPUS / "clients").glob("*anthropic*.json")):
        capture = json.loads(path.read_text(encoding="utf-8"))
        version = capture["headers"].get("anthropic-version", "2023-06-01")
        losses: list[Loss] = []
        body = sent(write_request(read_request(capture["body"]), losses, WriteOptions(version=version)))
        assert losses == [], path.name
        assert check_request(body, WriteOptions(version=version)) == [], path.name


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}

# One row is read both ways: the block of a message, and the part it is.
BLOCKS: list[tuple[str, Any, Part]] = [
    ("user", text("Hello", **MARK), Text("Hello", native={"anthropic": MARK})),
    (
        "assistant",
        text("Rain.", citations=[{"type": "char_location"}]),
        Text("Rain.", native={"anthropic": {"citations": [{"type": "char_location"}]}}),
    ),
    (
        "user",
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        Image("image/png", PNG),
    ),
    (
        "user",
        {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}},
        Image(url="https://x.org/a.png"),
    ),
    ("user", {"type": "image", "source": {"type": "file", "file_id": "f_1"}}, Image(file_id="f_1", native=OWN)),
    (
        "user",
        {"type": "document", "source": PDF, "title": "T", "context": "C", "citations": {"enabled": True}},
        Document(
            "application/pdf",
            "JVBERi0=",
            name="T",
            native={"anthropic": {"context": "C", "citations": {"enabled": True}}},
        ),
    ),
    (
        "user",
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        Document("text/plain", text="words"),
    ),
    (
        "user",
        {"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}},
        Document(url="https://x.org/a.pdf"),
    ),
    ("user", {"type": "document", "source": {"type": "file", "file_id": "f"}}, Document(file_id="f", native=OWN)),
    (
        "user",
        {"type": "document", "source": {"type": "content", "content": [text("a"), text("b")]}},
        Document(
            "text/plain",
            text="a\n\nb",
            native={"anthropic": {"source": {"type": "content", "content": [text("a"), text("b")]}}},
        ),
    ),
    (
        "assistant",
        {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "weather",
            "input": {"city": "Oslo"},
            "caller": {"type": "direct"},
        },
        ToolCallRequest("weather", "toolu_1", '{"city":"Oslo"}', native={"anthropic": {"caller": {"type": "direct"}}}),
    ),
    ("user", {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}, RESULT.of(CALL, "rain")),
    ("user", {"type": "tool_result", "tool_use_id": "toolu_1"}, RESULT.of(CALL)),
    (
        "user",
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True, **MARK},
        ToolCallResult("weather", "toolu_1", FAILED, (Text("no"),), native={"anthropic": MARK}),
    ),
    (
        "user",
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [
                text("see"),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "tool_reference", "tool_name": "weather"},
            ],
        },
        RESULT.of(
            CALL,
            "see",
            Image("image/png", PNG),
            Native("anthropic", {"type": "tool_reference", "tool_name": "weather"}),
        ),
    ),
    ("assistant", {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, SIGNED),
    (
        "assistant",
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        Thinking("", native={"anthropic": {"signature": "c2ln"}}),
    ),
    (
        "assistant",
        {"type": "redacted_thinking", "data": "x"},
        Native("anthropic", {"type": "redacted_thinking", "data": "x"}),
    ),
    ("assistant", SERVER_CALL, Native("anthropic", SERVER_CALL)),
    (
        "user",
        {"type": "container_upload", "file_id": "f"},
        Native("anthropic", {"type": "container_upload", "file_id": "f"}),
    ),
    ("user", {"type": "of tomorrow", "x": [1]}, Native("anthropic", {"type": "of tomorrow", "x": [1]})),
    ("user", {"type": "text"}, Native("anthropic", {"type": "text"})),
    ("user", {"type": "image", "source": 5}, Native("anthropic", {"type": "image", "source": 5})),
    ("user", 5, Native("anthropic", 5)),
]


@pytest.mark.parametrize(("role", "block", "part"), BLOCKS, ids=[str(block)[:60] for _, block, _ in BLOCKS])
def test_a_block_is_a_part_and_back(role: str, block: Any, part: Part) -> None:
    before = {"role": "assistant" if role == "user" else "user", "content": "?"}
    turns = [before, {"role": role, "content": [block, block]}]
    call: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}],
    }
    if role == "user" and isinstance(part, ToolCallResult):
        turns[0] = call  # a result takes the name of its call
    read = read_request({"messages": turns, "max_tokens": 5})
    assert read.messages[-1] == Message(role, (part, part))
    body, losses = written(read)
    assert losses == []
    assert body["messages"][-1] == {"role": role, "content": [block, block]}


PARAMETERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"stream": True}, {"stream": True}),
    ({"temperature": 0.5, "top_p": 0.9, "top_k": 4}, {"temperature": 0.5, "top_p": 0.9, "top_k": 4}),
    ({"top_p": -1, "top_k": -1}, {"top_p": -1, "top_k": -1}),
    ({"stop_sequences": ["END", "\n\nHuman:"]}, {"stop": ("END", "\n\nHuman:")}),
    ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    ({"metadata": {"user_id": "u", "x": 1}}, {"user": "u", "native": {"anthropic": {"metadata": {"x": 1}}}}),
    ({"service_tier": "standard_only"}, {"service_tier": "standard_only"}),
    ({"thinking": {"type": "disabled"}}, {"reasoning": Reasoning(enabled=False, native=OWN)}),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}},
        {"reasoning": Reasoning(budget_tokens=2048, enabled=True, shown="omitted", native=OWN)},
    ),
    (
        {"model": "claude-opus-4-8", "thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
        {"reasoning": Reasoning("xhigh", enabled=True, native=OWN)},
    ),
    (
        {"output_config": {"effort": "low", "task_budget": {"total": 5}}},
        {
            "reasoning": Reasoning("low", native=OWN),
            "native": {"anthropic": {"output_config": {"task_budget": {"total": 5}}}},
        },
    ),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": OutputFormat("json_schema", SCHEMA)},
    ),
    (
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        {"output_format": OutputFormat("json_schema", SCHEMA, native=OWN)},
    ),
    (
        {"tools": [{"name": "weather", "description": "d", "input_schema": SCHEMA, "strict": True, **MARK}]},
        {"tools": (ToolDefinition("weather", "d", SCHEMA, True, native={"anthropic": MARK}),)},
    ),
    (
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]},
        {"tools": (Native("anthropic", {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}),)},
    ),
    ({"mcp_servers": [{"name": "m"}], "tool_choice": {"type": "any"}}, {"tool_choice": ToolChoice("required")}),
    (
        {"mcp_servers": [{}], "tool_choice": {"type": "tool", "name": "a", "disable_parallel_tool_use": True}},
        {"tool_choice": ToolChoice("tool", ("a",)), "parallel_tool_calls": False},
    ),
    (
        {"mcp_servers": [{}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
        {"tool_choice": ToolChoice("auto"), "parallel_tool_calls": True},
    ),
    ({"system": [text("a", **MARK), text("b")]}, {}),
    ({"container": "c", "context_management": {"edits": []}, "cache_control": {"type": "ephemeral"}}, {}),
    ({"of_tomorrow": {"x": 1}, "speed": "fast", "betas": ["b"], "inference_geo": "eu"}, {}),
    ({"temperature": "hot", "max_tokens": "many", "tools": 5, "system": 6, "thinking": 7, "tool_choice": 8}, {}),
    ({"thinking": {"type": "dreaming"}, "output_config": {"effort": "heroic"}, "service_tier": "best"}, {}),
]


@pytest.mark.parametrize(
    ("fields_given", "fields"), PARAMETERS, ids=[str(fields_given)[:70] for fields_given, _ in PARAMETERS]
)
def test_a_parameter_is_a_field_and_back(fields_given: dict[str, Any], fields: dict[str, Any]) -> None:
    body = {
        "model": "claude",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": "?"}],
        **fields_given,
    }
    read = read_request(body)
    for name, value in fields.items():
        assert getattr(read, name) == value
    again, losses = written(read)
    assert losses == []
    assert again == body


def test_what_a_body_must_have() -> None:
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


def test_the_system_prompt_comes_first() -> None:
    body, losses = written(
        request(system(Text("a")), Message("developer", (Text("b", native={"anthropic": MARK}),)), ASK)
    )
    assert body["system"] == [text("a"), text("b", **MARK)]
    assert losses == []
    body, _ = written(request(system(Text("a")), ASK))
    assert body["system"] == "a"
    body, _ = written(request(system(Text(" ")), ASK))
    assert "system" not in body
    _, losses = written(request(Message("system", (Image("image/png", PNG),), name="n"), ASK))
    assert losses == ["messages[0].parts[0]", "messages[0].name"]


LATER = system(Text("Speak Norwegian."))
NOTED = text("[system note] Speak Norwegian.")


def test_a_later_system_message_stays_where_the_model_takes_it() -> None:
    turns, losses = messages_of(ASK, LATER, ANSWER, ASK, LATER, model="claude-opus-4-8")
    assert [turn["role"] for turn in turns] == ["user", "system", "assistant", "user", "system"]
    assert losses == []


def test_a_later_system_message_moves_after_the_user() -> None:
    turns, losses = messages_of(ASK, ANSWER, LATER, ASK, ANSWER, ASK, model="claude-opus-4-8")
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "system", "assistant", "user"]
    assert losses == ["messages[2]"]
    turns, losses = messages_of(
        ASK, model(CALL), LATER, Message("tool", (RESULT,)), tools=(TOOL,), model="claude-opus-5"
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "system"]
    assert losses == ["messages[2]"]


def test_a_later_system_message_becomes_a_note_in_other_models() -> None:
    turns, losses = messages_of(ASK, ANSWER, LATER, ASK)
    assert turns[2] == {"role": "user", "content": [NOTED, text("Is it raining in Oslo?")]}
    assert losses == ["messages[2]"]
    turns, losses = messages_of(ASK, ANSWER, LATER, model="claude-opus-4-8")
    assert turns[2] == {"role": "user", "content": NOTED["text"]}
    turns, losses = messages_of(ASK, model(CALL), LATER, Message("tool", (RESULT,)), tools=(TOOL,))
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "text"]
    turns, _ = messages_of(user(Text("")), LATER, ANSWER, ASK, model="claude-opus-4-8")
    assert turns[0] == {"role": "user", "content": NOTED["text"]}


def test_a_system_message_waits_for_an_answer_that_comes_to_something() -> None:
    turns, losses = messages_of(ASK, LATER, model(Text("")), ASK, model="claude-opus-4-8")
    assert [turn["role"] for turn in turns] == ["user", "system"]
    assert losses == ["messages[1]"]


def test_messages_of_one_role_are_one_turn() -> None:
    other = ToolCallRequest("weather", "toolu_2", "{}")
    turns, losses = messages_of(
        ASK,
        user(Text("And in Bergen?")),
        model(Text("Let me look."), CALL),
        model(Text("And there."), other),
        Message("tool", (RESULT,)),
        Message("tool", (ToolCallResult("weather", "toolu_2", content=(Text("sun"),)),)),
        user(Text("Thanks")),
        tools=(TOOL,),
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert [block["type"] for block in turns[1]["content"]] == ["text", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "tool_result", "text"]
    assert losses == []


def test_blank_text_is_left_out() -> None:
    turns, losses = messages_of(ASK, user(Text(" \n")), model(Text(""), Text("It is.  \n")))
    assert turns == [{"role": "user", "content": "Is it raining in Oslo?"}, {"role": "assistant", "content": "It is."}]
    assert losses == []
    turns, losses = messages_of(user(Text("", native={"anthropic": MARK, "openai": {"x": 1}})), ASK)
    assert losses == ["messages[0].parts[0].x", "messages[0].parts[0].cache_control"]
    turns, losses = messages_of(model(Text("a")), user(Text(" ")), model(Text("b ", native={"anthropic": MARK})))
    assert [turn["content"] for turn in turns] == [[text("a"), text("b", **MARK)]]


def test_newer_models_do_not_end_with_an_assistant_turn() -> None:
    turns, losses = messages_of(ASK, ANSWER, model="claude-opus-4-6")
    assert turns[-1] == {"role": "user", "content": "(continue)"}
    assert losses == ["messages"]
    served = model(Native("anthropic", SERVER_CALL))
    assert messages_of(ASK, served, model="claude-opus-4-6")[1] == []
    turns, losses = messages_of(system(Text("Only this.")))
    assert (turns, losses) == ([{"role": "user", "content": "(continue)"}], ["messages"])


def test_ids_and_names_are_made_legal() -> None:
    call = ToolCallRequest("functions.eval!", "functions.eval:301", "{}")
    tool = ToolDefinition("functions.eval!", None, None)
    wanted = request(
        ASK,
        model(call),
        user(ToolCallResult.of(call, "4")),
        tools=(tool, ToolDefinition("x" * 200)),
        tool_choice=ToolChoice("tool", ("functions.eval!",)),
    )
    body, losses = written(wanted)
    assert losses == []
    assert check_request(body) == []
    block, answer = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert block["id"] == answer["tool_use_id"] != call.tool_call_id
    assert body["tools"][0]["name"] == block["name"] == body["tool_choice"]["name"]
    assert block["name"] == safe_name("functions.eval!", 128)


@pytest.mark.parametrize(
    ("arguments", "expected", "is_lossy"),
    [
        ('{"a": 1.50, "b": 12345678901234567890}', {"a": 1.5, "b": 12345678901234567890}, False),
        ("", {}, False),
        (" \n", {}, False),
        ("null", {}, False),
        ("[1]", {"_raw": "[1]"}, True),
        ('{"a":', {"_raw": '{"a":'}, True),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}, True),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}, True),
    ],
)
def test_the_input_of_a_call_is_an_object(arguments: str, expected: Any, is_lossy: bool) -> None:
    call = ToolCallRequest("weather", "toolu_1", arguments)
    turns, losses = messages_of(ASK, model(call), user(RESULT), tools=(TOOL,))
    assert turns[1]["content"][0]["input"] == expected
    assert losses == (["messages[1].parts[0].arguments"] if is_lossy else [])


def test_freeform_tools_take_their_text_in_an_object() -> None:
    call = ToolCallRequest("patch", "toolu_1", "*** Begin", freeform=True)
    body, losses = written(request(ASK, model(call), user(RESULT), tools=(ToolDefinition("patch", freeform=True),)))
    assert body["messages"][1]["content"][0]["input"] == {"input": "*** Begin"}
    assert body["tools"][0]["input_schema"]["required"] == ["input"]
    assert losses == []


def test_failed_results_hold_text_only() -> None:
    result = ToolCallResult("weather", "toolu_1", FAILED, (Image("image/png", PNG),))
    turns, losses = messages_of(ASK, model(CALL), user(result, Text("Look.")), tools=(TOOL,))
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "image", "text"]
    assert turns[2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": "(no output)",
        "is_error": True,
    }
    assert losses == []
    turns, _ = messages_of(ASK, model(CALL), user(ToolCallResult("weather", "toolu_1", SKIPPED)), tools=(TOOL,))
    assert turns[2]["content"][0]["is_error"] is True


@pytest.mark.parametrize(
    "part",
    [
        Audio("audio/wav", "AAAA"),
        Thinking("Hm."),
        Thinking("Hm.", native={"gemini": {"thoughtSignature": "x"}}),
        Native("openai-responses", {"type": "compaction"}),
        Image("image/bmp", "Qk0="),
        Image(url="gs://bucket/a.png"),
        Image(file_id="file-abc"),
        Image(),
        Document("application/zip", "UEsDBA=="),
        Document("text/plain", "!!!"),
    ],
)
def test_unsupported_parts_are_losses(part: Part) -> None:
    turns, losses = messages_of(ASK, model(part, Text("It is.")))
    assert turns[1] == {"role": "assistant", "content": "It is."}
    assert losses == ["messages[1].parts[0]"]


def test_media_are_translated() -> None:
    turns, losses = messages_of(
        user(
            Image(data=PNG),
            Image(url=f"data:image/png;base64,{PNG}"),
            Document("text/csv", "YSxi", name="a.csv"),
            Document("text/markdown", text="# a"),
            Document(data="JVBERi0="),
        )
    )
    sources = [block["source"] for block in turns[0]["content"]]
    assert sources[0] == sources[1] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert sources[2] == {"type": "text", "media_type": "text/plain", "data": "a,b"}
    assert sources[3]["data"] == "# a"
    assert sources[4] == PDF
    assert losses == ["messages[0].parts[2].media_type", "messages[0].parts[3].media_type"]


def test_refusals_and_names_are_losses() -> None:
    turns, losses = messages_of(Message("user", (Text("?"),), name="Ada"), model(Refusal("No.")), ASK)
    assert turns[1] == {"role": "assistant", "content": "No."}
    assert losses == ["messages[0].name", "messages[1].parts[0]"]


def marked(words: str, ttl: str = "5m") -> Text:
    return Text(words, native={"anthropic": {"cache_control": {"type": "ephemeral", "ttl": ttl}}})


def test_four_cache_marks_are_kept() -> None:
    tool = ToolDefinition("weather", None, SCHEMA, native={"anthropic": MARK})
    body, losses = written(request(system(marked("s")), user(*(marked(word) for word in "abcde")), tools=(tool,)))
    assert check_request(body) == []
    assert losses == [
        "tools[0].cache_control",
        "messages[0].parts[0].cache_control",
        "messages[1].parts[0].cache_control",
    ]
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [False, True, True, True, True]
    assert tool.native == {"anthropic": MARK}


def test_an_hour_does_not_follow_five_minutes() -> None:
    body, losses = written(request(user(marked("a", "1h"), marked("b"), marked("c", "1h"))))
    assert check_request(body) == []
    assert losses == ["messages[0].parts[2].cache_control.ttl"]


TUNED = {"temperature": 0.5, "top_p": 0.5, "top_k": 5}


@pytest.mark.parametrize(
    ("fields", "options", "expected", "lost"),
    [
        ({"temperature": 1.7}, {}, {"temperature": 1}, ["temperature"]),
        ({"temperature": -1.0}, {}, {"temperature": 0}, ["temperature"]),
        ({"top_p": 3.0}, {}, {"top_p": 1}, ["top_p"]),
        ({"top_k": -7}, {}, {"top_k": None}, ["top_k"]),
        ({"temperature": float("nan")}, {}, {"temperature": None}, ["temperature"]),
        (TUNED, {"version": NEW}, dict.fromkeys(TUNED), list(TUNED)),
        ({"model": "claude-opus-4-7", **TUNED}, {}, dict.fromkeys(TUNED), list(TUNED)),
        ({"model": "claude-opus-4-7", "temperature": 1.0}, {}, {"temperature": 1.0}, []),
        ({"stop": ("END", " ", "")}, {}, {"stop_sequences": ["END"]}, ["stop[1]", "stop[2]"]),
        ({"max_output_tokens": -3}, {}, {"max_tokens": 0}, ["max_output_tokens"]),
        ({}, {}, {"max_tokens": 4096}, []),
        ({"user": "u" * 600}, {}, {"metadata": {"user_id": "u" * 512}}, ["user"]),
        ({"service_tier": "flex"}, {}, {"service_tier": None}, ["service_tier"]),
        ({"service_tier": "default"}, {}, {"service_tier": "standard_only"}, []),
        ({"tool_choice": ToolChoice("required")}, {}, {"tool_choice": None}, ["tool_choice"]),
        ({"parallel_tool_calls": True}, {}, {"tool_choice": None}, ["parallel_tool_calls"]),
        (
            {"tools": (TOOL,), "parallel_tool_calls": False},
            {},
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            [],
        ),
        (
            {"tools": (TOOL,), "parallel_tool_calls": False, "tool_choice": ToolChoice("none")},
            {},
            {"tool_choice": {"type": "none"}},
            ["parallel_tool_calls"],
        ),
        (
            {"tools": (TOOL,), "tool_choice": ToolChoice("tool", ("missing",))},
            {},
            {"tool_choice": {"type": "auto"}},
            ["tool_choice.names"],
        ),
        (
            {"tools": (TOOL,), "tool_choice": ToolChoice("required"), "model": "claude-opus-5-5"},
            {},
            {"tool_choice": {"type": "auto"}},
            ["tool_choice"],
        ),
        ({"candidates": 1, "logprobs": False, "presence_penalty": 0.0}, {}, {}, []),
    ],
)
def test_parameters_are_brought_into_range(
    fields: dict[str, Any], options: dict[str, Any], expected: dict[str, Any], lost: list[str]
) -> None:
    body, losses = written(request(**fields), **options)
    assert {name: body.get(name) for name in expected} == expected
    assert losses == lost
    assert check_request(body, WriteOptions(**options)) == []


def test_some_of_the_tools_may_be_allowed() -> None:
    other = ToolDefinition("search")
    allowed = ToolChoice("allowed", ("search",), must_call=True)
    body, losses = written(request(tools=(TOOL, other), tool_choice=allowed))
    assert [tool["name"] for tool in body["tools"]] == ["search"]
    assert body["tool_choice"] == {"type": "any"}
    assert losses == ["tool_choice.names"]
    body, losses = written(request(tools=(TOOL, other), tool_choice=ToolChoice("allowed", ("gone",))))
    assert len(body["tools"]) == 2
    assert losses == ["tool_choice.names"]


def test_tools_of_one_name_and_tools_all_deferred() -> None:
    body, losses = written(request(tools=(TOOL, TOOL)))
    assert len(body["tools"]) == 1
    assert losses == ["tools[1]"]
    late = ToolDefinition("weather", None, SCHEMA, native={"anthropic": {"defer_loading": True}})
    body, losses = written(request(tools=(late,)))
    assert losses == ["tools[0].defer_loading"]
    assert check_request(body) == []


def test_strict_tools_within_their_limits() -> None:
    tools = tuple(ToolDefinition(f"t{number}", None, SCHEMA, strict=True) for number in range(22))
    body, losses = written(request(tools=tools))
    assert losses == ["tools[20].strict", "tools[21].strict"]
    assert check_request(body) == []
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    circle = ToolDefinition("t", None, {"type": "object", "$defs": {"Node": node}}, strict=True)
    assert written(request(tools=(circle,)))[1] == ["tools[0].strict"]


@pytest.mark.parametrize(
    ("schema", "expected", "lost"),
    [
        (None, {"type": "object", "properties": {}}, []),
        ({}, {"type": "object"}, []),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/definitions/A"}},
                "definitions": {"A": {"type": "null"}},
            },
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "null"}}},
            [],
        ),
        (
            {"$ref": "#/definitions/A", "definitions": {"A": {"type": "object", "properties": {}}}},
            {"type": "object", "properties": {}, "$defs": {"A": {"type": "object", "properties": {}}}},
            [],
        ),
        (
            {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"a": {"type": "string"}, "k": {"const": 1}},
                        "required": ["a", "k"],
                    },
                    {
                        "type": "object",
                        "properties": {"b": {"type": "string"}, "k": {"const": 2}},
                        "required": ["b", "k"],
                    },
                    {"type": "null"},
                ]
            },
            {
                "type": "object",
                "properties": {
                    "a": {"type": "string"},
                    "k": {"anyOf": [{"const": 1}, {"const": 2}]},
                    "b": {"type": "string"},
                },
                "required": ["k"],
            },
            ["anyOf"],
        ),
        (
            {"type": "object", "allOf": [{"required": ["a"]}, {"properties": {"a": {}}, "required": ["b"]}]},
            {"type": "object", "properties": {"a": {}}, "required": ["a", "b"]},
            ["allOf"],
        ),
        (
            {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {}}},
            {
                "type": "object",
                "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
                "required": ["value"],
                "$defs": {"A": {}},
            },
            [""],
        ),
        ({"type": ["object", "null"]}, {"type": "object"}, ["type"]),
        ({"$ref": "#/$defs/Gone"}, {"type": "object"}, ["$ref"]),
    ],
)
def test_the_input_of_a_tool_is_an_object(schema: Any, expected: Any, lost: list[str]) -> None:
    before = copy.deepcopy(schema)
    body, losses = written(request(tools=(ToolDefinition("t", None, schema),)))
    assert body["tools"][0]["input_schema"] == expected
    assert losses == [f"tools[0].parameters.{path}".removesuffix(".") for path in lost]
    assert check_request(body) == []
    assert schema == before


def test_property_keys_are_plain() -> None:
    schema = {"type": "object", "properties": {"$filter": {"type": "string"}}, "required": ["$filter"]}
    body, losses = written(request(tools=(ToolDefinition("t", None, schema),)))
    assert check_request(body) == []
    assert body["tools"][0]["input_schema"]["required"] == list(body["tools"][0]["input_schema"]["properties"])
    assert losses == ["tools[0].parameters.properties.$filter"]


def test_the_output_format_takes_no_bounds() -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0}, "x": {"oneOf": [{"type": "null"}, {"maxLength": 3}]}},
    }
    form = OutputFormat("json_schema", schema, name="person", strict=True)
    body, losses = written(request(output_format=form))
    assert body["output_config"]["format"]["schema"]["properties"] == {
        "age": {"type": "integer", "description": "minimum: 0"},
        "x": {"anyOf": [{"type": "null"}, {"description": "maxLength: 3"}]},
    }
    assert sorted(losses) == [
        "output_format.name",
        "output_format.schema.additionalProperties",
        "output_format.schema.properties.age.minimum",
        "output_format.schema.properties.x.anyOf[1].maxLength",
        "output_format.schema.properties.x.oneOf",
    ]
    assert check_request(body) == []
    assert "minimum" in schema["properties"]["age"]  # type: ignore[index]
    assert written(request(output_format=OutputFormat("json_object")))[1] == ["output_format"]
    assert written(request(output_format=OutputFormat("text")))[1] == []
    assert written(request(output_format=OutputFormat("json_schema", SCHEMA, strict=False)))[1] == [
        "output_format.strict"
    ]
    cited = Document("text/plain", text="a", native={"anthropic": {"citations": {"enabled": True}}})
    assert written(request(user(cited), output_format=OutputFormat("json_schema", SCHEMA)))[1] == ["output_format"]


OLD, MIDDLE, LATE, LATEST, OTHER = (
    "claude-sonnet-4-5",
    "claude-opus-4-6",
    "claude-opus-4-8",
    "claude-fable-5",
    "kimi-k3",
)


@pytest.mark.parametrize(
    ("name", "reasoning", "thinking", "effort", "lost"),
    [
        (OLD, Reasoning("high"), {"type": "enabled", "budget_tokens": 16384}, None, []),
        (OTHER, Reasoning("minimal"), {"type": "enabled", "budget_tokens": 1024}, None, []),
        (MIDDLE, Reasoning("high"), {"type": "adaptive"}, "high", []),
        (MIDDLE, Reasoning("xhigh"), {"type": "adaptive"}, "high", ["reasoning.effort"]),
        (MIDDLE, Reasoning("minimal"), {"type": "adaptive"}, "low", []),
        (LATE, Reasoning("xhigh", shown="auto"), {"type": "adaptive", "display": "summarized"}, "xhigh", []),
        (LATE, Reasoning(budget_tokens=5000), {"type": "adaptive"}, "medium", []),
        (LATE, Reasoning(budget_tokens=5000, enabled=True, native=OWN), {"type": "adaptive"}, "medium", []),
        (OLD, Reasoning(budget_tokens=5000), {"type": "enabled", "budget_tokens": 5000}, None, []),
        (
            OLD,
            Reasoning(budget_tokens=10),
            {"type": "enabled", "budget_tokens": 1024},
            None,
            ["reasoning.budget_tokens"],
        ),
        (OLD, Reasoning(budget_tokens=-1), {"type": "enabled", "budget_tokens": 4096}, None, []),
        (OLD, Reasoning("none"), {"type": "disabled"}, None, []),
        (OLD, Reasoning(budget_tokens=0), {"type": "disabled"}, None, []),
        (LATEST, Reasoning("none"), None, None, ["reasoning"]),
        (OLD, Reasoning(enabled=True, native=OWN), {"type": "enabled", "budget_tokens": 4096}, None, ["reasoning"]),
        (OTHER, Reasoning(enabled=True, native=OWN), {"type": "adaptive"}, None, []),
        (OTHER, Reasoning("max", native=OWN), None, "max", []),
        (OLD, Reasoning("heroic"), None, None, ["reasoning.effort"]),
        (LATE, Reasoning(shown="auto"), None, None, ["reasoning.shown"]),
        (LATE, Reasoning("low", shown="sung"), {"type": "adaptive"}, "low", ["reasoning.shown"]),
        (LATE, Reasoning("none", shown="auto"), {"type": "disabled"}, None, ["reasoning.shown"]),
        (
            OLD,
            Reasoning("low", native={"gemini": {"x": 1}}),
            {"type": "enabled", "budget_tokens": 1024},
            None,
            ["reasoning.x"],
        ),
    ],
)
def test_reasoning_as_the_model_takes_it(
    name: str, reasoning: Reasoning, thinking: Any, effort: str | None, lost: list[str]
) -> None:
    body, losses = written(request(reasoning=reasoning, model=name))
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    assert losses == lost
    assert check_request(body) == []


BUDGET = Reasoning(budget_tokens=2000)


@pytest.mark.parametrize(
    ("messages", "fields", "thinking", "lost"),
    [
        ((ASK,), {"max_output_tokens": 1500}, {"type": "enabled", "budget_tokens": 1499}, ["reasoning.budget_tokens"]),
        ((ASK,), {"max_output_tokens": 1500, "tools": (TOOL,)}, {"type": "enabled", "budget_tokens": 2000}, []),
        ((ASK,), {"max_output_tokens": 900}, None, ["reasoning"]),
        ((ASK,), {"tools": (TOOL,), "tool_choice": ToolChoice("required")}, None, ["reasoning"]),
        ((ASK, model(CALL), user(RESULT)), {"tools": (TOOL,)}, None, ["reasoning"]),
        ((ASK, model(CALL), user(RESULT), model(Text("")), ASK), {"tools": (TOOL,)}, None, ["reasoning"]),
        ((ASK, model(SIGNED, CALL), user(RESULT)), {"tools": (TOOL,)}, {"type": "enabled", "budget_tokens": 2000}, []),
        (
            (ASK, model(CALL), user(RESULT), ANSWER, ASK),
            {"tools": (TOOL,)},
            {"type": "enabled", "budget_tokens": 2000},
            [],
        ),
        (
            (ASK,),
            {"temperature": 0.2, "top_k": 3},
            {"type": "enabled", "budget_tokens": 2000},
            ["temperature", "top_k"],
        ),
    ],
)
def test_thinking_that_goes_with_the_rest(
    messages: tuple[Message, ...], fields: dict[str, Any], thinking: Any, lost: list[str]
) -> None:
    body, losses = written(request(*messages, reasoning=BUDGET, **fields))
    assert body.get("thinking") == thinking
    assert losses == lost
    assert check_request(body) == []


def test_adaptive_thinking_is_as_strict_about_sampling() -> None:
    tuned = {"temperature": 0.2, "top_p": 0.5, "top_k": 3}
    body, losses = written(request(reasoning=Reasoning("low"), model=MIDDLE, **tuned))
    assert losses == ["temperature", "top_p", "top_k"]
    body, losses = written(request(reasoning=Reasoning("low"), model=MIDDLE, temperature=1.0))
    assert (body["temperature"], losses) == (1.0, [])
    body, losses = written(request(reasoning=Reasoning("low"), model=MIDDLE, top_p=0.96))
    assert (body["top_p"], losses) == (0.96, [])


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


FIELDS: dict[str, Any] = {
    "messages": (user(Text("Other words.")),),
    "model": "claude-opus-4-1",
    "stream": False,
    "tools": (TOOL,),
    "tool_choice": ToolChoice("auto"),
    "parallel_tool_calls": True,
    "output_format": OutputFormat("json_schema", SCHEMA),
    "reasoning": Reasoning("low"),
    "max_output_tokens": 77,
    "stop": ("END",),
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "seed": 0,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "candidates": 2,
    "logprobs": True,
    "top_logprobs": 3,
    "verbosity": "low",
    "user": "u",
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "cache_key": "k",
    "store": False,
    "native": {"gemini": {"cachedContent": "c"}},
}


def test_every_field_is_written_or_a_loss() -> None:
    assert FIELDS.keys() == {field.name for field in msgspec.structs.fields(ModelRequest)}
    plain, none_lost = written(request())
    assert none_lost == []
    for name, value in FIELDS.items():
        body, losses = written(msgspec.structs.replace(request(), **{name: value}))
        assert body != plain or losses, name
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


# Law L4: requests of legal order, whatever else is in them.

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", " ", "\n", "rain ", "x" * 300, "a b", "今天", "call:1", '{"a": 1}']
)
marks = st.sampled_from(
    [{"cache_control": {"type": "ephemeral"}}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
)
natives: st.SearchStrategy[Any] = st.none() | st.fixed_dictionaries(
    {}, optional={"anthropic": marks, "openai": st.just({"detail": "low"})}
)
media: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        Image, st.sampled_from(["image/png", "image/bmp", ""]), st.sampled_from([PNG, "", "data:x"]), native=natives
    ),
    st.builds(
        Image, url=st.sampled_from(["https://x.org/a", "gs://a", "data:image/png;base64,iVBORw0=", "data:,a", ""])
    ),
    st.builds(Image, file_id=st.sampled_from(["file_1", "file-1"])),
    st.builds(
        Document,
        st.sampled_from(["application/pdf", "text/csv", "text/plain", "", "x/y"]),
        st.sampled_from(["JVBERi0=", "YSxi", ""]),
        anything,
        name=anything,
        native=natives,
    ),
    st.builds(Audio, st.just("audio/wav"), st.just("AA")),
)
texts = st.builds(Text, anything, native=natives)
natively = st.sampled_from(
    [
        Native("anthropic", {"type": "container_upload", "file_id": "f", "cache_control": {"type": "ephemeral"}}),
        Native("openai-responses", {"type": "item_reference"}),
    ]
)
asked: st.SearchStrategy[Any] = st.one_of(texts, media, natively)
fields_given: st.SearchStrategy[Any] = st.one_of(
    texts,
    st.builds(Thinking, anything, native=natives),
    st.builds(
        Thinking,
        anything,
        native=st.just({"anthropic": {"signature": "c2ln", "cache_control": {"type": "ephemeral"}}}),
    ),
    st.builds(Refusal, anything),
    st.just(Native("anthropic", SERVER_CALL)),
    natively,
)
schemas: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.sampled_from(
        [
            {},
            {"type": "string"},
            {
                "oneOf": [{"type": "object", "properties": {"a": {}}}, {"$ref": "#/$defs/A"}],
                "$defs": {"A": {"type": "object"}},
            },
            {"type": "object", "properties": {"a b": {"type": "integer", "minimum": 3}}, "required": ["a b"]},
            {
                "type": "object",
                "definitions": {"A": {"$ref": "#/definitions/A"}},
                "properties": {"a": {"$ref": "#/definitions/A"}},
            },
            {"type": "object", "patternProperties": {"^a": {"oneOf": []}}, "items": [{"maxItems": 3}]},
            {"anyOf": 5},
            {"type": ["null", "object"], "properties": 3},
        ]
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", None, 3])},
        optional={
            "properties": st.dictionaries(anything, json_values, max_size=3),
            "allOf": json_values,
            "$ref": json_values,
        },
    ),
)
names = st.sampled_from(["weather", "search web", "", "x" * 150, "天气", "a.b:c"])
definitions = st.builds(
    ToolDefinition, names, st.none() | anything, schemas, st.sampled_from([None, True, False]), st.booleans(), natives
)
counters = st.integers(0, 10**6)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """A conversation in the order the rules of every format demand: calls, all their results, and then something else."""
    turns: list[Message] = [Message(draw(st.sampled_from(["system", "developer"])), (draw(texts),))] * draw(
        st.integers(0, 2)
    )
    for number in range(draw(st.integers(1, 3))):
        turns.append(
            Message("user", (Text("Is it raining?"), *draw(st.lists(asked, max_size=3))), draw(st.none() | anything))
        )
        if draw(st.booleans()):
            turns.append(
                Message(
                    "system", tuple(draw(st.lists(texts | media, max_size=2))), native=draw(st.none() | st.just(OWN))
                )
            )
        for turn in range(draw(st.integers(0, 2))):
            made = [
                ToolCallRequest(
                    draw(names),
                    f"{draw(anything)}:{number}:{turn}:{count}",
                    draw(anything),
                    draw(st.booleans()),
                    native=draw(natives),
                )
                for count in range(draw(st.integers(0, 3)))
            ]
            turns.append(
                Message("assistant", tuple(draw(st.permutations([*draw(st.lists(fields_given, max_size=3)), *made]))))
            )
            results = [
                ToolCallResult(
                    "",
                    call.tool_call_id,
                    draw(st.sampled_from(list(ToolExecutionStatus))),
                    tuple(draw(st.lists(st.one_of(texts, media), max_size=2))),
                    native=draw(natives),
                )
                for call in made
            ]
            if draw(st.booleans()):
                turns += [Message("tool", (result,)) for result in results]
            else:
                turns.append(Message("user", (*results, *draw(st.lists(asked, max_size=2)))))
        if draw(st.booleans()):
            turns.append(Message("assistant", tuple(draw(st.lists(fields_given, max_size=2)))))
    return tuple(turns)


requests = st.builds(
    ModelRequest,
    messages=conversations(),
    model=st.sampled_from(
        [OLD, MIDDLE, LATE, LATEST, OTHER, "", "claude-sonnet-5", "claude-opus-5-5", "claude-3-5-haiku-latest"]
    ),
    stream=st.none() | st.booleans(),
    tools=st.lists(
        definitions | st.just(Native("anthropic", {"type": "bash_20250124", "name": "bash"})), max_size=4
    ).map(tuple),
    tool_choice=st.none()
    | st.builds(
        ToolChoice,
        st.sampled_from(["auto", "none", "required", "tool", "allowed"]),
        st.lists(names, max_size=2).map(tuple),
        st.booleans(),
    ),
    parallel_tool_calls=st.none() | st.booleans(),
    output_format=st.none()
    | st.builds(
        OutputFormat,
        st.sampled_from(["text", "json_object", "json_schema"]),
        schemas,
        st.none() | anything,
        native=st.none() | st.just(OWN),
    ),
    reasoning=st.none()
    | st.builds(
        Reasoning,
        st.sampled_from([None, "none", "minimal", "low", "xhigh", "max", "?"]),
        st.sampled_from([None, -1, 0, 5, 2000, 90000]),
        st.sampled_from([None, True, False]),
        st.sampled_from([None, "auto", "omitted"]),
        st.none() | st.just(OWN),
    ),
    max_output_tokens=st.sampled_from([None, 0, 1, 1024, 3000]),
    stop=st.none() | st.lists(anything, max_size=3).map(tuple),
    temperature=st.none() | st.floats(-1, 3),
    top_p=st.none() | st.floats(-1, 3),
    top_k=st.none() | st.integers(-3, 50),
    user=st.none() | anything,
    service_tier=st.none() | anything,
)


@given(requests, st.sampled_from(["2023-06-01", NEW]))
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_request_gives_a_legal_body(wanted: ModelRequest, version: str) -> None:
    before = repr(wanted)
    losses: list[Loss] = []
    body = sent(write_request(wanted, losses, WriteOptions(version=version)))
    assert check_request(body, WriteOptions(version=version)) == []
    assert repr(wanted) == before
    assert all(loss.path and loss.what and loss.why for loss in losses)
    # What was written is read and written again without another change.
    more: list[Loss] = []
    again = sent(write_request(read_request(body), more, WriteOptions(version=version)))
    assert normalised(again) == normalised(body)
    assert more == []


# Reading is total: whatever a body holds, it is read, and it is written again.

ids = st.sampled_from(["toolu_1", "call-2"]) | json_values.filter(lambda value: not isinstance(value, str))
blocks: st.SearchStrategy[Any] = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["text", "image", "document", "tool_use", "tool_result", "thinking", "search_result", "server_tool_use"]
            )
        },
        optional={
            "text": json_values,
            "source": json_values
            | st.fixed_dictionaries(
                {"type": st.sampled_from(["base64", "url", "file", "text", "content"])},
                optional={
                    "data": json_values,
                    "media_type": st.sampled_from(["image/png", "text/plain", 3]),
                    "url": json_values,
                },
            ),
            "id": ids,
            "tool_use_id": ids,
            "name": st.sampled_from(["weather", "x-y"]) | st.just(5),
            "input": st.dictionaries(st.text(max_size=3), json_values, max_size=2)
            | json_values.filter(lambda value: not value),
            "content": json_values
            | st.lists(json_values | st.fixed_dictionaries({"type": st.just("text"), "text": json_values})),
            "is_error": st.booleans() | json_values,
            "thinking": json_values,
            "signature": json_values,
            "citations": json_values,
            "title": json_values,
            "of_tomorrow": json_values,
        },
    ),
)
turns = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "bard"]) | json_values},
        optional={"content": st.lists(blocks, max_size=3) | json_values, "name": json_values},
    ),
)
PARAMETER_NAMES = [
    "model", "max_tokens", "system", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata",
    "service_tier", "tools", "tool_choice", "thinking", "output_config", "output_format", "container", "x",
]  # fmt: skip
bodies = st.builds(
    lambda messages, parameters: {**parameters, "messages": messages},
    st.lists(turns, max_size=4),
    st.dictionaries(st.sampled_from(PARAMETER_NAMES), json_values, max_size=5)
    | st.fixed_dictionaries(
        {},
        optional={
            "tools": st.lists(
                json_values
                | st.fixed_dictionaries(
                    {"name": st.sampled_from(["a", "b"])},
                    optional={
                        "type": st.sampled_from(["custom", "bash_20250124"]),
                        "input_schema": json_values,
                        "strict": json_values,
                    },
                ),
                max_size=3,
            ),
            "tool_choice": st.fixed_dictionaries(
                {"type": st.sampled_from(["auto", "any", "tool", "none", "x"])}, optional={"name": ids}
            ),
            "thinking": st.fixed_dictionaries(
                {"type": st.sampled_from(["enabled", "adaptive", "disabled"])},
                optional={"budget_tokens": json_values, "display": json_values},
            ),
            "output_config": st.fixed_dictionaries({}, optional={"effort": json_values, "format": json_values}),
            "system": st.lists(blocks, max_size=2),
        },
    ),
)


@example({"system": False, "messages": [{"role": "system", "content": [None]}, None]})
@given(bodies)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_body_comes_back(body: dict[str, Any]) -> None:
    before = repr(body)
    read = read_request(body)
    losses: list[Loss] = []
    again = sent(write_request(read, losses))
    assert repr(body) == before
    if not losses:
        expected = normalised(sent(body))
        expected.setdefault("max_tokens", again["max_tokens"])
        assert normalised(again) == expected
    more: list[Loss] = []
    third = sent(write_request(read_request(again), more))
    assert normalised(third) == normalised(again)
    assert {loss.path for loss in more} <= {loss.path for loss in losses}


@given(st.dictionaries(st.text(max_size=5) | st.just("messages"), json_values, max_size=3))
@settings(max_examples=200, deadline=None)
def test_only_wire_errors_are_raised(body: dict[str, Any]) -> None:
    try:
        read_request(body)
    except WireError:
        assert not isinstance(body.get("messages"), list)


def test_deep_nesting_is_safe() -> None:
    deep: Any = {}
    for _ in range(3000):
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
    assert len(write_request(read, [])["messages"][0]["content"]) == 1


def test_the_format_finds_its_modules() -> None:
    anthropic = formats["anthropic"]
    body = b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"?"}]}'
    again, losses = anthropic.write_request(anthropic.read_request(body))
    assert (again, losses) == (msgspec.json.decode(body), [])
    assert without_nulls({"a": None}) == {}
