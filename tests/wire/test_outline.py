"""An outline says of a body what the whole says: the model, whether it streams, in which order calls and results stand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.parts import Audio, Document, Image, ToolCallRequest, ToolCallResult
from antiphon.repair.sequence import is_legal
from antiphon.wire import ModelRequest, formats
from corpus import accepted_requests, client_requests
from wire.test_plain import PLAIN, odd_values, places

OUTLINED = ("openai-chat", "anthropic")


def order(request: ModelRequest) -> list[tuple[str, list[tuple[str, str]]]]:
    """Roles, and the ids of calls and results under each."""
    return [
        (
            message.role,
            [
                (type(part).__name__, part.tool_call_id)
                for part in message.parts
                if isinstance(part, ToolCallRequest | ToolCallResult)
            ],
        )
        for message in request.messages
        if message.role != "system"  # Anthropic's stands beside the messages
    ]


def check(name: str, body: Any) -> bool:
    """See that an outline is right; whether there is one."""
    data = msgspec.json.encode(body)
    outline = formats[name].scan_request(data)
    if outline is None:
        return False
    try:
        whole = formats[name].read_request(msgspec.json.decode(data))
    except WireError:
        return True  # it says so to whom it is passed on
    assert (outline.model, bool(outline.stream)) == (whole.model, bool(whole.stream))
    assert order(outline) == order(whole)
    assert is_legal(outline.messages, formats[name].module.sequence_rule) == is_legal(
        whole.messages, formats[name].module.sequence_rule
    )
    media = [part for message in whole.messages for part in message.parts if isinstance(part, Image | Audio | Document)]
    assert media == []
    return True


@pytest.mark.parametrize("name", OUTLINED)
def test_every_recorded_body_has_the_outline_of_the_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    outlined = [check(name, body) for body in (*accepted_requests(name), *client_requests(name))]
    with capsys.disabled():
        print(f"\n  {name}: {len(outlined)} bodies, {sum(outlined)} of them outlined", end="")
    assert sum(outlined) > 10


@pytest.mark.parametrize("name", OUTLINED)
@settings(max_examples=300)
@given(st.data())
def test_a_body_with_something_odd_in_it_has_the_outline_of_the_whole_or_none(name: str, data: st.DataObject) -> None:
    body = msgspec.json.decode(msgspec.json.encode(PLAIN[name]))
    for _ in range(data.draw(st.integers(1, 2))):
        holder, key = data.draw(st.sampled_from(list(places(body))))
        if data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(odd_values)
    check(name, body)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (
            "openai-chat",
            {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
        ),
        ("anthropic", {"content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 3, "output_tokens": 4}}),
        ("gemini", {"candidates": [], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}),
        ("openai-chat", {"choices": []}),
        ("anthropic", {"content": [], "usage": None}),
    ],
)
def test_the_usage_of_an_answer_is_that_of_the_whole(name: str, body: dict[str, Any]) -> None:
    wire = formats[name]
    assert wire.scan_usage(msgspec.json.encode(body)) == wire.read_response(body).usage


@pytest.mark.parametrize("name", OUTLINED)
@pytest.mark.parametrize("body", [b"{}", b'{"usage": {}}', b"[]", b"hello"])
def test_what_is_no_answer_has_no_usage(name: str, body: bytes) -> None:
    with pytest.raises(WireError):
        formats[name].scan_usage(body)
