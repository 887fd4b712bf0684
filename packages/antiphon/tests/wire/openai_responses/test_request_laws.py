"""Requests of Responses under laws: any body comes back, and what is written is accepted and read as the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from antiphon.parts import (
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition
from support.history_strategies import any_text, media_parts, native_parts
from support.history_strategies import extras as foreign_extras
from support.wire_formats import RESPONSES
from wire.openai_responses.bodies import (
    OBJECT,
    Body,
    items,
    json_values,
    made_legal,
    mostly,
    normalised,
    objects,
    plain,
    serving,
    texts,
    written,
)

read_request = RESPONSES.read_request
check_request = RESPONSES.check_request

_FUNCTIONS = objects(
    type=st.sampled_from(["function", "custom", "web_search"]),
    name=st.sampled_from(["look", "look.up"]),
    description=texts,
    parameters=st.just(OBJECT),
    strict=st.sampled_from([True, False]),
)
_FORMATS = objects(
    type=st.sampled_from(["text", "json_schema"]), name=st.just("a"), schema=st.just(OBJECT), strict=st.just(False)
)
_CHOICES = st.sampled_from(["auto", "none", "required"]) | objects(type=st.just("function"), name=st.just("look"))
bodies = objects(
    input=st.one_of(texts, st.lists(mostly(items), max_size=5)),
    instructions=texts,
    model=texts,
    tools=st.lists(mostly(_FUNCTIONS), max_size=2),
    tool_choice=_CHOICES,
    text=objects(format=_FORMATS, verbosity=texts),
    reasoning=objects(effort=texts, summary=texts),
    temperature=st.floats(-1, 3),
    max_output_tokens=st.integers(1, 50),
    include=st.lists(texts, max_size=1),
    metadata=st.dictionaries(texts, texts, max_size=1),
    user=texts,
    safety_identifier=texts,
    previous_response_id=texts,
)


@example({"input": [{"role": "user", "content": [None]}]})
@given(bodies)
def test_any_body_is_read_and_comes_back(body: Body) -> None:
    assume(isinstance(body.get("input", ""), str | list))
    before = copy.deepcopy(body)
    request = read_request(body)
    again, losses = written(request)
    assert body == before
    is_continued = before.get("previous_response_id") is not None
    if not losses and (before.get("input") or is_continued):  # of nothing the writer must make an input
        assert normalised(again) == normalised(made_legal(plain(before)))
    third, more = written(read_request(again))
    assert (normalised(third), more) == (normalised(again), [])


roles = st.sampled_from(["user", "user", "system", "developer"])
inputs = st.one_of(
    st.builds(Text, any_text, native=foreign_extras), media_parts, native_parts, st.builds(Refusal, any_text)
)
spoken = st.builds(Message, roles, st.lists(inputs, min_size=1, max_size=3).map(tuple), native=foreign_extras)
ids = st.one_of(texts, st.text("ab", min_size=60, max_size=90), st.integers(0, 9).map(lambda number: f"call_{number}"))
contents = st.lists(st.one_of(st.builds(Text, any_text), media_parts, native_parts), max_size=2).map(tuple)
outputs = st.one_of(
    st.builds(Text, any_text, native=foreign_extras),
    st.builds(Thinking, any_text, native=foreign_extras),
    st.builds(Refusal, any_text),
    media_parts,
    native_parts,
)
names = st.one_of(st.sampled_from(["look", "look.up", "", "n" * 200, "天气"]), texts)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """Messages in a legal sequence: every call has its answer, and no other answer is there."""
    messages: list[Message] = []
    call_ids = draw(st.lists(ids, unique=True, max_size=5))
    while True:
        messages += draw(st.lists(spoken, max_size=2))
        parts: list[Any] = draw(st.lists(outputs, max_size=2))
        answered = [call_ids.pop() for _ in range(min(len(call_ids), draw(st.integers(0, 2))))]
        status = draw(st.sampled_from(list(ToolExecutionStatus)))
        parts += [ToolCallRequest(draw(names), call_id, draw(texts), draw(st.booleans())) for call_id in answered]
        messages.append(Message("assistant", tuple(parts)))
        results = [ToolCallResult("", call_id, status, draw(contents)) for call_id in answered]
        if draw(st.booleans()):
            messages += [Message("tool", (result,)) for result in results]
        else:
            messages.append(Message("user", (*results, *draw(st.lists(inputs, max_size=1)))))
        if not call_ids:
            return messages


choices = st.builds(
    ToolChoice,
    st.sampled_from(["auto", "none", "required", "tool", "allowed"]),
    st.lists(names, max_size=2).map(tuple),
    st.booleans(),
)
numbers = st.none() | st.floats(-5, 50) | st.sampled_from([float("inf"), float("nan")])
schemas = st.one_of(
    st.just(OBJECT),
    st.just({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}),
    st.sampled_from([{}, {"type": "string"}, {"anyOf": []}, {"type": None}, {"type": ["string", "null"]}]),
)
tools = st.one_of(
    st.builds(
        ToolDefinition,
        names,
        st.none() | texts,
        st.none() | schemas,
        st.none() | st.booleans(),
        st.booleans(),
        foreign_extras,
    ),
    native_parts,
)
requests = st.builds(
    ModelRequest,
    messages=exchanges().map(tuple),
    model=st.sampled_from(["", "gpt-5", "o3-mini"]),
    tools=st.lists(tools, max_size=3).map(tuple),
    tool_choice=st.none() | choices,
    output_format=st.none()
    | st.builds(
        OutputFormat,
        st.sampled_from(["text", "json_object", "json_schema"]),
        st.none() | schemas,
        st.none() | names,
        st.none() | texts,
        st.none() | st.booleans(),
    ),
    reasoning=st.none()
    | st.builds(
        Reasoning,
        st.none() | st.sampled_from(["none", "minimal", "low", "max"]),
        st.none() | st.integers(-1, 99_999),
        st.none() | st.booleans(),
        st.none() | st.sampled_from(["auto", "omitted", "raw"]),
    ),
    max_output_tokens=st.none() | st.integers(-5, 100),
    temperature=numbers,
    top_p=numbers,
    top_logprobs=st.none() | st.integers(-5, 50),
    stop=st.none() | st.lists(texts, max_size=2).map(tuple),
    candidates=st.none() | st.integers(1, 3),
    logprobs=st.none() | st.booleans(),
    user=st.none() | texts,
    metadata=st.none() | st.dictionaries(st.text(max_size=80), json_values, max_size=20),
    native=foreign_extras,
)


@given(requests)
def test_what_is_written_is_accepted_and_read_again_as_the_same(request: ModelRequest) -> None:
    body, _ = written(request)
    assert check_request(body) == []
    again, losses = written(read_request(body))
    assert (normalised(again), losses) == (normalised(body), [])


def test_requests_of_the_official_sdk() -> None:
    openai = pytest.importorskip("openai")
    with serving() as server, openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
        server.reply = b'{"id": "resp_1", "object": "response", "output": [], "status": "completed"}'
        client.responses.create(
            model="gpt-5",
            instructions="be kind",
            input=[
                {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
            ],
            tools=[{"type": "function", "name": "look", "parameters": OBJECT, "strict": False}],
            tool_choice={"type": "function", "name": "look"},
            reasoning={"effort": "low"},
            store=False,
        )
    (body,) = server.bodies
    request = read_request(body)
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.tool_choice == ToolChoice("tool", ("look",))
    assert written(request)[1] == []
    assert normalised(written(request)[0]) == normalised(body)
