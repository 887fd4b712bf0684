"""Chat Completions streams, read: recorded ones, cut ones, usage, errors and any deltas."""

from __future__ import annotations

import pytest

from antiphon.parts import (
    Text,
    TokenUsage,
)
from antiphon.wire.delta import (
    Failed,
    Finished,
)
from antiphon.wire.inbound import client_formats
from support.wire_formats import CHAT
from wire.openai_chat.bodies import FORMAT, assembled, chunk, event, read_all
from wire.openai_chat.stream_helpers import (
    DONE,
    STOP,
    USAGE,
    stream,
)
from wire.stream_grammar import check_grammar

StreamReader = CHAT.stream_reader


def test_usage_may_come_before_on_or_after_the_end() -> None:
    only_usage = {"id": "x", "choices": [], "usage": USAGE}
    for chunks in (
        [chunk({"content": "a"}), STOP, only_usage],
        [chunk({"content": "a"}), chunk({}, "stop", usage=USAGE)],
        [chunk({"content": "a"}, usage={**USAGE, "completion_tokens": 0}), chunk({}, "stop", usage=USAGE)],
        [only_usage, chunk({"content": "a"}), STOP],
        [chunk({"content": "a"}), chunk({}, "stop", x_groq={"usage": USAGE})],
        [
            chunk({"content": "a"}),
            {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]},
        ],
    ):
        output = assembled(read_all(stream(*chunks))).output
        assert output.usage == TokenUsage(1, 2, total_tokens=3, raw=USAGE, format=FORMAT)
        assert output.stop_reason == "end"


def test_azure_begins_without_choices() -> None:
    filters = [{"prompt_index": 0}]
    first = {"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": filters}
    annotation = {"id": "", "model": "", "object": "", "choices": [{"index": 0, "content_filter_results": {"hate": 1}}]}
    deltas = read_all(stream(first, chunk({"content": "a"}), annotation, STOP))
    check_grammar(deltas)
    output = assembled(deltas).output
    assert (output.id, output.model, output.parts) == ("chatcmpl-1", "m", (Text("a"),))
    assert output.native == {
        FORMAT: {"prompt_filter_results": filters, "choice": {"content_filter_results": {"hate": 1}}}
    }


def test_extras_of_the_body_are_reported_once() -> None:
    data = stream(
        chunk({"content": "a"}, service_tier="default", citations=["x"], provider="p"),
        chunk({"content": "b"}, service_tier="default", citations=["x"], provider="q"),
        STOP,
    )
    output = assembled(read_all(data)).output
    assert output.native == {FORMAT: {"service_tier": "default", "citations": ["x"], "provider": "q"}}


ERRORS: list[tuple[bytes, str]] = [
    (event({"error": {"message": "Token limit reached", "code": 400}}), "context_length"),
    (event({"error": {"message": "slow", "code": 429}, "choices": []}), "rate_limit"),
    (event({"code": 429, "status": "Too Many Requests", "message": "slow"}), "rate_limit"),
    (event({"object": "error", "message": "bad", "code": 400}), "invalid_request"),
    (b'event: error\ndata: {"message": "boom", "type": "server_error"}\n\n', "server"),
    (
        event({**chunk(), "choices": [{"index": 0, "error": {"message": "x", "code": 502}, "finish_reason": "error"}]}),
        "server",
    ),
    (event(b"{oops"), "server"),
    (event(b"7"), "server"),
    (event([{"error": {"message": "slow", "code": 429}}]), "rate_limit"),
    (b"", "stream_cut"),
]


@pytest.mark.parametrize(("data", "kind"), ERRORS, ids=str)
def test_errors_inside_a_stream_are_failures(data: bytes, kind: str) -> None:
    for before in (b"", event(chunk({"content": "a"}))):
        deltas = read_all(before + data, 5)
        check_grammar(deltas)
        last = deltas[-1]
        assert isinstance(last, Failed)
        assert last.error.kind == kind
    reader = StreamReader()
    reader.feed(event(chunk({"content": "a"})) + data)
    reader.close()
    assert reader.feed(stream(STOP)) == []
    assert reader.close() == []


@pytest.mark.parametrize("before", [b"", b": waiting\n\n", event(b'{"id":"1","choices":[]}')])
@pytest.mark.parametrize("after", [b"", b"\n", b"\n\n: still here\n\n"])
def test_a_plain_error_instead_of_events_is_read(before: bytes, after: bytes) -> None:
    last = read_all(before + b'{"error": {"message": "slow down",\n\n "code": 429}}' + after, 9)[-1]
    assert isinstance(last, Failed)
    assert (last.error.kind, last.error.message) == ("rate_limit", "slow down")


def test_a_host_may_name_its_fields_as_we_name_extras() -> None:
    fields = {"choice": [1], "message": "hello", "finish_reason": 5, "whole": {}, "response": "x"}
    body = {"id": "1", "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}], **fields}
    chat = client_formats["openai-chat"]
    written = chat.write_response(chat.read_response(body)).body
    assert written.items() >= fields.items()
    deltas = read_all(stream({**chunk({"content": "a"}), **fields}, STOP))
    for name in ("openai-chat", "openai-completions"):
        writer = client_formats[name].stream_writer()
        assert b"DONE" in b"".join(map(writer.write, deltas)) + writer.close()


def test_done_ends_a_stream_with_or_without_a_reason() -> None:
    parts_seen = read_all(stream(chunk({"content": "a"})))
    assert isinstance(parts_seen[-1], Finished)
    assert isinstance(read_all(stream(chunk({"content": "a"}), done=False))[-1], Failed)
    assert isinstance(read_all(DONE)[-1], Failed)
    assert isinstance(read_all(stream(chunk({"content": "a"}), STOP) + event(chunk({"content": "late"})))[-1], Finished)
