"""Laws over generated requests: what is written is legal, and any body is read and comes back."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
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
)
from antiphon.wire.format import WriteOptions
from support.examples import at_least
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import (
    json_values,
    normalised,
    sent,
)
from wire.anthropic.sample_requests import LATE, LATEST, MIDDLE, NEW, OLD, OTHER, OWN, PNG, SERVER_CALL

read_request = ANTHROPIC.read_request
write_request = ANTHROPIC.write_request
check_request = ANTHROPIC.check_request

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
@settings(
    max_examples=at_least(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
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
@settings(
    max_examples=at_least(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
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
@settings(max_examples=at_least(100), deadline=None)
def test_only_wire_errors_are_raised(body: dict[str, Any]) -> None:
    try:
        read_request(body)
    except WireError:
        assert not isinstance(body.get("messages"), list)
