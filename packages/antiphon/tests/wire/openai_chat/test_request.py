"""Chat Completions requests: recorded bodies, the neutral form of each message, fields that are written or a loss."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire import formats
from antiphon.wire.openai_chat.rules import judge_order
from antiphon.wire.provenance import GENERATED_IMAGE, LEGACY_FUNCTION
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition
from antiphon.wire.tools.names import safe_name
from support.corpus import in_collection
from support.wire_formats import CHAT
from wire.openai_chat.bodies import FORMAT, OPENAI_HOSTS, normalised, request_bodies
from wire.openai_chat.sample_requests import CALLED, FAILED, PNG, USER, messages_of, written

read_request = CHAT.read_request
check_request = CHAT.check_request


def test_recorded_requests_come_back_the_same(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert counts["openai"] > in_collection(700)


def test_bodies_of_other_hosts_are_legal_at_openai_or_losses() -> None:
    """In OpenAI's dialect, bodies of other hosts lose only what OpenAI refuses, and say so."""
    loss_fields = Counter(
        loss.path.partition("[")[0] for vendor, _, body in request_bodies() for loss in written(read_request(body))[1]
    )
    assert set(loss_fields) <= {"top_k", "tool_choice", "tools", "messages"}
    assert loss_fields["messages"] <= 1  # a Word file, which Mistral reads


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
            (Thinking("hm", source=Source(FORMAT, ("reasoning_content",))), Text("a")),
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
                Thinking("hm", source=Source(FORMAT, ("reasoning_content", "reasoning"))),
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
        Message("assistant", (Thinking("hm", source=Source(FORMAT, ("thinking",))), Text("a"))),
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
        Message("assistant", (Text("a"), Image("image/png", "iVBORw0KGgo=", source=GENERATED_IMAGE))),
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


@pytest.mark.parametrize("kind", [{}, {"type": "function"}], ids=["no type", "typed"])
@pytest.mark.parametrize("inner", [{}, {"x": 1}], ids=["plain", "with a field"])
def test_other_fields_of_a_tool_and_its_function_come_back(kind: dict[str, Any], inner: dict[str, Any]) -> None:
    tool = {**kind, "function": {"name": "look", "parameters": {"type": "object"}, **inner}, "y": [2]}
    again, losses = written(read_request({"messages": [{"role": "user", "content": "hi"}], "tools": [tool]}))
    assert again["tools"] == [{"type": "function", **tool}]
    assert losses == []


def test_two_deprecated_calls_of_one_message_become_tool_calls() -> None:
    calls = (
        ToolCallRequest("a", "c1", "{}", source=LEGACY_FUNCTION),
        ToolCallRequest("b", "c2", "{}", source=LEGACY_FUNCTION),
    )
    results = tuple(ToolCallResult(call.tool_name, call.tool_call_id, source=LEGACY_FUNCTION) for call in calls)
    messages, _ = messages_of(Message("assistant", calls), Message("tool", results))
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert judge_order(messages) == []


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


def test_generated_images_are_shown_by_a_user_after_the_results() -> None:
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
    assert [loss.path for loss in losses] == ["tools[0].name"]


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


def test_the_format_is_found_by_its_name() -> None:
    body, losses = formats[FORMAT].write_request(ModelRequest(model="m", messages=(USER,)), dialect="mistral")
    assert body == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert losses == []
    assert formats[FORMAT].read_request(msgspec.json.encode(body)).messages == (USER,)


def test_a_tool_that_is_chosen_by_an_empty_name_is_reported() -> None:
    _, losses = formats["openai-chat"].write_request(
        ModelRequest(messages=(), model="m", tool_choice=ToolChoice("tool", ("f", "")))
    )
    assert '""' in {loss.what for loss in losses if loss.path.startswith("tool_choice")}
