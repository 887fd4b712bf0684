"""L5: repair is gentle, whatever sequence comes in; and its part of L4: what comes out is a sequence every format takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.parts import Image, Native, Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.repair import repair
from antiphon.repair.sequence import INTERRUPTED, is_legal
from antiphon.wire import FORMATS, Message, ModelRequest, formats
from antiphon.wire.request import ToolDefinition
from support.corpus import FILES, recorded_requests
from support.examples import at_least

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
        is_ours = part.text == INTERRUPTED or part.text.startswith("[result of the tool call")
        return None if is_ours or not part.text else part.text
    return repr(part)


@pytest.mark.parametrize("name", FORMATS)
@given(sequence=sequences)
@settings(max_examples=at_least(100))
def test_any_sequence_becomes_legal_and_keeps_its_content(name: str, sequence: tuple[Message, ...]) -> None:
    request = ModelRequest(messages=sequence)
    fixed, actions = repair(request, name)
    rule = formats[name].module.sequence_rule
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
@settings(max_examples=at_least(100))
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
@settings(max_examples=at_least(100))
def test_what_repair_calls_legal_breaks_no_rule_of_the_api(name: str, sequence: tuple[Message, ...]) -> None:
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
def test_what_is_legal_everywhere_comes_back_as_the_same_object(name: str, sequence: tuple[Message, ...]) -> None:
    legal, _ = repair(ModelRequest(messages=sequence), "anthropic")  # the strictest
    assert repair(legal, name).request is legal


ANSWERS_OF_OTHER_CALLS = ("710eada6edc5d982", "767dd5fafa3dbb65")
"""Recorded with an id that no call has; whatever answered them did not look."""


@pytest.mark.parametrize("name", FILES)
def test_what_an_api_accepted_comes_back_as_the_same_object(name: str) -> None:
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
    assert is_legal([*called, *answers], formats[name].module.sequence_rule) is (name != "openai-chat")


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
