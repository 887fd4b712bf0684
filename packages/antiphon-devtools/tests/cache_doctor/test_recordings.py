"""Recorded requests: JSON Lines, lists, HAR files, the usage of their answers, and files that are none of these."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from antiphon_devtools.cache_doctor import CacheDoctor, outline_prompt
from antiphon_devtools.cache_doctor.recordings import RecordingError, read_recording
from support.corpus import client_captures, in_collection, recorded

from .bodies import anthropic, chat, gemini


def json(value: Any) -> bytes:
    return msgspec.json.encode(value)


ANSWER = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Yes."}],
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 2},
}  # fmt: skip


def test_bodies_one_per_line_with_time_and_answer() -> None:
    items = [anthropic("Hi."), {"request": anthropic("Hi."), "response": ANSWER, "time": "2026-11-16T12:00:00Z"}]
    plain, full = read_recording(b"\n\n".join(map(json, items)), "a.jsonl")
    assert (plain.where, plain.format, plain.at, plain.usage) == ("a.jsonl, line 1", "anthropic", None, None)
    assert (full.where, full.at) == ("a.jsonl, line 3", 1794830400.0)
    assert full.usage is not None
    assert (full.usage.prompt_tokens, full.usage.cached_tokens) == (105, 90)


def test_a_har_with_other_requests_in_it() -> None:
    text = json(ANSWER).decode()
    entries = [
        {"request": {"method": "GET", "url": "https://a.example/"}},
        {"request": {"url": "https://a.example/track", "postData": {"text": '{"event": 1}'}}},
        {
            "startedDateTime": "2026-11-16T12:00:00.500+00:00",
            "request": {"url": "https://a.example/v1/messages", "postData": {"text": json(anthropic("Hi.")).decode()}},
            "response": {"content": {"text": b64encode(text.encode()).decode(), "encoding": "base64"}},
        },
        {
            "request": {
                "url": "https://b.example/v1beta/models/gemini-3.5-flash:generateContent",
                "postData": {"text": json(gemini("Hi.")).decode()},
            }
        },
    ]
    first, second = read_recording(json({"log": {"version": "1.2", "entries": entries}}), "a.har")
    assert (first.where, first.format, first.at) == ("a.har, entries[2]", "anthropic", 1794830400.5)
    assert first.usage is not None
    assert first.usage.cached_tokens == 90
    assert (second.format, second.model) == ("gemini", "gemini-3.5-flash")


def test_the_usage_of_a_recorded_stream() -> None:
    streams = (one for one in recorded("anthropic") if isinstance(one["sse"], str) and one["status"] == 200)
    record = next(one for one in streams if isinstance(one["request"], dict))
    (read,) = read_recording(json({**record, "format": "anthropic"}), "a.json")
    assert read.usage is not None
    assert read.usage.prompt_tokens > 0


def test_a_list_and_a_single_body() -> None:
    assert len(read_recording(json([chat("Hi."), chat("Hi.", "Yes?")]), "a.json")) == 2
    assert read_recording(json(chat("Hi.")), "a.json")[0].format == "openai-chat"
    huge = json(chat("Hi.")).replace(b"{", b'{"temperature":1e400,', 1)
    assert read_recording(huge, "a.json")[0].body["messages"] == chat("Hi.")["messages"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "empty file"),
        (b"[1]", "a.json, item 1: a request is a JSON object, not int"),
        (b'{"messages": []}\n{"nothing": 1}', "line 2: not a request body of a known format"),
        (b'{"messages": []}\nnot json', "line 2: not valid JSON"),
        (b'{"log": {"entries": []}}', "no request to a model"),
        (b'{"log": {}}', "a HAR without `log.entries`"),
        (b'{"request": {"messages": []}, "time": "yesterday"}', "the time 'yesterday' is not ISO 8601"),
        (b"\xff\xfe", "line 1: not valid JSON"),
    ],
)
def test_bad_files_get_a_clear_error(data: bytes, message: str) -> None:
    with pytest.raises(RecordingError, match=re.escape(message)):
        read_recording(data, "a.json")


@pytest.mark.parametrize("client", ["claude-code.anthropic.0", "opencode.anthropic.interrupted-tool.0"])
def test_a_real_client_keeps_its_prefix(client: str) -> None:
    """A capture has its long texts cut, so it is below the minimum; what counts is that nothing differs."""
    captures = [capture for name, capture in client_captures("anthropic") if name.startswith(client)]
    doctor = CacheDoctor()
    reports = [doctor.examine(outline_prompt(capture["body"], "anthropic")) for capture in captures]
    assert len(captures) >= in_collection(2)
    assert all(report.difference is None for report in reports[-1:])
