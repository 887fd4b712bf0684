"""Any body of Chat Completions comes back, and any request is legal for every host, in every arrangement."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.parts import (
    Native,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire import shared_openai
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable
from antiphon.wire.format import WriteOptions
from antiphon.wire.openai_chat.content import canonical_json, read_part
from antiphon.wire.openai_chat.dialects import DIALECTS
from antiphon.wire.openai_chat.layouts import write_messages
from antiphon.wire.openai_chat.rules import judge_order
from antiphon.wire.request import Layout, Message, ModelRequest
from antiphon.wire.rules import name_set
from antiphon.wire.tools.names import safe_name
from support.request_strategies import Parts, conversations, requests
from support.wire_formats import CHAT
from wire.openai_chat.bodies import encoded, normalised
from wire.openai_chat.sample_requests import PNG, USER, written

read_request = CHAT.read_request
check_request = CHAT.check_request

# Words and objects that bodies are made of, so that odd ones come near to real ones.
_KEYS = st.sampled_from(
    sorted(
        name_set(
            "role content name type text tool_calls tool_call_id id function arguments custom input refusal image_url url detail"
            " input_audio data format file file_id file_data filename thinking reasoning reasoning_content reasoning_details"
            " audio annotations images function_call index cache_control document_url x"
        )
    )
)

_WORDS = st.sampled_from(
    [
        "",
        "{}",
        PNG,
        "https://a.b/c",
        "data:application/pdf;base64,JVBE",
        *sorted(
            name_set(
                "user assistant tool function system developer text image_url custom refusal file x thinking input_audio"
                " document_url wav c1 low"
            )
        ),
    ]
)

_ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)

_URL = st.fixed_dictionaries({"url": _WORDS}, optional={"detail": _ANYTHING, "x": _ANYTHING})

_FILE = st.dictionaries(st.sampled_from(["filename", "file_data", "file_id", "x"]), _WORDS, max_size=3)

_SOUND = st.dictionaries(st.sampled_from(["data", "format", "id", "transcript", "x"]), _WORDS, max_size=3)

_PART = st.fixed_dictionaries(
    {"type": _WORDS},
    optional={
        "text": _WORDS,
        "refusal": _WORDS,
        "image_url": _URL | _ANYTHING,
        "file": _FILE | _ANYTHING,
        "input_audio": _SOUND | _ANYTHING,
        "thinking": st.just([{"type": "text", "text": "hm"}]) | _ANYTHING,
        "document_url": _WORDS,
        "cache_control": _ANYTHING,
        "detail": _ANYTHING,
    },
)

_CALLED = st.fixed_dictionaries({"name": _WORDS}, optional={"arguments": _ANYTHING, "input": _WORDS, "x": _ANYTHING})

_CALL = st.fixed_dictionaries(
    {"id": _WORDS},
    optional={
        "type": st.sampled_from(["function", "custom"]) | _ANYTHING,
        "function": _CALLED,
        "custom": _CALLED,
        "index": st.integers(0, 1),
        "x": _ANYTHING,
    },
)

_MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "function", "system", "developer"])},
    optional={
        "content": st.lists(_PART, max_size=3) | _WORDS | _ANYTHING,
        "tool_calls": st.lists(_CALL, max_size=2) | _ANYTHING,
        "tool_call_id": _WORDS | _ANYTHING,
        "name": _WORDS | _ANYTHING,
        "refusal": _WORDS | _ANYTHING,
        "audio": _SOUND | _ANYTHING,
        "images": st.lists(_PART, max_size=2) | _ANYTHING,
        "reasoning": _WORDS | _ANYTHING,
        "reasoning_content": _WORDS | _ANYTHING,
        "reasoning_details": _ANYTHING,
        "annotations": _ANYTHING,
        "function_call": _ANYTHING,
        "x": _ANYTHING,
    },
)

_TOP = sorted(
    name_set(
        "model stream tools tool_choice parallel_tool_calls functions function_call response_format reasoning_effort reasoning"
        " thinking enable_thinking max_tokens max_completion_tokens stop temperature top_p top_k seed n logprobs top_logprobs"
        " verbosity user metadata service_tier prompt_cache_key store stream_options logit_bias x"
    )
)


@given(
    st.lists(_MESSAGE | _ANYTHING, min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(_TOP), _ANYTHING, max_size=5),
)
def test_anything_below_the_top_is_read_and_comes_back(messages: list[Any], more: dict[str, Any]) -> None:
    body = {**more, "messages": messages}
    before = copy.deepcopy(body)
    again, losses = written(read_request(body), "compatible")
    if not losses:
        assert comparable(again) == comparable(body)
    assert body == before
    written(read_request(body))


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    """Beside the normalisations: refused names and ids get stand-ins, files get names, empty content is none."""
    body = copy.deepcopy(body)
    for message in body["messages"]:
        if isinstance(message, dict) and message.get("role") in ("tool", "function"):
            as_result(message)
    body = normalised(body)
    for message in body["messages"]:
        if not isinstance(message, dict):
            continue
        if message.get("content") == "":
            del message["content"]
        stand_in(message.get("function_call"))
        if message.get("role") in ("tool", "function"):
            message.pop("tool_call_id", None)
            stand_in(message)
        if isinstance(message.get("audio"), dict):
            message["audio"] = {
                key: value for key, value in message["audio"].items() if key not in ("data", "transcript", "expires_at")
            }
        for image in message["images"] if isinstance(message.get("images"), list) else ():
            if isinstance(image, dict):
                image.pop("index", None)
        for call in message["tool_calls"] if isinstance(message.get("tool_calls"), list) else ():
            if isinstance(call, dict):
                call.pop("id", None)
                stand_in(call.get("function"))
                stand_in(call.get("custom"))
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            if isinstance(part, dict) and isinstance(part.get("file"), dict) and "file_data" in part["file"]:
                part["file"] = {key: value for key, value in part["file"].items() if key != "filename"}
    return body


def as_result(message: dict[str, Any]) -> None:
    """A tool message always is a result: its content is text or parts, and a result of no named function is a tool's."""
    if not isinstance(message.get("name"), str) or not message["name"]:
        message["role"] = "tool"
        message.pop("name", None)
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [as_result_part(part) for part in content]
    elif not isinstance(content, str | None):
        message["content"] = canonical_json(content)


def as_result_part(part: Any) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return {"type": "text", "text": canonical_json(part)}
    read = read_part(part)
    if not isinstance(read, Refusal | Thinking):
        return part
    return {"type": "text", "text": read.text if read.native is None else canonical_json(part)}


def stand_in(named: Any) -> None:
    name = named.get("name") if isinstance(named, dict) else None
    if isinstance(name, str) and shared_openai.is_name(name) is None:
        named["name"] = safe_name(name, 64)


@pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": "hi"}, {"messages": {"role": "user"}}])
def test_a_body_without_messages_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="messages: expected an array, got"):
        read_request(body)


@given(requests("openai-chat", "", "gpt-4o", "o3", "claude-x"), st.sampled_from(sorted(DIALECTS)))
def test_every_dialect_keeps_the_sequence_legal(request: ModelRequest, dialect: str) -> None:
    body, _ = written(request, dialect)
    assert judge_order(body["messages"]) == []
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    assert len(ids) == len(set(ids))
    if dialect == "mistral":
        roles = [message["role"] for message in body["messages"]]
        assert ("tool", "user") not in set(pairwise(roles))
        assert all(len(call_id) == 9 and call_id.isalnum() for call_id in ids)


ALL_MEDIA = WriteOptions(
    capabilities=CapabilityTable(
        [
            CapabilityOverride(
                model="*", audio_types=("audio/*",), document_types=("text/*", "application/*", "image/*", "x/*")
            )
        ]
    )
)
STRATEGIES: list[Layout] = ["merged", "per_part", "iterations"]


@given(conversations(Parts("openai-chat")), st.sampled_from(STRATEGIES))
def test_a_legal_history_is_legal_in_every_arrangement(messages: tuple[Message, ...], layout: Layout) -> None:
    stored = encoded(write_messages(messages, [], layout=layout))
    assert judge_order(stored) == []
    if stored:
        assert check_request({"model": "any", "messages": stored}, ALL_MEDIA) == []
    asked = [part.tool_call_id for message in messages for part in message.parts if isinstance(part, ToolCallRequest)]
    assert sum(len(message.get("tool_calls", ())) for message in stored) == len(asked)
    assert sum(message["role"] == "tool" for message in stored) == len(asked)


def test_the_three_arrangements_of_one_round() -> None:
    calls = (ToolCallRequest("a", "c1"), ToolCallRequest("b", "c2"))
    results = (
        ToolCallResult("b", "c2", content=(Native("application", {"z": 1, "a": [True]}),)),
        ToolCallResult("a", "c1", content=(Text("seen"),)),
    )
    round_ = (USER, Message("assistant", (Text("I look."), *calls)), Message("tool", results), USER)

    def shape(layout: Layout) -> list[tuple[str, str | None, int]]:
        stored = write_messages(round_, [], layout=layout)
        return [(message["role"], message.get("name"), len(message.get("tool_calls", ()))) for message in stored]

    assert shape("merged") == [
        ("user", None, 0),
        ("assistant", None, 2),
        ("tool", None, 0),
        ("tool", None, 0),
        ("user", None, 0),
    ]
    assert shape("per_part") == [
        ("user", None, 0),
        ("assistant", None, 0),
        ("assistant", None, 1),
        ("tool", None, 0),
        ("assistant", None, 1),
        ("tool", None, 0),
        ("user", None, 0),
    ]
    assert shape("iterations") == [
        ("user", "iteration_1", 0),
        ("assistant", "iteration_1", 0),
        ("assistant", "iteration_1", 2),
        ("tool", "iteration_1", 0),
        ("tool", "iteration_1", 0),
        ("user", "iteration_2", 0),
    ]
    assert write_messages(round_, [])[2]["content"] == '{"a":[true],"z":1}'
