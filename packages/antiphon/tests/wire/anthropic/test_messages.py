"""The order of messages: the system prompt, turns of one role, blanks, ids, cache marks."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.parts import (
    Image,
    Native,
    Text,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire import (
    Message,
    ToolChoice,
    ToolDefinition,
)
from antiphon.wire.tools.names import safe_name
from support.wire_formats import ANTHROPIC
from wire.anthropic.sample_requests import (
    ANSWER,
    ASK,
    CALL,
    MARK,
    PNG,
    RESULT,
    SCHEMA,
    SERVER_CALL,
    TOOL,
    messages_of,
    model,
    request,
    system,
    text,
    user,
    written,
)

check_request = ANTHROPIC.check_request


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


def test_a_system_message_before_an_empty_answer_stays() -> None:
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


def test_a_message_that_is_null_stays_before_a_turn() -> None:
    turns, losses = messages_of(Message("unknown", (Native("anthropic", None),)), ASK)
    assert turns == [None, {"role": "user", "content": "Is it raining in Oslo?"}]
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
    assert losses == ["tools[0].name", "tools[1].name"]
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
