"""Any body of Responses comes back, and so do requests of the official SDK."""

from __future__ import annotations

import copy

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from antiphon.wire.request import ToolChoice
from support.wire_formats import RESPONSES
from wire.openai_responses.bodies import (
    OBJECT,
    Body,
    items,
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
@example({"input": "x", "": {"temperature": 1}})
@example({"input": "x", "text": {}})
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
