"""What two formats both have crosses between them, and what is added or dropped on the way is reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Audio, Document, Image, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire import FORMATS, Message, ModelOutput, ModelRequest, ToolDefinition, formats
from antiphon.wire.tools.call_restorer import CallRestorer

CHAT, RESPONSES, CLAUDE = formats["openai-chat"], formats["openai-responses"], formats["anthropic"]
CACHE = {"type": "ephemeral"}
QUESTION = Message("user", (Text("Rain?"),))


def to_claude(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    written, losses = formats["anthropic"].write_request(CHAT.read_request({"model": "claude-sonnet-4-5", **body}))
    assert formats["anthropic"].check_request(written) == []
    return written, [loss.path for loss in losses]


def test_cache_control_on_a_part_reaches_claude() -> None:
    text = {"type": "text", "text": "Long.", "cache_control": CACHE}
    body, losses = to_claude({"messages": [{"role": "system", "content": [text]}, {"role": "user", "content": [text]}]})
    assert body["system"] == [text]
    assert body["messages"][0]["content"] == [text]
    assert losses == []


def test_cache_control_on_a_message_is_on_its_last_block() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief.", "cache_control": CACHE},
        {"role": "user", "content": "Rain?", "cache_control": CACHE},
        {"role": "assistant", "content": None, "tool_calls": [call], "cache_control": CACHE},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain", "cache_control": CACHE},
    ]
    body, losses = to_claude({"messages": messages})
    blocks = [body["system"][-1], *(message["content"][-1] for message in body["messages"])]
    assert [block["type"] for block in blocks] == ["text", "text", "tool_use", "tool_result"]
    assert [block["cache_control"] for block in blocks] == [CACHE] * 4
    assert losses == []


def test_cache_control_on_a_tool_reaches_claude_and_at_most_four_are_sent() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}, "cache_control": CACHE}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": str(n), "cache_control": CACHE}]} for n in range(5)
    ]
    body, losses = to_claude({"messages": messages, "tools": [tool]})
    marked = [*body["tools"], *(block for message in body["messages"] for block in message["content"])]
    assert sum("cache_control" in block for block in marked) == 4
    assert len(losses) == 2


@pytest.mark.parametrize(
    "control", [{**CACHE, "x": None}, {**CACHE, "x": 1}, {**CACHE, "ttl": "2h"}, {"ttl": "5m"}, {**CACHE, "": ""}]
)
def test_cache_control_that_claude_would_refuse_is_reported(control: dict[str, Any]) -> None:
    text = {"type": "text", "text": "Long.", "cache_control": control}
    body, losses = to_claude({"messages": [{"role": "user", "content": [text]}]})
    assert body["messages"][0]["content"] == "Long."
    assert losses == ["messages[0].parts[0].cache_control"]


@pytest.mark.parametrize("media_type", ["assistant", "text/csv,x", "application/" + "x" * 400])
def test_a_document_of_no_media_type_is_not_sent_as_a_data_url(media_type: str) -> None:
    message = Message("user", (Document(media_type, data="iVBORw0KGgo="),))
    written, losses = RESPONSES.encode_request(ModelRequest(messages=(message,), model="gpt-4o"))
    assert RESPONSES.check_request(written) == []
    assert [loss.path for loss in losses] == ["messages[0].parts[0]"]


@pytest.mark.parametrize("annotations", ["x", 3, {"type": "url_citation"}])
def test_chat_itself_keeps_annotations_of_another_type_where_they_were(annotations: Any) -> None:
    text = {"type": "text", "text": "Rain.", "annotations": annotations}
    messages = [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": [text]}]
    body, losses = CHAT.write_request(CHAT.read_request({"model": "m", "messages": messages}))
    assert body["messages"] == messages
    assert losses == []


def test_chat_itself_keeps_cache_control_where_it_was() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Rain?", "cache_control": CACHE}]}
    assert CHAT.write_request(CHAT.read_request(body)) == (body, [])


GRAMMAR = {"syntax": "lark", "definition": "start: WORD"}
CHAT_TOOL = {
    "type": "custom",
    "custom": {"name": "f", "description": "Run.", "format": {"type": "grammar", "grammar": GRAMMAR}},
}
RESPONSES_TOOL = {"type": "custom", "name": "f", "description": "Run.", "format": {"type": "grammar", **GRAMMAR}}


@pytest.mark.parametrize("form", ["grammar", "text"])
def test_the_grammar_of_a_custom_tool_crosses_both_ways(form: str) -> None:
    chat, responses = CHAT_TOOL, RESPONSES_TOOL
    if form == "text":
        chat = {"type": "custom", "custom": {**CHAT_TOOL["custom"], "format": {"type": "text"}}}  # type: ignore[dict-item]
        responses = {**RESPONSES_TOOL, "format": {"type": "text"}}
    body = {"model": "gpt-5", "tools": [responses], "input": "Rain?"}
    written, losses = CHAT.write_request(RESPONSES.read_request(body))
    assert (written["tools"], losses) == ([chat], [])
    back, losses = RESPONSES.write_request(CHAT.read_request(written))
    assert (back["tools"], losses) == ([responses], [])


CITATION = {"url": "https://yr.no", "title": "Yr", "start_index": 0, "end_index": 3}


def test_url_citations_cross_both_ways() -> None:
    nested = {"type": "url_citation", "url_citation": CITATION}
    message = {"role": "assistant", "content": "Yes.", "annotations": [nested]}
    chat = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    body, losses = RESPONSES.write_response(CHAT.read_response(chat))
    assert body["output"][0]["content"][0]["annotations"] == [{"type": "url_citation", **CITATION}]
    assert losses == []
    back, losses = CHAT.write_response(RESPONSES.read_response(body))
    assert back["choices"][0]["message"]["annotations"] == [nested]
    assert [loss for loss in losses if "annotation" in loss.path] == []


@pytest.mark.parametrize(("source", "target"), [(CHAT, RESPONSES), (RESPONSES, CHAT)])
def test_url_citations_cross_in_streams(source: Any, target: Any) -> None:
    own = {"type": "url_citation", **({"url_citation": CITATION} if source is CHAT else CITATION)}
    text = Text("Yes.", native={source.name: {"annotations": [own]}})
    output = ModelOutput(parts=(text,), stop_reason="end", id="x", model="m", format=source.name)
    assert target.encode_response(output).data.count(b"https://yr.no") == 1
    from antiphon.wire.delta import Finished, PartDelta, PartEnded, PartExtended, PartStarted, Started

    writer = target.stream_writer("m")
    deltas = [
        Started(id="x", model="m", format=source.name),
        PartStarted(0, Text("")),
        PartDelta(0, "Yes."),
        PartExtended(0, {source.name: {"annotations": [own]}}),
        PartEnded(0),
        Finished("end"),
    ]
    data = b"".join(writer.write(delta) for delta in deltas) + writer.close()
    assert b"https://yr.no" in data
    assert [loss for loss in writer.losses if "annotation" in loss.path] == []


SPOKEN = Audio("audio/wav", "UklGRg==", file_id="audio_1", native={"openai-chat": {"transcript": "It rains."}})


@pytest.mark.parametrize("target", ["openai-responses", "anthropic"])
def test_the_transcript_of_an_answer_reaches_other_formats(target: str) -> None:
    request = ModelRequest(model="m", messages=(QUESTION, Message("assistant", (SPOKEN,)), QUESTION))
    data, losses = formats[target].encode_request(request)
    assert b"It rains." in data
    assert formats[target].check_request(data) == []
    assert [loss.path for loss in losses] == ["messages[1].parts[0]"]


@pytest.mark.parametrize("target", ["openai-responses", "anthropic"])
def test_the_transcript_of_a_response_reaches_other_clients(target: str) -> None:
    output = ModelOutput(parts=(SPOKEN,), stop_reason="end", id="x", model="m", format="openai-chat")
    data, losses = formats[target].encode_response(output)
    assert b"It rains." in data
    assert [loss.path for loss in losses][:1] == ["parts[0]"]


@pytest.mark.parametrize("target", ["openai-responses", "anthropic"])
def test_a_penalty_of_zero_is_not_a_loss(target: str) -> None:
    request = ModelRequest(model="m", messages=(QUESTION,), presence_penalty=0, frequency_penalty=0.0)
    assert formats[target].write_request(request).losses == []


def test_added_turns_are_reported_by_gemini() -> None:
    call = ToolCallRequest("f", "call_1", "{}")
    messages = (Message("assistant", (call,)), Message("user", (ToolCallResult("f", "call_1", content=(Text("x"),)),)))
    first = formats["gemini"].write_request(ModelRequest(model="gemini-2.5-flash", messages=messages))
    assert [loss.what for loss in first.losses] == ["first turn"]
    last = formats["gemini"].write_request(ModelRequest(model="gemini-2.5-flash"))
    assert [loss.what for loss in last.losses] == ["last turn"]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic"])
@pytest.mark.parametrize(
    "video",
    [
        Document("video/mp4", "AAAA"),
        Document("video/mp4", url="https://youtu.be/abc"),
        Document("video/mp4", url="https://a.b/c.mp4"),
    ],
)
def test_a_video_is_reported_and_never_sent_as_a_document(target: str, video: Document) -> None:
    request = ModelRequest(model="m", messages=(Message("user", (Text("See."), video)),))
    data, losses = formats[target].encode_request(request)
    assert b"AAAA" not in data
    assert b"youtu" not in data
    assert b"[video omitted: " in data
    assert [loss.path for loss in losses] == ["messages[0].parts[1]"]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic"])
def test_an_unsupported_image_type_is_reported(target: str) -> None:
    request = ModelRequest(model="m", messages=(Message("user", (Text("See."), Image("image/tiff", "SUkqAA=="))),))
    data, losses = formats[target].encode_request(request)
    assert b"SUkqAA" not in data
    assert b"[image omitted: image/tiff is not supported]" in data
    assert [loss.path for loss in losses] == ["messages[0].parts[1]"]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_a_failed_result_is_marked_once_in_its_first_text(target: str) -> None:
    call = ToolCallRequest("look", "call_1", "{}")
    # In Chat Completions a text takes the place of the image, which only a user message may hold.
    first_text = "[image: shown in the next user message]" if target == "openai-chat" else "no light"
    for content, expected in (
        ((Image("image/png", "iVBORw0KGgo="), Text("no light")), f"Error: {first_text}"),
        ((Text("Error:\nno light"),), "Error:\nno light"),
        ((), "Error: the tool failed."),
    ):
        result = ToolCallResult("look", "call_1", ToolExecutionStatus.FAILED, content)
        messages = (QUESTION, Message("assistant", (call,)), Message("tool", (result,)))
        body, _ = formats[target].write_request(ModelRequest(model="gpt-5", messages=messages))
        written = msgspec.json.encode(body["messages"] if "messages" in body else body["input"]).decode()
        assert msgspec.json.encode(expected).decode()[1:-1] in written
        assert written.count("Error:") == 1


@pytest.mark.parametrize("target", FORMATS)
def test_a_tool_name_that_a_format_does_not_accept_is_reported(target: str) -> None:
    tool = ToolDefinition("1 bad name", None, {"type": "object"})
    body, losses = formats[target].write_request(ModelRequest(model="m", messages=(QUESTION,), tools=(tool,)))
    assert "1 bad name" not in str(body)
    assert [loss.path for loss in losses] == ["tools[0].name"]


def test_a_custom_tool_without_extras_crosses() -> None:
    request = ModelRequest(model="gpt-5", messages=(QUESTION,), tools=(ToolDefinition("f", freeform=True),))
    assert CHAT.write_request(request).body["tools"] == [{"type": "custom", "custom": {"name": "f"}}]


def claude_input(parameters: dict[str, Any], arguments: str) -> Any:
    """The input of an earlier call of a tool, as Claude gets it."""
    call = ToolCallRequest("find", "call_1", arguments)
    messages = (QUESTION, Message("assistant", (call,)), Message("tool", (ToolCallResult.of(call, "none"),)))
    request = ModelRequest(
        model="claude-sonnet-4-5", messages=messages, tools=(ToolDefinition("find", None, parameters),)
    )
    body, _ = CLAUDE.write_request(request)
    assert CLAUDE.check_request(body) == []
    properties = body["tools"][0]["input_schema"]["properties"]
    sent = body["messages"][1]["content"][0]["input"]
    assert sent.keys() <= properties.keys()
    answer = ModelOutput(parts=(ToolCallRequest("find", "call_2", msgspec.json.encode(sent).decode()),))
    (restored,) = CallRestorer(request).output(answer).parts
    assert isinstance(restored, ToolCallRequest)
    assert msgspec.json.decode(restored.arguments) == msgspec.json.decode(arguments)
    return sent


def test_earlier_calls_have_the_property_names_of_the_schema() -> None:
    parameters = {"type": "object", "properties": {"$filter": {"type": "string"}, "top": {"type": "integer"}}}
    sent = claude_input(parameters, '{"$filter": "a eq 1", "top": 3}')
    assert sorted(sent.values(), key=str) == [3, "a eq 1"]
    assert "$filter" not in sent


def test_earlier_calls_of_a_wrapped_schema_are_wrapped() -> None:
    assert claude_input({"type": "array", "items": {"type": "integer"}}, "[1, 2]") == {"value": [1, 2]}


@pytest.mark.parametrize("target", [CHAT, RESPONSES, formats["gemini"], formats["gemini-interactions"]])
def test_earlier_calls_of_a_wrapped_schema_are_wrapped_elsewhere_too(target: Any) -> None:
    call = ToolCallRequest("find", "call_1", "[1, 2]")
    messages = (QUESTION, Message("assistant", (call,)), Message("tool", (ToolCallResult.of(call, "none"),)))
    tool = ToolDefinition("find", None, {"type": "array", "items": {"type": "integer"}})
    request = ModelRequest(model="gpt-5", messages=messages, tools=(tool,))
    body, losses = target.write_request(request)
    assert target.check_request(body) == []
    (sent,) = [
        part
        for message in target.read_request(body).messages
        for part in message.parts
        if isinstance(part, ToolCallRequest)
    ]
    assert msgspec.json.decode(sent.arguments) == {"value": [1, 2]}
    assert [loss.path for loss in losses if "arguments" in loss.path] == []
    (restored,) = CallRestorer(request).output(ModelOutput(parts=(sent,))).parts
    assert isinstance(restored, ToolCallRequest)
    assert msgspec.json.decode(restored.arguments) == [1, 2]


def test_calls_of_plain_schemas_stay_as_they_are() -> None:
    assert claude_input({"type": "object", "properties": {"a": {}}}, '{"a": 1}') == {"a": 1}


def test_the_empty_message_added_for_chat_is_reported() -> None:
    body, losses = CHAT.write_request(ModelRequest(model="gpt-4o"))
    assert body["messages"] == [{"role": "user", "content": ""}]
    assert [(loss.path, loss.why.endswith("(OC-01)")) for loss in losses] == [("messages", True)]


ITEMS: list[dict[str, Any]] = [
    {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Rain?", "annotations": []}],
    },
    {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
]


@pytest.mark.parametrize("target", [name for name in FORMATS if name != "openai-responses"])
def test_the_labels_of_items_are_no_loss_and_come_back_to_their_origin(target: str) -> None:
    output = formats["openai-responses"].read_response({"id": "resp_1", "status": "completed", "output": ITEMS})
    losses = formats[target].write_response(output).losses
    assert [str(loss) for loss in losses if loss.path.startswith("parts")] == []
    assert [item["id"] for item in formats["openai-responses"].write_response(output).body["output"]] == [
        "rs_1",
        "msg_1",
        "fc_1",
    ]


def test_unknown_fields_of_an_item_are_losses() -> None:
    marked = [{**ITEMS[1], "status": "incomplete", "phase": "commentary"}]
    output = formats["openai-responses"].read_response({"id": "resp_1", "status": "completed", "output": marked})
    losses = formats["anthropic"].write_response(output).losses
    assert any(loss.path.startswith("parts[0]") for loss in losses)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("written", ["", "null", " {} "])
def test_a_call_without_arguments_has_an_empty_object_and_no_loss(name: str, written: str) -> None:
    call = ToolCallRequest("f", "c", written)
    messages = (QUESTION, Message("assistant", (call,)), Message("tool", (ToolCallResult.of(call, "rain"),)))
    dialect = "vllm" if name == "openai-chat" else ""
    body, losses = formats[name].write_request(ModelRequest(model="gpt-4o", messages=messages), dialect=dialect)
    (sent,) = [
        part
        for message in formats[name].read_request(body).messages
        for part in message.parts
        if isinstance(part, ToolCallRequest)
    ]
    assert sent.arguments.strip() in ("{}", "null" if name == "openai-responses" else "{}")
    assert losses == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_root_that_may_also_be_null_is_sent_as_an_object(name: str) -> None:
    tool = ToolDefinition("f", None, {"type": ["object", "null"], "properties": {"a": {"type": "string"}}})
    body, losses = formats[name].write_request(ModelRequest(model="m", messages=(QUESTION,), tools=(tool,)))
    (sent,) = [tool for tool in formats[name].read_request(body).tools if isinstance(tool, ToolDefinition)]
    assert (sent.parameters or {})["type"] == "object"
    assert [loss.path for loss in losses] == ["tools[0].parameters.type"]


def test_media_of_the_model_after_media_of_a_result_are_still_shown() -> None:
    """Both are kept for the next user message, by two writers that share one list."""
    call = ToolCallRequest("look", "c")
    first, second = Image("image/png", "iVBORw0KGgo="), Image("image/gif", "R0lGODlh")
    messages = (
        QUESTION,
        Message("assistant", (call,)),
        Message("user", (ToolCallResult.of(call, first), Text("And?"))),
        Message("assistant", (Text("This."), second)),
        Message("user", (Text("Thanks."),)),
    )
    body, losses = CHAT.write_request(ModelRequest(model="gpt-4o", messages=messages))
    text = msgspec.json.encode(body).decode()
    assert text.count("iVBORw0KGgo=") == text.count("R0lGODlh") == 1
    assert CHAT.check_request(body) == []
    assert losses == []


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "gemini"])
def test_a_message_of_an_unknown_role_does_not_break_another_format(name: str) -> None:
    content = {"role": "narrator", "parts": [{"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}]}
    request = formats["gemini"].read_request({"contents": [{"role": "user", "parts": [{"text": "Rain?"}]}, content]})
    body, losses = formats[name].write_request(msgspec.structs.replace(request, model="gpt-4o"))
    assert formats[name].check_request(body) == []
    assert any(loss.path.startswith("messages[1]") for loss in losses)


@pytest.mark.parametrize("control", [{"type": "x"}, {"type": "ephemeral", "ttl": "2h"}, {}])
def test_a_cache_control_that_claude_refuses_stays_with_the_chat(control: dict[str, Any]) -> None:
    text = {"type": "text", "text": "Long.", "cache_control": control}
    body, losses = to_claude({"messages": [{"role": "user", "content": [text]}]})
    assert body["messages"] == [{"role": "user", "content": "Long."}]
    assert losses == ["messages[0].parts[0].cache_control"]


@pytest.mark.parametrize(("source", "tier"), [("openai-chat", "on_demand"), ("gemini", "turbo"), ("anthropic", "x")])
def test_a_service_tier_of_a_host_goes_back_to_it_alone(source: str, tier: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "openai-chat": {"model": "m", "messages": [{"role": "user", "content": "Rain?"}], "service_tier": tier},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Rain?"}]}], "serviceTier": tier},
        "anthropic": {
            "model": "m",
            "max_tokens": 99,
            "messages": [{"role": "user", "content": "Rain?"}],
            "service_tier": tier,
        },
    }
    request = formats[source].read_request(bodies[source])
    for name in FORMATS:
        body, losses = formats[name].write_request(request)
        values = [body.get("service_tier"), body.get("serviceTier")]
        assert (tier in values) is (name == source)
        assert len(losses) == (name != source)


@pytest.mark.parametrize("name", FORMATS)
def test_a_paused_answer_reports_its_stop_reason(name: str) -> None:
    output = ModelOutput(parts=(Text("Hm."),), stop_reason="paused", id="x", model="m", format="other")
    losses = formats[name].write_response(output).losses
    assert [loss.path for loss in losses] == ([] if name == "anthropic" else ["stop_reason"])


def test_reasoning_with_a_summary_of_an_unknown_shape_is_carried() -> None:
    for summary in (["Hm."], [None], [{"type": "summary_text", "text": "Hm.", "x": 1}]):
        item = {"type": "reasoning", "id": "rs_1", "summary": summary}
        request = RESPONSES.read_request({"model": "gpt-5", "input": [{"role": "user", "content": "Rain?"}, item]})
        for name in FORMATS:
            body, losses = formats[name].write_request(request)
            assert (item in body.get("input", ())) is (name == "openai-responses"), name
            assert bool(losses) is (name != "openai-responses"), name
