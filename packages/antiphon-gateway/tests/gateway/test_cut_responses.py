"""Responses of an upstream that are cut where the cut is hard to see: none of them reaches a client as a complete answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from antiphon.parts import text_of
from antiphon.wire import FORMATS
from gateway.rig import Rig, rig
from gateway.strict_upstream import StrictUpstream, cut, text_answer
from providers.scripted_server import Reply

QUESTION: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "Rain?"}]},
    "openai-responses": {"input": "Rain?", "store": False},
    "anthropic": {"max_tokens": 100, "messages": [{"role": "user", "content": "Rain?"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Rain?"}]}]},
    "gemini-interactions": {"input": "Rain?", "store": False},
}
ANSWER = text_answer("It will rain all day.")


@pytest.fixture(scope="module", name="gateway")
def one_for_all() -> Iterator[Rig]:
    with rig() as running:
        yield running


@pytest.fixture(autouse=True)
def _answers(gateway: Rig) -> None:
    gateway.clear()
    for upstream in gateway.upstreams.values():
        upstream.answer = lambda _: ANSWER


def ends_of_lines(upstream: StrictUpstream, events: int) -> list[int]:
    """Every place in and around the line ends of the first events."""
    stream = upstream.stream(ANSWER)
    ends = [found.end() for found in re.finditer(rb"\n\n", stream)][:events]
    return sorted({place for end in ends for place in range(end - 3, end + 2)})


def assert_is_an_error(gateway: Rig, source: str, target: str) -> None:
    with gateway.client() as client:
        got = client.ask(source, f"to-{target}", QUESTION[source], streams=True)
        if got.status < 400:
            assembler = got.assembler(source)
            assert not assembler.is_finished, got.body
            assert assembler.error is not None
            assert b"error" in got.body, "the stream ended without an error"
        (record, *_) = client.get("/status").json["requests"]
        assert record["error"]


@pytest.mark.parametrize("source", FORMATS)
def test_a_cut_in_the_line_end_of_an_early_event_is_an_error(gateway: Rig, source: str) -> None:
    upstream = gateway.upstreams[source]
    for place in ends_of_lines(upstream, 6):
        upstream.faults.append(cut(place))
        assert_is_an_error(gateway, source, source)


@pytest.mark.parametrize(("source", "target"), [("openai-chat", "anthropic"), ("anthropic", "openai-chat")])
def test_a_cut_in_the_line_end_is_an_error_in_another_format(gateway: Rig, source: str, target: str) -> None:
    upstream = gateway.upstreams[target]
    for place in ends_of_lines(upstream, 4):
        upstream.faults.append(cut(place))
        assert_is_an_error(gateway, source, target)


@pytest.mark.parametrize("source", FORMATS)
def test_a_whole_body_shorter_than_its_length_is_an_error_for_a_client_that_streams(gateway: Rig, source: str) -> None:
    upstream = gateway.upstreams[source]
    whole = upstream.wire.encode_response(ANSWER).data

    def shorter(_: Reply) -> Reply:
        full = Reply(body=whole + b" " * 20, content_type="application/json", has_length=True)
        return structs.replace(full, cut_after=len(whole))

    upstream.faults.append(shorter)
    assert_is_an_error(gateway, source, source)
    upstream.faults.append(lambda _: Reply(body=whole, content_type="application/json", has_length=True))
    with gateway.client() as client:
        got = client.ask(source, f"to-{source}", QUESTION[source], streams=True)
        assert text_of(got.output(source, streams=True).parts) == text_of(ANSWER.parts)
