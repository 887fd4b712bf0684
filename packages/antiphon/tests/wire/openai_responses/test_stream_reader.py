"""Streams of Responses, read: recorded ones, cut ones, and ones with missing, extra or broken events."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.parts import Text, TokenUsage, ToolCallRequest
from antiphon.wire.delta import (
    Failed,
    Finished,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.output import ModelOutput
from support.corpus import in_collection
from support.wire_formats import RESPONSES
from wire.openai_responses.bodies import (
    FORMAT,
    Events,
    all_streams,
    assembled,
    dumped,
    events_of,
    read_all,
    written_out,
)
from wire.stream_grammar import check_grammar

read_response = RESPONSES.read_response
StreamReader = RESPONSES.stream_reader

TERMINALS = (Finished, Failed)
SHORTENED = {"e055f86df97aabba"}  # the recorder cut the pieces of the text, but not the text


def final_response(events: Events) -> dict[str, Any]:
    """The response that a stream tells: its terminal object with the items as they were done."""
    done = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    terminal: dict[str, Any] = events[-1]["response"]
    return {**terminal, "id": events[0]["response"]["id"], "output": [done[index] for index in sorted(done)]}


def test_recorded_streams_equal_their_wholes(capsys: pytest.CaptureFixture[str]) -> None:
    streams = failed = 0
    for stream_id, data in all_streams():
        deltas = read_all(data)
        assert isinstance(deltas[0], Started)
        streams += 1
        assembler = assembled(deltas)
        if assembler.error is not None:
            failed += 1
        elif stream_id not in SHORTENED:
            assert assembler.output == read_response(final_response(events_of(data)))
    assert streams > in_collection(200)
    assert failed == 1
    with capsys.disabled():
        print(f"\n{streams} streams equal their wholes; {failed} of them fails as it should")


def test_the_end_of_an_empty_stream() -> None:
    (failed,) = read_all(b"")
    assert isinstance(failed, Failed)
    assert failed.error.kind == "stream_cut"


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "in_progress",
}
MESSAGE = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}


def message_item(text: str) -> dict[str, Any]:
    return {**MESSAGE, "content": [{"type": "output_text", "annotations": [], "text": text}]}


CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "c",
    "name": "f",
    "arguments": '{"a":1}',
}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in "ab"]}
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
ITEMS = [THOUGHT, SEARCH, message_item("hello"), CALL]
DONE = {**RESPONSE, "status": "completed", "output": ITEMS, "usage": {"input_tokens": 1, "output_tokens": 2}}


def event(kind: str, index: int | None = None, **fields: Any) -> dict[str, Any]:
    place = {} if index is None else {"output_index": index}
    return {"type": f"response.{kind}", **place, **fields}


FULL: Events = [
    event("created", response=RESPONSE),
    event("in_progress", response=RESPONSE),
    event("output_item.added", 0, item={**THOUGHT, "summary": []}),
    event("reasoning_summary_part.added", 0, summary_index=0, part={}),
    event("reasoning_summary_text.delta", 0, summary_index=0, delta="a"),
    event("reasoning_summary_text.done", 0, summary_index=0, text="a"),
    event("reasoning_summary_text.delta", 0, summary_index=1, delta="b"),
    event("output_item.done", 0, item=THOUGHT),
    event("output_item.added", 1, item={**SEARCH, "status": "in_progress"}),
    event("web_search_call.searching", 1, item_id="ws_1"),
    event("output_item.done", 1, item=SEARCH),
    event("output_item.added", 2, item={**MESSAGE, "status": "in_progress", "content": []}),
    event("content_part.added", 2, content_index=0, part={"type": "output_text", "text": ""}),
    event("output_text.delta", 2, content_index=0, delta="hel"),
    event("output_text.delta", 2, content_index=0, delta="lo"),
    event("output_text.done", 2, content_index=0, text="hello"),
    event("content_part.done", 2, content_index=0, part={"type": "output_text", "text": "hello"}),
    event("output_item.done", 2, item=message_item("hello")),
    event("output_item.added", 3, item={**CALL, "arguments": "", "status": "in_progress"}),
    event("function_call_arguments.delta", 3, delta='{"a"'),
    event("function_call_arguments.delta", 3, delta=":1}"),
    event("function_call_arguments.done", 3, arguments='{"a":1}'),
    event("output_item.done", 3, item=CALL),
    event("completed", response=DONE),
]
WHOLE = read_response(DONE)


def output_of(events: Events) -> ModelOutput:
    deltas = read_all(written_out(events))
    assert isinstance(deltas[-1], Finished)
    return assembled(deltas).output


def without(*words: str) -> Events:
    return [found for found in FULL if not any(word in found["type"] for word in words)]


def test_the_deltas_of_a_stream() -> None:
    assert output_of(FULL) == WHOLE
    native = {FORMAT: {"id": "fc_1"}}
    assert read_all(written_out(FULL))[-7:] == [
        PartStarted(3, ToolCallRequest("f", "c", "", native=native)),
        PartDelta(3, '{"a"'),
        PartDelta(3, ":1}"),
        PartExtended(3, {FORMAT: {"id": "fc_1", "status": "completed"}}),
        PartEnded(3),
        UsageReported(TokenUsage(1, 2, raw=DONE["usage"], format=FORMAT)),
        Finished("tool_calls"),
    ]


@pytest.mark.parametrize(
    "events",
    [
        without(".done"),
        without(".added"),
        without(".delta"),
        without(".delta", "text.done", "arguments.done", "part.done"),
        without("output_item.done"),
        [FULL[0], FULL[-1]],
        [FULL[-1]],
        [{**found, "item_id": f"x{number}"} for number, found in enumerate(FULL)],
        [*FULL[:-1], event("completed", response={**DONE, "output": []})],
        [*FULL[:-1], event("completed", response={key: value for key, value in DONE.items() if key != "output"})],
        [{**found, "output_index": found["output_index"] * 2} if "output_index" in found else found for found in FULL],
        [*FULL[:2], event("something.new", 0, delta={"a": []}), {"type": "keepalive"}, *FULL[2:]],
        [*FULL, event("output_text.delta", 2, delta="more"), {"type": "error", "message": "late"}],
        [{key: value for key, value in found.items() if key != "output_index"} for found in without("reasoning_")],
    ],
)
def test_missing_and_extra_events(events: Events) -> None:
    assert output_of(events) == WHOLE


def test_without_items_the_pieces_do() -> None:
    late = output_of(without("output_item", "content_part")).parts  # the search appears only at the end
    assert {type(part) for part in late} == {type(part) for part in WHOLE.parts}
    assert [part for part in late if part in WHOLE.parts] == list(late)
    ended = [*without(".added", ".done", "completed"), event("completed", response={**DONE, "output": []})]
    texts_of = [getattr(part, "text", None) for part in output_of(ended).parts]
    assert texts_of == ["a\n\nb", "hello"]  # a call that was never named cannot be read


def test_a_truncated_answer() -> None:
    cut = {**DONE, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert output_of([*FULL[:-1], event("incomplete", response=cut)]).stop_reason == "length"
    bare = output_of([*FULL[:18], {"type": "response.completed"}])
    assert (bare.stop_reason, bare.native) == ("end", None)


@pytest.mark.parametrize(
    ("ending", "kind", "message"),
    [
        ({"type": "error", "code": "server_error", "message": "oh", "param": None}, "server", "oh"),
        ({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow"}}, "rate_limit", "slow"),
        ({"error": {"message": "Too many requests"}, "type": None}, "rate_limit", "Too many requests"),
        (event("failed", response={"error": {"code": "server_is_overloaded", "message": "b"}}), "overloaded", "b"),
        (event("failed", response=None), "unknown", "response failed"),
        (
            event("completed", response={"status": "failed", "error": {"message": "Unauthorized"}}),
            "authentication",
            None,
        ),
    ],
)
def test_errors_in_the_middle(ending: dict[str, Any], kind: str, message: str | None) -> None:
    data = b"".join(b"data: %b\n\n" % dumped(found) for found in [*FULL[:14], ending, *FULL[14:]])
    deltas = read_all(data)
    failed = deltas[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == kind
    assert message is None or failed.error.message == message
    assert sum(isinstance(delta, TERMINALS) for delta in deltas) == 1


@pytest.mark.parametrize("junk", [b"{broken", b"7", b"[]", b'"a"', b"\xff\xfe", b'{"type": "' + b"[" * 5000])
def test_an_event_with_invalid_json_is_a_failure(junk: bytes) -> None:
    data = written_out(FULL[:14]) + b"data: " + junk + b"\n\n" + written_out(FULL[14:])
    failed = read_all(data)[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "server"


@pytest.mark.parametrize(
    "content", [[], [{"type": "output_text", "text": "Hello", "annotations": []}]], ids=["empty", "text"]
)
@pytest.mark.parametrize("kind", [None, "unknown"])
def test_an_item_may_end_as_another_kind_than_it_began(kind: str | None, content: list[Any]) -> None:
    """The place of a part was kept for the first, and the second had another: there was no part 0."""
    final = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    deltas = read_all(
        written_out(
            [
                {"type": "response.output_item.added", "output_index": 0, "item": {"id": "m", "type": kind}},
                {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [final]}},
            ]
        )
    )
    check_grammar(deltas)
    assert isinstance(deltas[-1], Finished)
    assert [part.text for part in assembled(deltas).output.parts if isinstance(part, Text)] == ["Hello"] * len(content)
