"""Broken histories as they really occur, from every format to every format: accepted by the rules, and nothing is lost.

Each case is written once, as OpenAI messages or as Anthropic messages; every word in it is unique, so that it can be looked for.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.repair import repair
from antiphon.wire import FORMATS, formats
from support.cases import each_case


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def text_message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*ids: str, text: str | None = None, arguments: str = '{"q": "x"}') -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": "search", "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": text, "tool_calls": made}


def tool(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


CHAT: dict[str, list[dict[str, Any]]] = {
    "the user interrupts": [user("Q1"), calls("a"), user("INTERRUPT"), tool("a", "R1"), text_message("A1")],
    "the user interrupts twice": [user("Q1"), calls("a"), user("I1"), user("I2"), tool("a", "R1"), user("Q2")],
    "a system message between": [user("Q1"), calls("a"), system("NOTE"), tool("a", "R1"), user("Q2")],
    "no result at the end": [user("Q1"), calls("a")],
    "no result, and the user continues": [user("Q1"), calls("a"), user("Q2")],
    "half a batch": [user("Q1"), calls("a", "b"), tool("a", "R1"), user("Q2")],
    "half a batch, the rest after the user": [
        user("Q1"),
        calls("a", "b"),
        tool("a", "R1"),
        user("Q2"),
        tool("b", "R2"),
    ],
    "half a batch, the rest after the model's words": [
        user("Q1"),
        calls("a", "b"),
        tool("a", "R1"),
        text_message("A1"),
        tool("b", "R2"),
        user("Q2"),
    ],
    "half a batch, the rest after another call": [
        user("Q1"),
        calls("a", "b"),
        tool("a", "R1"),
        calls("c"),
        tool("b", "R2"),
        tool("c", "R3"),
        user("Q2"),
    ],
    "a result with an empty name": [user("Q1"), calls("a"), {**tool("a", "R1"), "name": ""}, user("Q2")],
    "a result whose name is not text": [user("Q1"), calls("a"), {**tool("a", "R1"), "name": 5}, user("Q2")],
    "a result that is an object": [user("Q1"), calls("a"), {**tool("a", ""), "content": {"w": "R1"}}, user("Q2")],
    "a result that is a list of words": [
        user("Q1"),
        calls("a"),
        {**tool("a", ""), "content": ["R1", "R2"]},
        user("Q2"),
    ],
    "a result of odd parts": [user("Q1"), calls("a"), {**tool("a", ""), "content": [{"w": "R1"}, 5]}, user("Q2")],
    "a result that is a refusal": [
        user("Q1"),
        calls("a"),
        {**tool("a", ""), "content": [{"type": "refusal", "refusal": "R1"}]},
        user("Q2"),
    ],
    "a result whose id is a number": [user("Q1"), calls("a"), {**tool("a", "R1"), "tool_call_id": 7}, user("Q2")],
    "a result of a function without a name": [user("Q1"), {"role": "function", "content": "R1"}, user("Q2")],
    "results in another order": [user("Q1"), calls("a", "b"), tool("b", "R2"), tool("a", "R1"), user("Q2")],
    "an early result": [user("Q1"), tool("a", "R1"), calls("a"), user("Q2")],
    "a late result, two turns on": [
        user("Q1"),
        calls("a"),
        user("Q2"),
        text_message("A2"),
        tool("a", "R1"),
        user("Q3"),
    ],
    "an orphan result": [user("Q1"), tool("z", "ORPHAN"), text_message("A1"), user("Q2")],
    "an orphan at the start": [tool("z", "ORPHAN"), user("Q1")],
    "an orphan inside a run": [user("Q1"), calls("a"), tool("z", "ORPHAN"), tool("a", "R1"), user("Q2")],
    "two results for one call": [user("Q1"), calls("a"), tool("a", "R1"), tool("a", "R2"), user("Q2")],
    "one id for two calls": [user("Q1"), calls("a", "a"), tool("a", "R1"), tool("a", "R2"), user("Q2")],
    "an id used again later": [user("Q1"), calls("a"), tool("a", "R1"), calls("a"), tool("a", "R2"), user("Q2")],
    "two calling messages in a row": [user("Q1"), calls("a"), calls("b"), tool("a", "R1"), tool("b", "R2"), user("Q2")],
    "the answer before the result": [user("Q1"), calls("a"), text_message("A1"), tool("a", "R1"), user("Q2")],
    "cut arguments": [user("Q1"), calls("a", arguments='{"q": "CUT'), tool("a", "R1"), user("Q2")],
    "arguments that are a list": [user("Q1"), calls("a", arguments='["LIST"]'), tool("a", "R1"), user("Q2")],
    "no arguments": [user("Q1"), calls("a", arguments=""), tool("a", "R1"), user("Q2")],
    "empty texts": [user("Q1"), calls("a", text=""), tool("a", ""), text_message(""), user("Q2")],
    "blank texts": [user("Q1"), text_message("  \n "), user("Q2")],
    "illegal ids": [user("Q1"), calls("functions.search:1"), tool("functions.search:1", "R1"), user("Q2")],
    "very long ids": [user("Q1"), calls("x" * 90), tool("x" * 90, "R1"), user("Q2")],
    "an alias": [user("Q1"), calls("call_7|fc_7"), tool("call_7", "R1"), user("Q2")],
    "another alias": [user("Q1"), calls("call_7"), tool("fc_7", "R1"), user("Q2")],
    "a history that starts with a call": [calls("a"), tool("a", "R1"), user("Q2")],
    "a history that starts with an answer": [text_message("A0"), user("Q1")],
    "only instructions": [system("NOTE")],
    "instructions in the middle": [user("Q1"), text_message("A1"), system("NOTE"), user("Q2")],
    "anthropic blocks in chat": [
        user("Q1"),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "search", "input": {"q": "x"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "R1"}]},
        user("Q2"),
    ],
    "anthropic blocks in chat, interrupted": [
        user("Q1"),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "search", "input": {"q": "x"}}]},
        user("INTERRUPT"),
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "R1"}]},
    ],
}


def use(*ids: str, text: str = "") -> dict[str, Any]:
    other_fields = [{"type": "text", "text": text}] if text else []
    blocks = [{"type": "tool_use", "id": call_id, "name": "search", "input": {"q": "x"}} for call_id in ids]
    return {"role": "assistant", "content": [*other_fields, *blocks]}


def result(call_id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, **more}


def turn(*blocks: dict[str, Any] | str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]}


ANTHROPIC: dict[str, list[dict[str, Any]]] = {
    "text before the result": [turn("Q1"), use("a"), turn("INTERRUPT", result("a", "R1"))],
    "results split over two turns": [turn("Q1"), use("a", "b"), turn(result("a", "R1")), turn(result("b", "R2"), "Q2")],
    "a missing result": [turn("Q1"), use("a", "b"), turn(result("a", "R1"), "Q2")],
    "no results at all": [turn("Q1"), use("a"), turn("Q2")],
    "ends on a call": [turn("Q1"), use("a", text="A1")],
    "an orphan": [turn("Q1", result("z", "ORPHAN"))],
    "two results": [turn("Q1"), use("a"), turn(result("a", "R1"), result("a", "R2"), "Q2")],
    "a late result": [
        turn("Q1"),
        use("a"),
        turn("Q2"),
        {"role": "assistant", "content": "A2"},
        turn(result("a", "R1"), "Q3"),
    ],
    "a failed result": [turn("Q1"), use("a"), turn(result("a", "R1", is_error=True), "Q2")],
    "the same id twice": [turn("Q1"), use("a", "a"), turn(result("a", "R1"), result("a", "R2"))],
    "assistants in a row": [turn("Q1"), use("a"), use("b"), turn(result("a", "R1"), result("b", "R2"), "Q2")],
    "empty blocks": [turn("Q1", ""), use("a"), turn(result("a", ""), " ", "Q2")],
}

# The words of a case: none of them may be gone.
WORDS = ("Q1", "Q2", "Q3", "R1", "R2", "A0", "A1", "A2", "I1", "I2", "INTERRUPT", "NOTE", "ORPHAN", "CUT", "LIST")

TOOLS = {
    "openai-chat": [
        {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
    ],
    "anthropic": [{"name": "search", "input_schema": {"type": "object", "properties": {}}}],
}


def bodies() -> list[tuple[str, str, dict[str, Any]]]:
    chat: list[tuple[str, str, dict[str, Any]]]
    chat = [("openai-chat", name, {"model": "gpt-4o", "messages": case}) for name, case in CHAT.items()]
    claude = [
        ("anthropic", name, {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": case})
        for name, case in ANTHROPIC.items()
    ]
    return [(source, name, {**body, "tools": TOOLS[source]}) for source, name, body in [*chat, *claude]]


@each_case("target", FORMATS)
@each_case(("source", "name", "body"), bodies())
def test_a_broken_history_is_accepted_and_whole(source: str, name: str, body: dict[str, Any], target: str) -> None:
    request = formats[source].read_request(body)
    fixed, _ = repair(request, target)
    written, _ = formats[target].write_request(fixed)
    sent = msgspec.json.encode(written)
    assert formats[target].check_request(msgspec.json.decode(sent)) == []
    given = msgspec.json.encode(body)
    for word in WORDS:
        assert word.encode() not in given or word.encode() in sent, f"{word} is gone"


@each_case("target", FORMATS)
@each_case(("source", "name", "body"), bodies())
def test_a_repaired_history_needs_no_repair(source: str, name: str, body: dict[str, Any], target: str) -> None:
    fixed, _ = repair(formats[source].read_request(body), target)
    written = msgspec.json.decode(msgspec.json.encode(formats[target].write_request(fixed).body))
    again = formats[target].read_request(written)
    assert repair(again, target).request is again
    assert flat(formats[target].write_request(again).body) == flat(written)


def flat(body: dict[str, Any]) -> list[Any]:
    """What a body says, block by block: neighbours of one role mean the same as one message."""
    blocks: list[Any] = []
    for message in body.get("messages") or body.get("contents") or body["input"]:
        content = message.get("content", message.get("parts"))
        texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        other_fields = {name: value for name, value in message.items() if name not in ("content", "parts")}
        blocks += [(other_fields, block) for block in texts or [None]]
    return blocks


STORED_ITEMS: list[dict[str, Any]] = [
    {"type": "item_reference", "id": "fc_1"},
    {"id": "fc_1"},
    {"type": "compaction", "encrypted_content": "x"},
]


@pytest.mark.parametrize("stored", STORED_ITEMS)
def test_a_result_of_a_call_that_only_the_server_has_is_left_alone(stored: dict[str, Any]) -> None:
    wire = formats["openai-responses"]
    output = {"type": "function_call_output", "call_id": "a", "output": "R1"}
    request = wire.read_request({"model": "gpt-5", "input": [user("Q1"), stored, output]})
    assert repair(request, "openai-responses").request is request
    call = {"type": "function_call", "call_id": "b", "name": "search", "arguments": "{}"}
    broken = wire.read_request({"model": "gpt-5", "input": [user("Q1"), stored, output, call]})
    fixed, actions = repair(broken, "openai-responses")
    assert output in wire.write_request(fixed).body["input"]
    assert [action.kind for action in actions] == ["synthesised"]


def test_an_output_before_its_call_is_moved() -> None:
    wire = formats["openai-responses"]
    call = {"type": "function_call", "call_id": "a", "name": "search", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "R1"}
    fixed, actions = repair(wire.read_request({"model": "gpt-5", "input": [output, call]}), "openai-responses")
    assert wire.write_request(fixed).body["input"] == [call, output]
    assert [action.kind for action in actions] == ["moved"]
