"""A stream forwarded in its own format can be read by the official client, and is unchanged if it already could."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.parts import ToolCallRequest
from antiphon.wire import FORMATS, formats
from antiphon.wire.delta import Failed, Started
from antiphon_gateway.observe.record import Record
from gateway.generate.test_channels import play, same
from support.corpus import in_collection, streams
from wire.openai_chat.bodies import all_streams, assembled, read_all

pytest.importorskip("openai")


def chunk(*fragments: dict[str, Any], finish: str | None = None, **choice: Any) -> dict[str, Any]:
    delta = {"tool_calls": list(fragments)} if fragments else {"content": "x"}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


def call(call_id: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def as_stream(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(data).encode() + b"\n\n" for data in chunks) + b"data: [DONE]\n\n"


def forwarded(data: bytes, size: int | None = None) -> bytes:
    pieces = [data] if size is None else [data[at : at + size] for at in range(0, len(data), size)]
    return play(same("openai-chat", Record(request_id="r")), "openai-chat", b"", *pieces)


def read_by_official_client(data: bytes) -> list[tuple[str, str]]:
    """The ids and arguments of the calls, as the official client assembles them."""
    from openai._models import construct_type
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    state: Any = ChatCompletionStreamState()
    for line in data.split(b"\n\n"):
        if line.startswith(b"data: {"):
            state.handle_chunk(construct_type(type_=ChatCompletionChunk, value=json.loads(line[6:])))
    message = state.current_completion_snapshot.choices[0].message
    return [(made.id, made.function.arguments) for made in message.tool_calls or ()]


MISTRAL = as_stream(
    chunk(call("a", '{"n": 1}'), call("b", '{"n": 2}')),
    chunk(finish="tool_calls"),
)
COPILOT = as_stream(
    chunk(call("a", "", index=0)),
    chunk({"index": 0, "function": {"arguments": '{"n": 1}'}}),
    chunk(call("b", "", index=0)),
    chunk({"index": 0, "function": {"arguments": '{"n": '}}),
    chunk({"index": 0, "function": {"arguments": "2}"}}),
    chunk(finish="tool_calls"),
)
WITHOUT_CHOICE_INDEX = as_stream(
    {**chunk(), "choices": [{"delta": {"role": "assistant", "content": "x"}}]},
    {**chunk(), "choices": [{"delta": {"tool_calls": [call("a", '{"n": 1}')]}, "finish_reason": "tool_calls"}]},
)
WITH_OBJECTS = as_stream(
    chunk({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": {"n": 1}}}),
    chunk(finish="tool_calls"),
)


@pytest.mark.parametrize("size", [None, 1, 50, 700])
@pytest.mark.parametrize(
    ("stream", "calls"),
    [
        (MISTRAL, [("a", '{"n": 1}'), ("b", '{"n": 2}')]),
        (COPILOT, [("a", '{"n": 1}'), ("b", '{"n": 2}')]),
        (WITHOUT_CHOICE_INDEX, [("a", '{"n": 1}')]),
        (WITH_OBJECTS, [("a", '{"n":1}')]),
    ],
    ids=["no index", "every index is 0", "no index of the choice", "arguments as an object"],
)
def test_calls_are_numbered_for_the_official_client(
    stream: bytes, calls: list[tuple[str, str]], size: int | None
) -> None:
    assert read_by_official_client(forwarded(stream, size)) == calls


def test_only_the_wrong_events_are_written_again() -> None:
    before, after = COPILOT.split(b"\n\n"), forwarded(COPILOT).split(b"\n\n")
    assert [old == new for old, new in zip(before, after, strict=True)] == [True] * 2 + [False] * 3 + [True] * 3


def test_a_correct_stream_passes_unchanged() -> None:
    stream = as_stream(
        chunk(),
        chunk(call("a", "", index=0)),
        chunk({"index": 0, "function": {"arguments": '{"n": 1}'}}),
        chunk(call("b", '{"n": 2}', index=1)),
        chunk(finish="tool_calls"),
    )
    assert forwarded(stream) == stream


def test_calls_of_every_recorded_stream_are_read_by_the_official_client() -> None:
    corrected = 0
    hosts = set()
    for vendor, name, data in all_streams():
        deltas = read_all(data)
        output = assembled(deltas).output
        made = [part.arguments for part in output.parts if isinstance(part, ToolCallRequest)]
        if isinstance(deltas[-1], Failed) or output.others or not made:
            continue
        hosts.add(vendor)
        corrected += forwarded(data) != data
        read = [arguments or "{}" for _, arguments in read_by_official_client(forwarded(data))]
        assert read == [arguments or "{}" for arguments in made], (vendor, name)
    assert len(hosts) > in_collection(8)
    assert corrected >= 4


def model_of(name: str, stream: bytes) -> str:
    """The model that a stream names, so that nothing has to be renamed."""
    return next((delta.model for delta in formats[name].stream_reader().feed(stream) if isinstance(delta, Started)), "")


@pytest.mark.parametrize("name", FORMATS)
def test_other_recorded_streams_pass_unchanged(name: str) -> None:
    for stream in streams(name):
        if name != "openai-chat" or b"tool_calls" not in stream:
            channel = same(name, Record(request_id="r"), model=model_of(name, stream))
            got = play(channel, name, b"", stream)
            assert got == stream or (got.startswith(stream) and not stream.endswith(b"[DONE]\n\n"))
