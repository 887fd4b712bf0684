"""L5: repair is gentle, whatever sequence comes in; and its part of L4: what comes out is a sequence every format takes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from antiphon.parts import Image, Native, Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.repair import fix_tool_call_sequence, repair
from antiphon.repair.repairer import is_legal
from antiphon.repair.sequence import INTERRUPTED
from antiphon.wire import FORMATS, Message, ModelRequest, formats
from antiphon.wire.openai_chat.rules import judge_order
from antiphon.wire.request import ToolDefinition
from support.corpus import FILES, recorded_requests
from support.examples import scaled

ids = st.sampled_from(["a", "b", "c", "call_x", "fc_x", "call_x|fc_x", "a_2", ""])
short_texts = st.sampled_from(["hi", "stop!", "", "it rains", INTERRUPTED])
texts = st.builds(Text, short_texts)
calls = st.builds(ToolCallRequest, st.sampled_from(["weather", "search"]), ids, st.sampled_from(["{}", '{"q": tr']))
results = st.builds(
    ToolCallResult,
    st.sampled_from(["", "weather"]),
    ids,
    st.sampled_from(list(ToolExecutionStatus)),
    st.lists(texts | st.builds(Image, st.just("image/png"), st.just("AAAA")), max_size=2).map(tuple),
)
pasted = st.builds(
    Native,
    st.just("openai-chat"),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["tool_use", "tool_result", "x"])}, optional={"id": ids, "name": short_texts}
    )
    | st.fixed_dictionaries({"type": st.just("tool_result"), "tool_use_id": ids, "content": short_texts}),
)
parts: st.SearchStrategy[Part] = st.one_of(texts, calls, results, pasted)
messages = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(parts, max_size=4).map(tuple)
)
shaped = st.one_of(
    st.builds(Message, st.just("assistant"), st.lists(texts | calls, min_size=1, max_size=3).map(tuple)),
    st.builds(Message, st.just("tool"), results.map(lambda result: (result,))),
    st.builds(Message, st.just("user"), texts.map(lambda text: (text,))),
)
sequences = st.lists(shaped | messages, max_size=12).map(tuple)


@st.composite
def nearly_legal(draw: st.DrawFn) -> tuple[Message, ...]:
    """A legal conversation in which a few messages moved, or have gone: what interruptions and lost writes leave."""
    sequence: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        sequence.append(Message("user", (Text("hi"),)))
        names = [f"call_{number + place}" for place in range(draw(st.integers(1, 3)))]
        number += len(names)
        sequence.append(Message("assistant", tuple(ToolCallRequest("weather", name) for name in names)))
        sequence += [Message("tool", (ToolCallResult("weather", name, content=(Text("rain"),)),)) for name in names]
        sequence.append(Message("assistant", (Text("it rains"),)))
    for _ in range(draw(st.integers(1, 2))):
        message = sequence.pop(draw(st.integers(0, len(sequence) - 1)))
        if draw(st.integers(0, 3)):
            sequence.insert(draw(st.integers(0, len(sequence))), message)
    return tuple(sequence)


def content_of(sequence: Sequence[Message]) -> Counter[object]:
    """Every piece of content of a participant: words, pictures, calls by what they ask. Stand-ins and labels are ours."""
    found: Counter[object] = Counter()
    for message in sequence:
        for part in message.parts:
            if isinstance(part, ToolCallResult):
                found.update(_written(inner) for inner in part.content)
            elif isinstance(part, ToolCallRequest):
                found[part.tool_name, part.arguments] += 1
            else:
                found[_written(part)] += 1
    return Counter({piece: number for piece, number in found.items() if piece})


def _written(part: object) -> object:
    if isinstance(part, Text):
        is_ours = part.text == INTERRUPTED or part.text.startswith(("[result of the tool call", "[another result of"))
        return None if is_ours or not part.text else part.text
    return repr(part)


@pytest.mark.parametrize("name", FORMATS)
@given(sequence=sequences)
@settings(max_examples=scaled(25))
def test_any_sequence_becomes_legal_and_keeps_its_content(name: str, sequence: tuple[Message, ...]) -> None:
    request = ModelRequest(messages=sequence)
    fixed, actions = repair(request, name)
    rule = formats[name].spec.sequence_rule
    assert is_legal(fixed.messages, rule)
    assert bool(actions) or fixed is request

    again, more = repair(fixed, name)
    assert again is fixed, "repair must be idempotent"
    assert not more

    before, after = content_of(_recognised(sequence)), content_of(fixed.messages)
    joined = sum(action.kind == "joined" for action in actions)
    assert not set(before) - set(after), "a piece of content is gone"
    assert sum((before - after).values()) <= 4 * joined, "more is gone than results that came twice"


CONTINUED: dict[str, dict[str, object]] = {
    "openai-responses": {"previous_response_id": "resp_1"},
    "anthropic": {"thread": {"type": "continue"}},
    "gemini-interactions": {"previous_interaction_id": "v1_1"},
}


@pytest.mark.parametrize("name", CONTINUED)
@given(sequence=sequences)
@settings(max_examples=scaled(25))
def test_repair_is_idempotent_where_the_server_has_earlier_turns(name: str, sequence: tuple[Message, ...]) -> None:
    fixed, actions = repair(ModelRequest(messages=sequence, native={name: CONTINUED[name]}), name)
    assert bool(actions) or fixed.messages == sequence
    assert repair(fixed, name).request is fixed
    before, after = content_of(_recognised(sequence)), content_of(fixed.messages)
    assert not set(before) - set(after), "a piece of content is gone"


MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}


@pytest.mark.parametrize("name", FORMATS)
@given(sequence=nearly_legal() | st.lists(shaped, min_size=1, max_size=10).map(tuple))
@settings(max_examples=scaled(25))
def test_sequences_that_repair_calls_legal_break_no_rule_of_order(name: str, sequence: tuple[Message, ...]) -> None:
    """Judged by the format's own rules, and not by the check that decides whether there is something to repair."""
    tools = (ToolDefinition("weather"), ToolDefinition("search"))
    fixed, _ = repair(ModelRequest(messages=sequence, model=MODELS[name], tools=tools), name)
    body = msgspec.json.decode(msgspec.json.encode(formats[name].write_request(fixed).body))
    assert [str(broken) for broken in formats[name].check_request(body) if not broken.advisory] == []


def _recognised(sequence: tuple[Message, ...]) -> Sequence[Message]:
    from antiphon.repair.foreign_blocks import read_foreign_blocks

    return read_foreign_blocks(sequence, [])


@pytest.mark.parametrize("name", FORMATS)
@given(sequence=sequences)
def test_generated_legal_requests_are_returned_as_the_same_object(name: str, sequence: tuple[Message, ...]) -> None:
    legal = ModelRequest(messages=sequence)
    for each in FORMATS:
        legal = repair(legal, each).request
    assume(all(is_legal(legal.messages, formats[each].spec.sequence_rule) for each in FORMATS))
    assert repair(legal, name).request is legal


ANSWERS_OF_OTHER_CALLS = ("710eada6edc5d982", "767dd5fafa3dbb65")
"""Recorded with an id that no call has; whatever answered them did not look."""


@pytest.mark.parametrize("name", FILES)
def test_accepted_recorded_requests_are_returned_as_the_same_object(name: str) -> None:
    """Recorded requests; some answer calls that only the server has (`previous_response_id`, `item_reference`)."""
    changed = [
        (record["id"], actions)
        for record in recorded_requests(name)
        if record["status"] == 200 and record["id"] not in ANSWERS_OF_OTHER_CALLS
        for request in (formats[name].read_request(record["request"]),)
        for fixed, actions in (repair(request, name),)
        if fixed is not request
    ]
    assert changed == []


WORDS = ("hello!", "stop!", "it rains", "see there")
plain_ids = st.sampled_from(["a", "b", "call_x", "fc_x", "call_x|fc_x", "", None, "x" * 70])
words = st.sampled_from(WORDS)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
plain_blocks = st.one_of(words.map(lambda text: {"type": "text", "text": text}), st.just(IMAGE))
plain_contents = st.one_of(words, st.lists(plain_blocks, min_size=1, max_size=2))


def with_optional(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with these fields; one that is None is absent."""
    return st.fixed_dictionaries(fields).map(
        lambda made: {name: value for name, value in made.items() if value is not None}
    )


plain_calls = with_optional(
    id=plain_ids,
    type=st.just("function"),
    function=st.builds(lambda name, text: {"name": name, "arguments": text}, st.sampled_from(["f", "g"]), words),
)
plain_assistants = st.one_of(
    with_optional(
        role=st.just("assistant"),
        content=st.none() | words,
        tool_calls=st.lists(plain_calls, max_size=3),
        reasoning_content=st.none() | words,
        name=st.sampled_from([None, "helper"]),
    ),
    st.builds(
        lambda text: {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": text}}, words
    ),
    words.map(lambda text: {"role": "assistant", "content": text}),
)
plain_results = st.one_of(
    with_optional(
        role=st.just("tool"),
        tool_call_id=plain_ids,
        content=plain_contents,
        name=st.sampled_from([None, "f"]),
        x_note=st.none() | words,
    ),
    st.builds(lambda text: {"role": "function", "name": "f", "content": text}, words),
)
plain_pasted = st.one_of(
    st.builds(
        lambda name, text: {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": name, "name": "f", "input": {"q": text}}],
        },
        st.sampled_from(["a", "b"]),
        words,
    ),
    st.builds(
        lambda name, text: {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": name, "content": text}, {"type": "text", "text": text}],
        },
        st.sampled_from(["a", "b"]),
        words,
    ),
    words.map(lambda text: {"role": "user", "content": [{"type": "input_text", "text": text}]}),
)
plain_others = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "system"]), plain_contents
)
plain_sequences = st.lists(st.one_of(plain_assistants, plain_results, plain_pasted, plain_others), max_size=10)


def words_in(value: Any) -> Counter[str]:
    """How often each word occurs anywhere in plain messages."""
    text = msgspec.json.encode(value).decode()
    return Counter({word: text.count(word) for word in (*WORDS, "AAAA") if word in text})


SAME_RESULT_WITH_A_NOTE: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "stop!"},
    {"role": "tool", "tool_call_id": "a", "content": "stop!", "x_note": "it rains"},
]


@given(sequence=plain_sequences)
@example(sequence=SAME_RESULT_WITH_A_NOTE)
@settings(max_examples=scaled(60))
def test_any_list_of_plain_messages_becomes_legal_and_keeps_its_content(sequence: list[dict[str, Any]]) -> None:
    given = msgspec.json.encode(sequence)
    fixed = fix_tool_call_sequence(sequence, "r")
    assert msgspec.json.encode(sequence) == given, "the messages of the caller must not be changed"
    assert judge_order(fixed) == []
    for message in fixed:
        assert message.get("tool_calls") != [], "an empty list is refused (OC-06)"
        assert all(call.get("id") for call in message.get("tool_calls", ())), "a call has an id (OC-07)"
    assert fix_tool_call_sequence(fixed, "r") is fixed, "repair must be idempotent"
    lost = words_in(sequence) - words_in(fixed)
    assert not set(words_in(sequence)) - set(words_in(fixed)), "a word is gone"
    assert not lost or _has_equal_results(sequence), "more is gone than results that came twice"


def _has_equal_results(sequence: list[dict[str, Any]]) -> bool:
    """Whether two results say the same: then one of them may be a duplicate."""
    said = [
        msgspec.json.encode(part.content)
        for message in _recognised(formats["openai-chat"].read_request({"messages": sequence}).messages)
        for part in message.parts
        if isinstance(part, ToolCallResult)
    ]
    return len(set(said)) < len(said)


@given(sequence=plain_sequences)
def test_plain_messages_that_need_no_change_are_the_same_objects(sequence: list[dict[str, Any]]) -> None:
    fixed = fix_tool_call_sequence(sequence, "r")
    kept = {id(message) for message in fixed}
    for message in sequence:
        if message["role"] in ("user", "system") and "tool_use_id" not in str(message) and "input_" not in str(message):
            assert id(message) in kept
    if fixed == sequence:
        assert fixed is sequence


def test_repair_of_plain_messages_is_linear() -> None:
    """Calls without ids, all of them first, images in their results: the renamed messages are written one by one."""

    def steps(size: int) -> int:
        call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
        sequence: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [call]} for _ in range(size)]
        sequence += [{"role": "tool", "content": [IMAGE]} for _ in range(size)]
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            fixed = fix_tool_call_sequence(sequence, "r")
        finally:
            sys.setprofile(None)
        assert len(fixed) == 2 * size
        return count

    assert steps(800) < 2.4 * steps(400)


@pytest.mark.parametrize("first", [{"id": "a"}, {}])
def test_a_second_result_of_a_call_is_called_that(first: dict[str, str]) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}, **first}
    answers = {name.replace("id", "tool_call_id"): value for name, value in first.items()}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "rain", **answers},
        {"role": "tool", "content": "sun", **answers},
    ]
    *_, last = fix_tool_call_sequence(messages, "r")
    assert last["role"] == "user"
    label, said = last["content"]
    assert label["text"].startswith("[another result of the tool call")
    assert said["text"] == "sun"
    assert "not in this conversation" not in str(last)


def test_repair_is_linear() -> None:
    """The worst there is: one id for everything, all calls first, all results after them. Counted, not timed."""
    size = 3_000
    call = ToolCallRequest("weather", "a")
    result = ToolCallResult("weather", "a", content=(Text("rain"),))
    assistant, tool = Message("assistant", (call,)), Message("tool", (result,))
    looked_at = 0

    class Counting(tuple[Part, ...]):
        def __iter__(self) -> object:  # type: ignore[override]
            nonlocal looked_at
            looked_at += len(self)
            return super().__iter__()

    sequence = [Message("assistant", Counting((call,))) for _ in range(size)]
    sequence += [Message("tool", Counting((result,))) for _ in range(size)]
    assert assistant.parts == sequence[0].parts
    assert tool.parts == sequence[-1].parts
    fixed, actions = repair(ModelRequest(messages=tuple(sequence)), "anthropic")
    assert len(fixed.messages) == 2 * size
    assert sum(action.kind == "renamed" for action in actions) == size - 1
    assert looked_at < 40 * size


@pytest.mark.parametrize("name", FORMATS)
def test_many_open_calls_are_looked_at_once(name: str) -> None:
    """In formats that merge assistants, every call waits until the last: what waits must not be copied for each."""
    size = 30_000
    called = [Message("assistant", (ToolCallRequest("weather", f"call_{number}"),)) for number in range(size)]
    answers = [Message("tool", (ToolCallResult("weather", f"call_{number}"),)) for number in range(size)]
    assert is_legal([*called, *answers], formats[name].spec.sequence_rule) is (name != "openai-chat")


@pytest.mark.parametrize("name", FORMATS)
def test_empty_turns_are_written_in_one_pass(name: str) -> None:
    """The user's turns around an empty answer are one message; a thousand of them must not be copied a thousand times."""
    size = 20_000
    sequence = [
        message
        for number in range(size)
        for message in (Message("user", (Text(f"word {number}."),)), Message("assistant", (Text(""),)))
    ]
    fixed, _ = repair(ModelRequest(messages=tuple(sequence), model=MODELS[name]), name)
    written = msgspec.json.encode(formats[name].write_request(fixed).body)
    places = [written.index(b'"word %d."' % number) for number in range(0, size, 1_000)]
    assert places == sorted(places)
