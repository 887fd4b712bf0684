"""Laws over generated requests: what is written for Gemini is legal, deterministic and read back."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

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
from antiphon.wire.format import WriteOptions
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition
from antiphon.wire.tools.call_ids import GENERATED_ID_PREFIX
from support.wire_formats import GEMINI
from wire.gemini.sample_requests import write

read_request = GEMINI.read_request
check_request = GEMINI.check_request

# L4: whatever is in a legal sequence, what goes out is legal

texts = st.sampled_from(["", " ", "rain", "雨", '{"a": 1}', "[1]", "{"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=10
)

natives: st.SearchStrategy[Any] = st.none() | st.just({"anthropic": {"cache_control": {}}, "openai": {"detail": "low"}})

base64s = st.sampled_from(["aGk=", "iVBORw0KGgo=", "data:image/png;base64,aGk=", "é", ""])

media_types = st.sampled_from(["", "image/png", "application/pdf", "audio/wav"])

urls = st.sampled_from(["", "https://x/a.png", "data:image/gif;base64,aGk="])

media: st.SearchStrategy[Any] = st.one_of(
    st.builds(Image, media_types, base64s, urls, st.sampled_from(["", "file-1"]), native=natives),
    st.builds(Audio, media_types, base64s, urls),
    st.builds(Document, media_types, base64s, texts, urls, name=texts),
)

foreign = st.builds(Native, st.sampled_from(["anthropic", "openai-chat"]), st.just({"type": "x"}))

input_parts = st.one_of(st.builds(Text, texts, native=natives), media, foreign)

output_parts = st.one_of(
    input_parts,
    st.builds(Thinking, texts, native=natives | st.just({"gemini": {"thoughtSignature": "c2ln"}})),
    st.builds(Refusal, texts),
)

tool_names = st.sampled_from(["get_weather", "1 bad", "", "x" * 200, "mcp__a__b", "a.b:c"])

call_ids = st.sampled_from(
    ["toolu_1|fc_2", "call_1", f"{GENERATED_ID_PREFIX}0", f"{GENERATED_ID_PREFIX}ab_1", "é", "x" * 99, "y"]
)

definitions = st.builds(
    ToolDefinition,
    tool_names,
    st.none() | texts,
    st.none() | st.just({"type": "object", "$schema": "x", "additionalProperties": False}) | st.just({}),
    st.none() | st.booleans(),
    st.booleans(),
    natives,
)


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """An answer of the model, with its calls answered at once."""
    ids = draw(st.lists(call_ids, max_size=3, unique=True))
    calls = [
        ToolCallRequest(draw(tool_names), call_id, draw(texts), draw(st.booleans()), native=draw(natives))
        for call_id in ids
    ]
    spoken_parts = draw(st.lists(output_parts, max_size=2))
    messages = [Message("assistant", (*spoken_parts, *calls), native=draw(natives))]
    results = [
        ToolCallResult(
            draw(st.sampled_from(["", call.tool_name])),
            call.tool_call_id,
            draw(st.sampled_from(list(ToolExecutionStatus))),
            tuple(draw(st.lists(input_parts, max_size=2))),
        )
        for call in draw(st.permutations(calls))
    ]
    if draw(st.booleans()):
        messages += [Message("tool", (result,)) for result in results]
    elif results:
        messages.append(Message("user", (*results, *draw(st.lists(input_parts, max_size=2)))))
    return messages


@st.composite
def legal_requests(draw: st.DrawFn) -> ModelRequest:
    messages = [Message("system", (Text(draw(texts)),)) for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.integers(0, 3)):
            messages.append(
                Message("user", tuple(draw(st.lists(input_parts, max_size=2))), name=draw(st.none() | texts))
            )
        if not draw(st.integers(0, 4)):
            messages.append(Message(draw(st.sampled_from(["system", "developer"])), (Text(draw(texts)),)))
        for step in draw(st.lists(steps(), max_size=2)):
            messages += step
    return ModelRequest(
        messages=tuple(messages),
        tools=tuple(draw(st.lists(definitions | foreign, max_size=3))),
        tool_choice=draw(
            st.none()
            | st.builds(
                ToolChoice,
                st.sampled_from(["auto", "none", "required", "tool", "allowed"]),
                st.lists(tool_names, max_size=2).map(tuple),
                st.booleans(),
            )
        ),
        output_format=draw(
            st.none()
            | st.builds(OutputFormat, st.sampled_from(["text", "json_object", "json_schema"]), st.just({"$ref": "#"}))
        ),
        reasoning=draw(
            st.none()
            | st.builds(
                Reasoning,
                st.sampled_from([None, "none", "low", "max", "ultra"]),
                st.sampled_from([None, 0, 5000]),
                st.sampled_from([None, True, False]),
                st.sampled_from([None, "auto", "omitted"]),
            )
        ),
        temperature=draw(st.none() | st.floats(-1, 5)),
        top_p=draw(st.none() | st.floats(-1, 5)),
        stop=draw(st.none() | st.lists(texts, max_size=9).map(tuple)),
    )


MODELS = ["", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro-preview", "gemini-3.6-flash", "gemini-3-pro-image"]


@given(legal_requests(), st.sampled_from(MODELS))
def test_what_goes_out_is_accepted(request_: ModelRequest, model_name: str) -> None:
    body, _losses = write(request_, model=model_name)
    assert check_request(body, WriteOptions(model=model_name)) == []


@given(legal_requests(), st.sampled_from(MODELS))
def test_writing_is_deterministic_and_changes_no_input(request_: ModelRequest, model_name: str) -> None:
    before = copy.deepcopy(request_)
    first = write(request_, model=model_name)
    assert write(request_, model=model_name) == first
    assert request_ == before


@given(legal_requests())
def test_what_was_written_is_read_back(request_: ModelRequest) -> None:
    """A request written for Gemini is read back without loss."""
    body, _losses = write(request_)
    again, losses = write(read_request(body))
    assert losses == []
    assert again == body
