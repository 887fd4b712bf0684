"""`cache_prompt`: where breakpoints are set, and that they change nothing that the model reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from antiphon.parts import Image, Native, Text
from antiphon.wire import FORMATS, Loss, Message, ModelRequest, ToolDefinition, formats
from antiphon.wire.anthropic.cache_breakpoints import can_be_marked
from antiphon.wire.anthropic.limits import CACHE_CONTROL
from antiphon.wire.anthropic.rules.tables import BLOCKS
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable
from antiphon.wire.request import PromptCaching, read_cache_prompt
from antiphon.wire.rules import Object
from antiphon_devtools.conform.rules import violations
from support.cases import each_case
from support.examples import scaled
from support.request_strategies import requests
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import normalised, sent
from wire.anthropic.sample_requests import (
    ANSWER,
    ASK,
    CALL,
    MARK,
    PNG,
    RESULT,
    SIGNED,
    TOOL,
    model,
    request,
    system,
    text,
    user,
    written,
)

write_request = ANTHROPIC.write_request
check_request = ANTHROPIC.check_request

ALWAYS, AUTO, OFF = PromptCaching("always"), PromptCaching(), PromptCaching("off")
RULES = system(Text("Answer in one sentence."))
OTHER_TOOL = ToolDefinition("news", None, {"type": "object", "properties": {}})
CALL_BLOCK = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
RESULT_BLOCK = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}


def marked_paths(value: Any, path: str = "") -> list[str]:
    """The paths of the breakpoints in a body, in the order of the body."""
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in marked_paths(item, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    inner = [found for name, item in value.items() for found in marked_paths(item, f"{path}.{name}".lstrip("."))]
    return [*inner, path] if value.get("cache_control") else inner


def without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without_marks(item) for name, item in value.items() if name != "cache_control"}


def test_tools_system_and_the_last_two_user_messages_are_marked() -> None:
    body, losses = written(
        request(RULES, ASK, model(SIGNED, CALL), user(RESULT), tools=(TOOL, OTHER_TOOL), cache_prompt=ALWAYS)
    )
    assert losses == []
    assert body["tools"] == [
        {"name": "weather", "description": "Rain or not.", "input_schema": TOOL.parameters},
        {"name": "news", "input_schema": OTHER_TOOL.parameters, **MARK},
    ]
    assert body["system"] == [text("Answer in one sentence.", **MARK)]
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    assert body["messages"] == [
        {"role": "user", "content": [text("Is it raining in Oslo?", **MARK)]},
        {"role": "assistant", "content": [thinking, CALL_BLOCK]},
        {"role": "user", "content": [{**RESULT_BLOCK, **MARK}]},
    ]


def test_an_hour_is_in_every_mark() -> None:
    body, _ = written(request(RULES, ASK, ANSWER, ASK, tools=(TOOL,), cache_prompt=read_cache_prompt("1h")))
    hour = {"type": "ephemeral", "ttl": "1h"}
    marks = [body["tools"][0], body["system"][0], *(body["messages"][index]["content"][0] for index in (0, 2))]
    assert [block["cache_control"] for block in marks] == [hour] * 4


@pytest.mark.parametrize(
    ("messages", "fields", "is_marked"),
    [
        ((RULES, ASK), {}, False),
        ((ASK,), {"tools": (TOOL,)}, True),
        ((RULES, ASK, ANSWER, ASK), {}, True),
    ],
    ids=["one question", "a question with tools", "a conversation"],
)
def test_auto_marks_what_is_likely_to_be_repeated(
    messages: tuple[Message, ...], fields: dict[str, Any], is_marked: bool
) -> None:
    assert bool(marked_paths(written(request(*messages, cache_prompt=AUTO, **fields))[0])) is is_marked
    assert marked_paths(written(request(*messages, cache_prompt=ALWAYS, **fields))[0])
    assert not marked_paths(written(request(*messages, cache_prompt=OFF, **fields))[0])
    assert not marked_paths(written(request(*messages, **fields))[0])


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": (ASK, ANSWER, user(Text("And now?", native={"anthropic": MARK})))},
        {"messages": (ASK, ANSWER, Message("user", (Text("And now?"),), native={"openai-chat": MARK}))},
        {"messages": (ASK, ANSWER, ASK), "tools": (structs.replace(TOOL, native={"anthropic": MARK}),)},
        {"messages": (ASK, ANSWER, ASK), "native": {"anthropic": MARK}},
    ],
    ids=["a block", "a message of a chat client", "a tool", "the body"],
)
def test_a_request_with_marks_of_its_own_gets_no_more(fields: dict[str, Any]) -> None:
    wanted = ModelRequest(model="claude-sonnet-4-5", **fields)
    assert written(structs.replace(wanted, cache_prompt=ALWAYS)) == written(wanted)


def test_an_earlier_block_is_marked_where_the_last_must_not_be() -> None:
    fallback = Native("anthropic", {"type": "fallback", "to": "claude-opus-4-8"})
    last = user(Text("Look."), Image("image/png", PNG), fallback)
    body, _ = written(request(ASK, ANSWER, last, cache_prompt=ALWAYS))
    assert marked_paths(body) == ["messages[0].content[0]", "messages[2].content[1]"]


def test_a_tool_that_is_loaded_later_is_not_marked() -> None:
    later = structs.replace(OTHER_TOOL, native={"anthropic": {"defer_loading": True}})
    body, _ = written(request(tools=(TOOL, later), cache_prompt=ALWAYS))
    assert marked_paths(body["tools"]) == ["[0]"]


def test_volatile_parts_at_the_end_are_not_stored() -> None:
    screen = PromptCaching("always", volatile_parts=1)
    body, _ = written(request(ASK, model(CALL), user(RESULT, Text("It is 10:01.")), cache_prompt=screen))
    assert marked_paths(body["messages"]) == ["[0].content[0]", "[2].content[0]"]


def test_a_model_with_fewer_breakpoints_gets_the_last_ones() -> None:
    wanted = request(RULES, ASK, ANSWER, ASK, tools=(TOOL,), cache_prompt=ALWAYS)
    expected = ["messages[2].content[0]", "messages[0].content[0]", "system[0]", "tools[0]"]
    for limit in range(5):
        table = CapabilityTable((CapabilityOverride(model="*", cache_breakpoints=limit),))
        body, _ = written(wanted, capabilities=table)
        assert set(marked_paths(body)) == set(expected[:limit])


@pytest.mark.parametrize(("dialect", "count"), [("deepseek", 0), ("moonshot", 4), ("minimax", 4)])
def test_a_host_that_ignores_marks_gets_none(dialect: str, count: int) -> None:
    wanted = request(RULES, ASK, ANSWER, ASK, tools=(TOOL,), cache_prompt=ALWAYS)
    body, losses = written(wanted, dialect=dialect)
    assert (len(marked_paths(body)), losses) == (count, [])


@each_case("kind", BLOCKS)
def test_the_blocks_that_are_marked_are_those_that_accept_it(kind: str) -> None:
    row = BLOCKS[kind]
    assert isinstance(row, Object)
    assert can_be_marked({"type": kind, "text": "x"}) is (row.fields["cache_control"] is CACHE_CONTROL)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "anthropic"])
def test_other_formats_have_no_marks(name: str) -> None:
    wanted = request(RULES, ASK, ANSWER, ASK, model="a-model", tools=(TOOL,))
    assert formats[name].write_request(structs.replace(wanted, cache_prompt=ALWAYS)) == formats[name].write_request(
        wanted
    )


caching = st.builds(
    PromptCaching,
    st.sampled_from(["auto", "always"]),
    st.sampled_from(["5m", "1h"]),
    st.integers(0, 2),
)


@given(requests("anthropic", "claude-3-7-sonnet-20250219", "claude-sonnet-4-5", "claude-opus-4-7", "other"), caching)
@settings(
    max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_marks_are_legal_and_change_nothing_that_the_model_reads(wanted: ModelRequest, prompt: PromptCaching) -> None:
    plain: list[Loss] = []
    losses: list[Loss] = []
    unmarked = sent(write_request(wanted, plain))
    body = sent(write_request(structs.replace(wanted, cache_prompt=prompt), losses))
    assert losses == plain
    assert normalised(without_marks(body)) == normalised(without_marks(unmarked))
    assert len(marked_paths(body)) <= 4
    assert [each for each in check_request(body) if each.rule == "AN-18"] == []
    assert [each for each in violations("anthropic", body) if each.rule == "AN-18"] == []
    if marked_paths(unmarked):
        assert body == unmarked


@pytest.mark.parametrize("value", ["2h", 5, 0, None, ""])
def test_another_lifetime_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="cache_prompt="):
        read_cache_prompt(value)
