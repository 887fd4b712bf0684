"""Chat Completions requests: the laws over recorded and generated bodies, and a table of shapes read both ways."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.errors import WireError
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire import formats
from antiphon.wire.format import WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.content import canonical_json, read_part
from antiphon.wire.openai_chat.dialects import DIALECTS, Dialect
from antiphon.wire.openai_chat.layouts import Layout, write_messages
from antiphon.wire.openai_chat.request import read_request, write_request
from antiphon.wire.openai_chat.rules import check_request, check_sequence
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition
from antiphon.wire.rules import name_set
from antiphon.wire.tool_calls import safe_name
from antiphon.wire.vendors import openai
from wire.openai_chat.bodies import FORMAT, OPENAI_HOSTS, encoded, histories, normalised, request_bodies, requests

FAILED = ToolExecutionStatus.FAILED
PNG = "data:image/png;base64,iVBORw0KGgo="
USER = Message("user", (Text("hi"),))


def written(request: ModelRequest, dialect: str | Dialect = "openai") -> tuple[dict[str, Any], list[Loss]]:
    losses: list[Loss] = []
    return encoded(write_request(request, losses, WriteOptions(dialect=dialect))), losses


def messages_of(*messages: Message, dialect: str = "openai") -> tuple[list[Any], list[Loss]]:
    body, losses = written(ModelRequest(messages=messages), dialect)
    return body["messages"], losses


def test_what_was_accepted_comes_back_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """L2: OpenAI's own bodies in its own dialect, all bodies in the dialect that takes nothing away."""
    counts: Counter[str] = Counter()
    for vendor, name, body in request_bodies():
        before = copy.deepcopy(body)
        request = read_request(body)
        for dialect in ("openai", "compatible") if vendor in OPENAI_HOSTS else ("compatible",):
            again, losses = written(request, dialect)
            assert losses == [], name
            assert normalised(again) == normalised(body), name
            assert body == before, f"{name} was changed"
            counts[dialect] += 1
            if not check_request(body):
                assert check_request(again) == [], name
    with capsys.disabled():
        print(
            f"\n  openai-chat requests: {counts['compatible']} bodies, {counts['openai']} of them OpenAI's own", end=""
        )
    assert counts["openai"] > 700


def test_bodies_of_other_hosts_are_legal_at_openai_or_losses() -> None:
    """In OpenAI's dialect, bodies of other hosts lose only what OpenAI refuses, and say so."""
    loss_fields = Counter(
        loss.path.partition("[")[0] for vendor, _, body in request_bodies() for loss in written(read_request(body))[1]
    )
    assert set(loss_fields) <= {"top_k", "tool_choice", "tools"}


# Each row is a message as it comes, and its neutral form; it is read, and written back.
MESSAGES: list[tuple[dict[str, Any], Message]] = [
    ({"role": "user", "content": "hi"}, USER),
    ({"role": "system", "content": ""}, Message("system", (Text(""),))),
    ({"role": "developer", "content": "be brief", "name": "ops"}, Message("developer", (Text("be brief"),), "ops")),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        Message("user", (Text("a"), Text("b"))),
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "video_url", "video_url": {"url": "https://example.com/a.webm"}},
                {
                    "type": "text",
                    "text": "c",
                    "prompt_cache_breakpoint": {"mode": "explicit"},
                    "cache_control": {"a": 1},
                },
                {"type": "document_url", "document_url": "https://example.com/a.pdf", "document_name": "a"},
            ],
        },
        Message(
            "user",
            (
                Image("image/png", "iVBORw0KGgo=", native={"openai": {"detail": "low"}}),
                Image(url="https://example.com/a.png"),
                Audio("audio/mpeg", "UklGRg=="),
                Document("application/pdf", "JVBERi0=", name="a.pdf"),
                Document(file_id="file-1"),
                Native(FORMAT, {"type": "video_url", "video_url": {"url": "https://example.com/a.webm"}}),
                Text(
                    "c",
                    native={
                        "openai": {"prompt_cache_breakpoint": {"mode": "explicit"}},
                        FORMAT: {"cache_control": {"a": 1}},
                    },
                ),
                Document(url="https://example.com/a.pdf", name="a", native={FORMAT: {"type": "document_url"}}),
            ),
        ),
    ),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{ "a":1}'}},
                {"id": "c2", "type": "custom", "custom": {"name": "run", "input": "ls -l"}},
                {
                    "id": "c3",
                    "type": "function",
                    "function": {"name": "look", "arguments": ""},
                    "extra_content": {"google": {"thought_signature": "sig"}},
                },
            ],
        },
        Message(
            "assistant",
            (
                ToolCallRequest("look", "c1", '{ "a":1}'),
                ToolCallRequest("run", "c2", "ls -l", freeform=True),
                ToolCallRequest(
                    "look", "c3", "", native={FORMAT: {"extra_content": {"google": {"thought_signature": "sig"}}}}
                ),
            ),
        ),
    ),
    (
        {"role": "assistant", "content": "a", "reasoning_content": "hm", "prefix": True},
        Message(
            "assistant",
            (Thinking("hm", native={FORMAT: {"field": "reasoning_content"}}), Text("a")),
            native={FORMAT: {"prefix": True}},
        ),
    ),
    (
        {
            "role": "assistant",
            "content": "a",
            "reasoning": "hm",
            "reasoning_content": "hm",
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        },
        Message(
            "assistant",
            (
                Thinking("hm", native={FORMAT: {"field": "reasoning_content", "also": ["reasoning"]}}),
                Text("a"),
                Thinking(native={FORMAT: {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}}),
            ),
        ),
    ),
    (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "a"},
            ],
        },
        Message("assistant", (Thinking("hm", native={FORMAT: {"field": "thinking"}}), Text("a"))),
    ),
    ({"role": "assistant", "content": None, "refusal": "no"}, Message("assistant", (Refusal("no"),))),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "a"}, {"type": "refusal", "refusal": "b"}]},
        Message("assistant", (Refusal("a"), Refusal("b"))),
    ),
    (
        {"role": "assistant", "content": "see", "annotations": [{"type": "url_citation"}]},
        Message("assistant", (Text("see", native={FORMAT: {"annotations": [{"type": "url_citation"}]}}),)),
    ),
    (
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        Message("assistant", (Audio(file_id="audio_1"),)),
    ),
    (
        {"role": "assistant", "content": "a", "images": [{"type": "image_url", "image_url": {"url": PNG}}]},
        Message("assistant", (Text("a"), Image("image/png", "iVBORw0KGgo=", native={FORMAT: {"images": True}}))),
    ),
    (
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        Message("tool", (ToolCallResult("", "c1", content=(Text("seen"),)),)),
    ),
    (
        {
            "role": "tool",
            "tool_call_id": "c1",
            "name": "look",
            "content": [{"type": "text", "text": "a"}, {"type": "x"}],
        },
        Message("tool", (ToolCallResult("look", "c1", content=(Text("a"), Native(FORMAT, {"type": "x"}))),)),
    ),
    ({"role": "narrator", "content": "x"}, Message("unknown", (Native(FORMAT, {"role": "narrator", "content": "x"}),))),
    (
        {"role": "user", "content": {"a": 1}},
        Message("unknown", (Native(FORMAT, {"role": "user", "content": {"a": 1}}),)),
    ),
]


@pytest.mark.parametrize(("message", "neutral"), MESSAGES, ids=lambda value: str(value)[:60])
def test_messages_are_read_and_written(message: dict[str, Any], neutral: Message) -> None:
    request = read_request({"messages": [message]})
    assert request.messages == (neutral,)
    body, losses = written(request)
    assert normalised(body) == normalised({"messages": [message]})
    assert losses == []


def test_deprecated_functions_are_calls_to_everyone_else_and_come_back_as_they_were() -> None:
    body: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "seen"},
        ],
        "functions": [{"name": "look", "parameters": {"type": "object"}}],
        "function_call": {"name": "look"},
    }
    request = read_request(body)
    call, result = request.messages[1].parts[0], request.messages[2].parts[0]
    assert isinstance(call, ToolCallRequest)
    assert isinstance(result, ToolCallResult)
    assert call.tool_call_id == result.tool_call_id != ""
    assert request.messages[2].role == "tool"
    assert isinstance(request.tools[0], ToolDefinition)
    again, losses = written(request)
    assert again == body
    assert losses == []
    assert check_request(again) == []


def test_two_deprecated_calls_of_one_message_become_tool_calls() -> None:
    mark = {FORMAT: {"function_call": True}}
    calls = (ToolCallRequest("a", "c1", "{}", native=mark), ToolCallRequest("b", "c2", "{}", native=mark))
    results = tuple(ToolCallResult(call.tool_name, call.tool_call_id, native=mark) for call in calls)
    messages, _ = messages_of(Message("assistant", calls), Message("tool", results))
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert check_sequence(messages) == []


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
    if isinstance(name, str) and openai.is_name(name) is None:
        named["name"] = safe_name(name, 64)


@pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": "hi"}, {"messages": {"role": "user"}}])
def test_a_body_without_messages_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="messages: expected an array, got"):
        read_request(body)


@given(requests)
def test_any_request_is_legal_at_openai(request: ModelRequest) -> None:
    """L4: the sequence is legal, everything else as odd as it may be."""
    body, _ = written(request)
    assert check_request(body) == []
    assert check_sequence(body["messages"]) == []


@given(requests, st.sampled_from(sorted(DIALECTS)))
def test_every_dialect_keeps_the_sequence_legal(request: ModelRequest, dialect: str) -> None:
    body, _ = written(request, dialect)
    assert check_sequence(body["messages"]) == []
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    assert len(ids) == len(set(ids))
    if dialect == "mistral":
        roles = [message["role"] for message in body["messages"]]
        assert ("tool", "user") not in set(pairwise(roles))
        assert all(len(call_id) == 9 and call_id.isalnum() for call_id in ids)


CALLED = (Message("assistant", (ToolCallRequest("look", "c1"),)), Message("tool", (ToolCallResult("look", "c1"),)))
FIELDS: dict[str, Any] = {
    "model": "gpt-4o",
    "stream": True,
    "tools": (ToolDefinition("look"),),
    "tool_choice": ToolChoice("required"),
    "parallel_tool_calls": False,
    "output_format": OutputFormat("json_schema", {"type": "object"}, "a"),
    "reasoning": Reasoning("low"),
    "max_output_tokens": 5,
    "stop": ("x",),
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "seed": 5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "candidates": 2,
    "logprobs": True,
    "top_logprobs": 2,
    "verbosity": "low",
    "user": "ada",
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "cache_key": "k",
    "store": True,
    "native": {"gemini": {"safetySettings": []}},
}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_every_field_is_written_or_a_loss(dialect: str) -> None:
    """L3."""
    plain, _ = written(ModelRequest(messages=(USER,)), dialect)
    assert set(FIELDS) == set(ModelRequest.__struct_fields__) - {"messages"}
    for field, value in FIELDS.items():
        body, losses = written(structs.replace(ModelRequest(messages=(USER,)), **{field: value}), dialect)
        assert body != plain or losses, field


DETAILS: list[tuple[str, Any]] = [
    ("tools", (ToolDefinition("look", native={"anthropic": {"cache_control": {}}}),)),
    ("tools", (Native("gemini", {"googleSearch": {}}),)),
    ("tools", (ToolDefinition("look", parameters={"type": "object", "properties": {"a": {}}}, strict=True),)),
    ("tools", (ToolDefinition("look", parameters={"type": "string"}),)),
    ("tools", (ToolDefinition("run", parameters={"type": "object"}, strict=True, freeform=True),)),
    ("tool_choice", ToolChoice("tool", ("look",))),
    ("tool_choice", ToolChoice("auto", native={"gemini": {"x": 1}})),
    ("output_format", OutputFormat("json_object", {"type": "object"})),
    ("output_format", OutputFormat("json_schema", {"type": "object"}, strict=True)),
    ("output_format", OutputFormat("text", native={"gemini": {"x": 1}})),
    ("reasoning", Reasoning(shown="detailed")),
    ("reasoning", Reasoning("low", native={"anthropic": {"display": "omitted"}})),
    ("max_output_tokens", 0),
    ("temperature", 3),
    ("temperature", float("nan")),
    ("stop", ("a", "b", "c", "d", "e")),
    ("metadata", {"a": 1}),
    ("metadata", {"a": "b" * 600}),
    ("metadata", {str(number): "a" for number in range(17)}),
]
PARTS: list[tuple[str, Part]] = [
    ("user", Text("a", native={"anthropic": {"cache_control": {}}})),
    ("user", Native("anthropic", {"type": "search_result"})),
    ("user", Image(file_id="file-1")),
    ("user", Image("image/tiff", "AAAA")),
    ("user", Document(url="https://example.com/a.pdf")),
    ("user", Document()),
    ("user", Audio(url="https://example.com/a.wav")),
    ("user", Refusal("no")),
    ("user", Thinking("hm")),
    ("user", ToolCallRequest("look", "c1")),
    ("assistant", Thinking("hm")),
    ("assistant", Thinking("hm", native={"anthropic": {"signature": "s"}})),
    ("assistant", Native("gemini", {"executableCode": {}})),
    ("assistant", Audio(file_id="audio_1", native={"gemini": {"x": 1}})),
    ("tool", ToolCallResult("look", "c1", FAILED, (Text("no"),))),
    ("tool", ToolCallResult("look", "c1", native={"anthropic": {"cache_control": {}}})),
    ("tool", ToolCallResult("look", "c1", content=(Native("anthropic", {}),))),
    ("narrator", Text("a")),
]


@pytest.mark.parametrize(("field", "value"), DETAILS, ids=str)
def test_inexpressible_fields_are_losses(field: str, value: Any) -> None:
    request = structs.replace(ModelRequest(messages=(USER,)), **{field: value})
    body, losses = written(request)
    assert losses != []
    assert all(loss.path.startswith(field) and loss.what and loss.why for loss in losses)
    assert check_request(body) == []


@pytest.mark.parametrize(("role", "part"), PARTS, ids=str)
def test_inexpressible_parts_are_losses(role: str, part: Part) -> None:
    _, losses = messages_of(USER, Message(role, (part,)))
    assert losses != []
    assert all(loss.path.startswith("messages[1]") for loss in losses)


def test_foreign_extras_and_names_of_messages_are_losses() -> None:
    _, losses = messages_of(Message("user", (Text("a"),), "Ada Lovelace", {"anthropic": {"x": 1}}))
    assert [loss.path for loss in losses] == ["messages[0].x", "messages[0].name"]
    _, losses = messages_of(*CALLED[:1], Message("tool", (ToolCallResult("look", "c1"),), "ada"))
    assert [loss.path for loss in losses] == ["messages[1].name"]


def test_results_in_a_user_message_become_tool_messages_and_the_rest_follows() -> None:
    calls = (ToolCallRequest("a", "c1"), ToolCallRequest("b", "c2"))
    image = Image("image/png", "iVBORw0KGgo=")
    results = (
        ToolCallResult("a", "c1", content=(Text("see"), image)),
        ToolCallResult("b", "c2", FAILED, (Text("no"),)),
        Text("go on"),
    )
    messages, losses = messages_of(USER, Message("assistant", (Text("ok"), *calls)), Message("user", results))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[2]["content"][1]["text"].startswith("[image")
    assert messages[3]["content"] == "Error: no"
    assert [part["type"] for part in messages[4]["content"]] == ["text", "image_url", "text"]
    assert [loss.path for loss in losses] == ["messages[2].parts[1].status"]
    assert check_request({"model": "gpt-4o", "messages": messages}, advisories=True) == []


def test_pictures_of_results_wait_for_the_whole_run() -> None:
    image = Image("image/png", "iVBORw0KGgo=")
    calls = (ToolCallRequest("a", "c1"), ToolCallRequest("b", "c2"))
    run = [
        Message("tool", (ToolCallResult("a", "c1", content=(image,)),)),
        Message("tool", (ToolCallResult("b", "c2", content=(image, Document("text/plain", text="words"))),)),
    ]
    messages, losses = messages_of(Message("assistant", calls), *run, Message("assistant", (Text("ok"),)))
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "assistant"]
    assert sum(part["type"] == "image_url" for part in messages[3]["content"]) == 2
    assert "words" in str(messages[2]["content"])
    assert losses == []
    kept, _ = messages_of(Message("assistant", calls), *run, dialect="llamacpp")
    assert [message["role"] for message in kept] == ["assistant", "tool", "tool"]


def test_what_a_model_drew_is_shown_by_a_user_after_the_results() -> None:
    answer = Message("assistant", (Image("image/png", "iVBORw0KGgo="), ToolCallRequest("look", "c1")))
    for result in (CALLED[1], structs.replace(CALLED[1], role="user")):
        messages, _ = messages_of(answer, result, USER)
        assert [message["role"] for message in messages] == ["assistant", "tool", "user", "user"]


def test_json_is_mentioned_in_the_prompt_where_json_mode_needs_it() -> None:
    request = ModelRequest(model="gpt-4o", messages=(USER,), output_format=OutputFormat("json_object"))
    body, losses = written(request)
    assert check_request(body) == []
    assert losses == []
    longer = structs.replace(
        request, messages=(USER, Message("assistant", (Text("{}"),)), Message("user", (Text("json"),)))
    )
    assert written(longer)[0]["messages"][:2] == body["messages"]


def test_names_that_openai_refuses_are_replaced_everywhere() -> None:
    request = ModelRequest(
        messages=(USER, Message("assistant", (ToolCallRequest("a.b", "c1"),)), CALLED[1]),
        tools=(ToolDefinition("a.b"),),
        tool_choice=ToolChoice("tool", ("a.b",)),
    )
    body, losses = written(request)
    name = body["tools"][0]["function"]["name"]
    assert name != "a.b"
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == name
    assert body["tool_choice"]["function"]["name"] == name
    assert name == safe_name("a.b", 64)
    assert losses == []


def test_freeform_tools_become_functions_where_unsupported() -> None:
    call = ToolCallRequest("run", "c1", 'print("é")', freeform=True)
    request = ModelRequest(
        messages=(USER, Message("assistant", (call,))), tools=(ToolDefinition("run", freeform=True),)
    )
    body, losses = written(request, "deepseek")
    assert losses == []
    assert body["tools"][0]["function"]["parameters"]["required"] == ["input"]
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"input":"print(\\"é\\")"}'
    assert written(request)[0]["tools"][0] == {"type": "custom", "custom": {"name": "run"}}


# What hosts want differently: the dialect, a request, and a look at the body.
THOUGHT = Message(
    "assistant", (Thinking("hm", native={FORMAT: {"field": "reasoning"}}), ToolCallRequest("look", "c1", ""))
)
PROOF = Thinking(native={FORMAT: {"reasoning_details": [{"type": "reasoning.encrypted"}]}})


def host(dialect: str, *messages: Message, **fields: Any) -> dict[str, Any]:
    return written(ModelRequest(messages=messages or (USER,), **fields), dialect)[0]


def test_dialects_differ_where_their_hosts_do() -> None:
    assert host("openai", THOUGHT)["messages"][0]["reasoning"] == "hm"
    assert host("deepseek", THOUGHT)["messages"][0]["reasoning_content"] == "hm"
    assert host("groq", THOUGHT)["messages"][0]["reasoning"] == "hm"
    assert host("mistral", THOUGHT)["messages"][0]["content"][0]["type"] == "thinking"
    assert "reasoning" not in host("azure", THOUGHT)["messages"][0]
    assert host("openai", THOUGHT)["messages"][0]["tool_calls"][0]["function"]["arguments"] == ""
    assert host("ollama", THOUGHT)["messages"][0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert host("openai", CALLED[0])["messages"][0]["content"] is None
    assert host("ollama", CALLED[0])["messages"][0]["content"] == ""
    assert host("openai", max_output_tokens=5)["max_completion_tokens"] == 5
    assert host("mistral", max_output_tokens=5)["max_tokens"] == 5
    assert host("mistral", seed=5)["random_seed"] == 5
    assert host("openrouter", top_k=5)["top_k"] == 5
    assert host("mistral", tools=(ToolDefinition("a"),), tool_choice=ToolChoice("required"))["tool_choice"] == "any"
    assert "stream_options" not in host("mistral", stream=True)
    assert host("openai", stream=True)["stream_options"] == {"include_usage": True}
    assert host("zai", Message("developer", (Text("a"),)))["messages"][0]["role"] == "system"
    assert host("openrouter", Message("assistant", (PROOF,)))["messages"][0]["reasoning_details"]
    assert "reasoning_details" not in host("groq", Message("assistant", (PROOF,)))["messages"][0]
    assert host("deepseek", reasoning=Reasoning(enabled=True))["thinking"] == {"type": "enabled"}
    assert host("deepseek", reasoning=Reasoning("low"))["reasoning_effort"] == "low"
    assert host("volcengine", reasoning=Reasoning("low"))["thinking"] == {"type": "enabled"}
    assert host("zai", reasoning=Reasoning(enabled=False))["thinking"] == {"type": "disabled"}
    assert host("alibaba", reasoning=Reasoning(budget_tokens=99))["thinking_budget"] == 99
    assert host("openrouter", reasoning=Reasoning(budget_tokens=99))["reasoning"] == {"max_tokens": 99}
    assert host("openai", reasoning=Reasoning(budget_tokens=5000))["reasoning_effort"] == "medium"
    assert host("openai", reasoning=Reasoning(enabled=False))["reasoning_effort"] == "none"
    asked = host("llamacpp", tools=(ToolDefinition("a"),), tool_choice=ToolChoice("tool", ("a",)))
    assert asked["tool_choice"] == "required"


def test_deepseek_gets_reasoning_with_every_call_while_it_thinks() -> None:
    body = host("deepseek", USER, *CALLED, model="deepseek-chat", reasoning=Reasoning(enabled=True))
    assert body["messages"][1]["reasoning_content"] == ""
    assert not [found for found in check_request(body, advisories=True) if found.rule == "DS-01"]


def test_google_gets_its_signatures_back() -> None:
    call = ToolCallRequest("look", "c1", native={"gemini": {"thoughtSignature": "sig"}})
    body, losses = written(ModelRequest(messages=(Message("assistant", (call,)),)), "google")
    assert body["messages"][0]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "sig"}}
    assert losses == []


def test_mistral_gets_an_assistant_between_a_tool_and_a_user() -> None:
    body = host("mistral", USER, *CALLED, USER, model="mistral-large-latest")
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert not [found for found in check_request(body, advisories=True) if found.rule.startswith("MI")]


def test_unsupported_values_are_replaced_by_the_nearest() -> None:
    assert host("openai", model="o3", reasoning=Reasoning(enabled=False))["reasoning_effort"] == "low"
    assert host("openai", model="gpt-5", reasoning=Reasoning(budget_tokens=0))["reasoning_effort"] == "minimal"
    body, losses = written(ModelRequest(model="o4-mini", messages=(USER,), reasoning=Reasoning("minimal")))
    assert body["reasoning_effort"] == "low"
    assert [loss.path for loss in losses] == ["reasoning.effort"]
    assert host("openai", service_tier="standard_only")["service_tier"] == "default"
    assert host("groq", service_tier="standard")["service_tier"] == "standard"


def test_both_openai_formats_share_their_common_fields() -> None:
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "safety_identifier": "a",
        "prompt_cache_options": {"ttl": "1h"},
    }
    request = read_request(body)
    assert request.native == {"openai": {"safety_identifier": "a", "prompt_cache_options": {"ttl": "1h"}}}
    assert written(request) == (body, [])


def test_an_unknown_dialect_is_refused_by_name() -> None:
    with pytest.raises(WireError, match='unknown dialect "acme" for openai-chat'):
        write_request(ModelRequest(messages=(USER,)), [], WriteOptions(dialect="acme"))


def test_reasoning_switches_of_hosts_are_read_and_kept() -> None:
    body = {"messages": [], "thinking": {"type": "enabled", "budget_tokens": 2000}}
    reasoning = read_request(body).reasoning
    assert reasoning is not None
    assert (reasoning.enabled, reasoning.budget_tokens) == (True, 2000)
    assert host("openai", reasoning=reasoning)["thinking"] == body["thinking"]
    assert host("groq", reasoning=reasoning)["reasoning_effort"] == "low"
    reasoning = read_request({"messages": [], "reasoning": {"effort": "high", "exclude": True}}).reasoning
    assert reasoning is not None
    assert (reasoning.effort, reasoning.shown) == ("high", "omitted")
    reasoning = read_request({"messages": [], "enable_thinking": False}).reasoning
    assert reasoning is not None
    assert reasoning.enabled is False


STRATEGIES: list[Layout] = ["merged", "per_part", "iterations"]


@given(histories(), st.sampled_from(STRATEGIES))
def test_a_legal_history_is_legal_in_every_arrangement(messages: tuple[Message, ...], layout: Layout) -> None:
    stored = encoded(write_messages(messages, [], layout=layout))
    assert check_sequence(stored) == []
    if stored:
        assert check_request({"model": "gpt-4o", "messages": stored}) == []
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


def test_the_format_is_found_by_its_name() -> None:
    body, losses = formats[FORMAT].write_request(ModelRequest(model="m", messages=(USER,)), dialect="mistral")
    assert body == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert losses == []
    assert formats[FORMAT].read_request(msgspec.json.encode(body)).messages == (USER,)
