"""Streams and bodies with shapes that no specification has, but hosts and clients send: nothing raises, nothing is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Document, Native, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire import FORMATS, Assembler, ModelOutput, ModelOutputDelta, formats
from antiphon.wire.delta import (
    Failed,
    Finished,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    deltas_from_output,
)
from antiphon.wire.inbound import client_formats
from support.cases import each_case


def events(*given: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in given)


def read(name: str, data: bytes) -> ModelOutput:
    reader, assembler = formats[name].stream_reader(), Assembler()
    for delta in [*reader.feed(data), *reader.close()]:
        assembler.add(delta)
    assert assembler.error is None
    return assembler.output


def chat_calls(*fragments: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The calls of a chat stream with these fragments: name, id and arguments."""
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [fragment]}}]} for fragment in fragments]
    data = events(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    output = read("openai-chat", data + b"data: [DONE]\n\n")
    return [
        (part.tool_name, part.tool_call_id, part.arguments)
        for part in output.parts
        if isinstance(part, ToolCallRequest)
    ]


@pytest.mark.parametrize("place", [{"index": 0}, {}])
def test_a_new_id_in_each_fragment_does_not_split_a_call(place: dict[str, int]) -> None:
    whole = [
        {**place, "id": "a", "function": {"name": "f", "arguments": '{"x":'}},
        {**place, "id": "b", "function": {"arguments": "1"}},
        {**place, "id": "c", "function": {"name": "", "arguments": "}"}},
    ]
    assert chat_calls(*whole) == [("f", "a", '{"x":1}')]


@pytest.mark.parametrize("place", [{"index": 0}, {}])
def test_a_new_id_with_a_name_starts_a_call(place: dict[str, int]) -> None:
    """Ollama and Gemini give every call the index 0."""
    first = {**place, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    second = {**place, "id": "b", "function": {"name": "g", "arguments": "{}"}}
    assert chat_calls(first, second) == [("f", "a", "{}"), ("g", "b", "{}")]


@pytest.mark.parametrize(
    "pieces",
    [
        ['{"a":"', "}", '"}'],
        ['{"a":"\\', '"}', '"}'],
        ['{"a":"\\\\', '"}'],
        ['{"a":{', "}", "}"],
        ['{"a":"{', '{"', "}"],
        ["{", '"a":"}{"}'],
    ],
)
def test_a_name_in_every_fragment_continues_the_call_until_it_is_whole(pieces: list[str]) -> None:
    fragments = [{"index": 0, "function": {"name": "f", "arguments": piece}} for piece in pieces]
    following = {"index": 0, "function": {"name": "g", "arguments": "{}"}}
    assert [(name, text) for name, _, text in chat_calls(*fragments, following)] == [
        ("f", "".join(pieces)),
        ("g", "{}"),
    ]


@pytest.mark.parametrize("start", [{}, {"text": None, "thinking": None}])
@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_a_block_whose_start_has_no_text_keeps_its_answer(kind: str, start: dict[str, None]) -> None:
    block = {"type": kind, **{name: value for name, value in start.items() if name == kind}}
    data = events(
        {"type": "message_start", "message": {"id": "1", "content": [], "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": f"{kind}_delta", kind: "Hello "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": f"{kind}_delta", kind: "you"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    assert read("anthropic", data).parts == (Text("Hello you") if kind == "text" else Thinking("Hello you"),)


@pytest.mark.parametrize("index", [[], {}, None, "0", 1.5, True])
def test_the_index_of_a_content_may_be_anything(index: object) -> None:
    place = {"output_index": 0, "content_index": index}
    data = events(
        {"type": "response.created", "response": {"id": "1"}},
        {"type": "response.content_part.added", **place, "part": {"type": "output_text", "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "Hello"},
        {"type": "response.output_text.done", **place, "text": "Hello"},
        {"type": "response.completed", "response": {"id": "1", "status": "completed"}},
    )
    assert [part.text for part in read("openai-responses", data).parts if isinstance(part, Text)] == ["Hello"]


@each_case("annotations", [5, True, "x", {"a": 1}, [1], None])
@each_case("name", client_formats)
def test_annotations_may_be_anything(name: str, annotations: object) -> None:
    extras = {origin: {"annotations": annotations, "citations": annotations} for origin in FORMATS}
    writer = client_formats[name].stream_writer("m")
    deltas: list[ModelOutputDelta] = [
        PartStarted(0, Text("", native=extras)),
        PartDelta(0, "Hello"),
        PartExtended(0, {origin: {"annotations": [{"type": "x"}]} for origin in FORMATS}),
        PartExtended(0, extras),
        PartEnded(0),
        Finished(),
    ]
    assert b"Hello" in b"".join([*map(writer.write, deltas), writer.close()])


@pytest.mark.parametrize("first", [5, [{"type": "a"}]])
def test_annotations_beside_a_text_may_be_anything(first: object) -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"annotations": it}}]} for it in (first, [{"type": "b"}])]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    output = read("openai-chat", events(*chunks, end) + b"data: [DONE]\n\n")
    kept = (output.native or {})["openai-chat"]["message"]["annotations"]
    assert kept == ([*first, {"type": "b"}] if isinstance(first, list) else [{"type": "b"}])


def test_the_transcript_of_audio_may_change_its_type() -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"audio": {"id": "a", "transcript": it}}}]} for it in (5, "Hi")]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    assert "Hi" in str(read("openai-chat", events(*chunks, end) + b"data: [DONE]\n\n"))


@pytest.mark.parametrize("kind", [["object", "null"], {"a": 1}, 5, None])
def test_the_type_of_a_schema_may_be_a_list(kind: object) -> None:
    schema = {"type": kind, "properties": {}}
    body = {
        "model": "gemini-2.5-flash",
        "input": "Hi",
        "response_mime_type": "application/json",
        "response_format": schema,
    }
    request = formats["gemini-interactions"].read_request(body)
    assert request.output_format is not None
    assert request.output_format.schema == schema
    assert formats["gemini-interactions"].write_request(request).body["response_format"] == schema


BODIES: dict[str, dict[str, Any]] = {
    "openai-responses": {"model": "m", "input": [{"type": "x_call", "value": 0}]},
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 0}}]}
        ],
    },
    "gemini": {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"x": 0}}}]}]},
    "gemini-interactions": {
        "model": "gemini-2.5-flash",
        "input": [{"type": "function_call", "id": "c", "name": "f", "arguments": {"x": 0}}],
    },
}


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1.5E+999"])
@pytest.mark.parametrize("name", BODIES)
def test_a_number_that_no_float_holds_is_read_and_written_back(name: str, number: str) -> None:
    data = msgspec.json.encode(BODIES[name]).replace(b":0}", f":{number}}}".encode())
    request = formats[name].read_request(data)
    assert number.encode() in formats[name].encode_request(request).data
    calls = [part for part in request.messages[0].parts if isinstance(part, ToolCallRequest)]
    assert [call.arguments for call in calls] == ([] if name == "openai-responses" else [f'{{"x":{number}}}'])


def test_events_that_are_no_json_are_refused_in_words() -> None:
    with pytest.raises(Exception, match="not valid JSON"):
        formats["anthropic"].read_request(b'{"model": 1e400, "messages": [}')


@pytest.mark.parametrize("name", FORMATS)
def test_a_byte_that_is_not_utf_8_may_be_anywhere_in_a_stream(name: str) -> None:
    call = ToolCallRequest("weather", "call_1", '{"city":"Oslo"}')
    output = ModelOutput(
        parts=(Thinking("Hm."), Text("Rain."), call),
        stop_reason="tool_calls",
        usage=TokenUsage(12, 34),
        id="1",
        model="m",
    )
    writer = formats[name].stream_writer("m")
    stream = b"".join([*map(writer.write, deltas_from_output(output)), writer.close()])
    for at in range(len(stream)):
        reader = formats[name].stream_reader()
        deltas = [*reader.feed(stream[:at] + b"\xff" + stream[at + 1 :]), *reader.close()]
        assert isinstance(deltas[-1], Finished | Failed)


@pytest.mark.parametrize("logprobs", [True, "5", 5.0, [1]])
def test_log_probabilities_of_another_type_do_not_vanish(logprobs: object) -> None:
    body = {"model": "m", "prompt": "Hi", "logprobs": logprobs}
    request = client_formats["openai-completions"].read_request(body)
    assert (request.native or {})["openai-completions"] == {"logprobs": logprobs}
    losses = formats["openai-chat"].write_request(request).losses
    assert [loss.path for loss in losses if "logprobs" in str(loss)]


@pytest.mark.parametrize("stop", [[1, None], ["a", 1], 5, {"a": 1}])
def test_odd_stop_sequences_of_ollama_are_reported(stop: object) -> None:
    body = {"model": "m", "messages": [], "options": {"stop": stop}}
    request = client_formats["ollama"].read_request(body)
    assert not request.stop
    assert (request.native or {})["ollama"] == {"options": {"stop": stop}}


@pytest.mark.parametrize("caller", [{}, {"type": "direct"}, {"type": "code_execution_20250825", "tool_id": "s"}, 0, []])
def test_the_caller_of_a_call_comes_back(caller: object) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}, "caller": caller}
    assert written_again([call]) == [call]


@pytest.mark.parametrize("title", [0, False, [], {}])
def test_the_title_of_a_document_comes_back(title: object) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    document = {"type": "document", "source": source, "title": title}
    assert written_again([document]) == [document]


def written_again(content: list[Any]) -> Any:
    """The first message of a body with this content, read from bytes and written again."""
    role = "assistant" if content[0]["type"] == "tool_use" else "user"
    body = {"model": "claude-sonnet-4-5", "max_tokens": 10, "messages": [{"role": role, "content": content}]}
    request = formats["anthropic"].read_request(msgspec.json.encode(body))
    assert formats["anthropic"].read_request(body) == request
    assert not any(isinstance(part, Document) for part in request.messages[0].parts)
    assert all(isinstance(part, ToolCallRequest | Native) for part in request.messages[0].parts)
    return msgspec.json.decode(formats["anthropic"].encode_request(request).data)["messages"][0]["content"]


def written(name: str, *deltas: ModelOutputDelta) -> bytes:
    writer = client_formats[name].stream_writer("m")
    return b"".join([*map(writer.write, deltas), writer.close()])


CALL = ToolCallRequest("f", "call_1", "")


@pytest.mark.parametrize("name", [name for name in client_formats if name != "openai-completions"])
def test_the_end_of_an_answer_ends_its_parts(name: str) -> None:
    """A provider may leave the end of a part out; a call that is sent whole must not be lost."""
    data = written(
        name, PartStarted(0, Text("")), PartDelta(0, "Hi"), PartStarted(1, CALL), PartDelta(1, "{}"), Finished()
    )
    ended = written(
        name,
        PartStarted(0, Text("")),
        PartDelta(0, "Hi"),
        PartEnded(0),
        PartStarted(1, CALL),
        PartDelta(1, "{}"),
        PartEnded(1),
        Finished(),
    )
    assert data.count(b'"f"') == ended.count(b'"f"') > 0


def test_a_call_of_empty_pieces_has_empty_arguments_for_clients_that_parse_them() -> None:
    data = written("openai-chat", PartStarted(0, CALL), PartDelta(0, ""), PartEnded(0), Finished())
    assert data.count(b'"arguments":"{}"') == 1


def test_pieces_for_a_block_of_anthropic_that_waits_are_joined() -> None:
    data = written(
        "anthropic",
        PartStarted(0, Text("")),
        PartDelta(0, "Hi"),
        PartStarted(1, CALL),
        *(PartDelta(1, piece) for piece in ('{"a"', ":1", "}")),
        PartEnded(1),
        PartEnded(0),
        Finished("tool_calls"),
    )
    assert data.count(b"input_json_delta") == 1
    text, call = read("anthropic", data).parts
    assert text == Text("Hi")
    assert isinstance(call, ToolCallRequest)
    assert call.arguments == '{"a":1}'


def test_a_call_of_gemini_that_waited_for_a_text_shares_the_last_chunk() -> None:
    data = written(
        "gemini",
        PartStarted(0, Text("")),
        PartDelta(0, "Hi"),
        PartStarted(1, CALL),
        PartEnded(1),
        PartEnded(0),
        Finished(),
    )
    last = msgspec.json.decode(data.split(b"\r\n\r\n")[-2].removeprefix(b"data: "))
    assert "functionCall" in last["candidates"][0]["content"]["parts"][0]
    assert last["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.parametrize("name", client_formats)
def test_extras_of_a_native_block_are_reported(name: str) -> None:
    writer = client_formats[name].stream_writer("m")
    for delta in (PartStarted(0, Native(name, {"type": "x"})), PartExtended(0, {"toy": {"late": 1}}), PartEnded(0)):
        writer.write(delta)
    assert "parts[0].late" in [loss.path for loss in writer.losses]


@pytest.mark.parametrize("name", client_formats)
def test_a_block_lost_after_a_text_is_named_by_its_own_place(name: str) -> None:
    writer = client_formats[name].stream_writer("m")
    block = Native("toy", {"type": "x"})
    for delta in (PartStarted(0, Text("Hi")), PartEnded(0), PartStarted(1, block), PartEnded(1), Finished()):
        writer.write(delta)
    assert [loss.path for loss in writer.losses] == ["parts[1]"]
