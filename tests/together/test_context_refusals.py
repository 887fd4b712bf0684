"""A provider that refuses a request as too long, in its words and over real sockets, although our count was within the limit."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.context import Compaction
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from gateway.strict_upstream import StrictUpstream
from providers.scripted_server import Received, Reply

INVALID = "invalid_request_error"
REFUSALS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "anthropic": (
        "anthropic",
        "claude-sonnet-4-5",
        {
            "type": "error",
            "error": {"type": INVALID, "message": "prompt is too long: 3333404 tokens > 200000 maximum"},
        },
    ),
    "vertex": (
        "gemini",
        "gemini-2.5-flash",
        {
            "error": {
                "code": 400,
                "message": "The input token count (1250074) exceeds the maximum number of tokens allowed (1048576).",
                "status": "INVALID_ARGUMENT",
            }
        },
    ),
    "openai": (
        "openai-responses",
        "gpt-4.1",
        {
            "error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
                "type": INVALID,
                "param": "input",
                "code": "context_length_exceeded",
            }
        },
    ),
    "deepseek": (
        "openai-chat",
        "deepseek-chat",
        {
            "error": {
                "message": "This model's maximum context length is 1048565 tokens. However, you requested 1250025 tokens "
                "(1250025 in the messages, 0 in the completion). Please reduce the length of the messages or completion.",
                "type": INVALID,
                "param": None,
                "code": INVALID,
            }
        },
    ),
    "llamacpp": (
        "openai-chat",
        "qwen3",
        {
            "error": {
                "code": 400,
                "message": "request (2009 tokens) exceeds the available context size (512 tokens), try increasing it",
                "type": "exceed_context_size_error",
            }
        },
    ),
}
"""As recorded: the format, a model, and the body of the refusal."""

ROUNDS = 8


@ap.tool(effect="read")
def look(number: int) -> str:
    """Look at a depot."""
    return f"Depot {number} has the code A-{4694 + number}. " + f"Shelf {number} is full. " * 200


def is_summary(received: Received) -> bool:
    return b"The conversation has grown long." in received.body


class Journey:
    """Eight rounds and an answer; after the last round the provider refuses `refusals` requests."""

    def __init__(self, vendor: str, refusals: int) -> None:
        self.format, self.model, refusal = REFUSALS[vendor]
        self.upstream = StrictUpstream(self.format, ["sk-test"])
        body = msgspec.json.encode(refusal)
        self._faults = [Reply(status=400, body=body, content_type="application/json", has_length=True)] * refusals
        self._rounds = itertools.count(1)
        self.upstream.answer = self._answer
        self.upstream.may_fail = lambda received: not is_summary(received)

    def _answer(self, request: ModelRequest) -> ModelOutput:
        usage = ap.TokenUsage(len(str(request.messages)) // 4, 20)
        if "The conversation has grown long." in str(request.messages[-1]):
            part: ap.Text | ap.ToolCallRequest = ap.Text("They looked at some depots.")
        elif (number := next(self._rounds)) <= ROUNDS:
            part = ap.ToolCallRequest("look", f"call_{number}", f'{{"number":{number}}}')
            if number == ROUNDS:
                self.upstream.faults.extend(self._faults)
        else:
            part = ap.Text("All seen.")
        stop: Any = "end" if isinstance(part, ap.Text) else "tool_calls"
        return ModelOutput(parts=(part,), stop_reason=stop, id="msg", model=request.model, usage=usage)

    def start(self) -> ap.ToolLoop:
        preset = "openai" if self.format == "openai-chat" else self.format
        client = HttpProviderClient(preset, base_url=self.upstream.base_url, keys=["sk-test"])
        chat = ap.Conversation(
            self.model, provider=client, tools=[look], token_limit=60_000, compaction=Compaction(thrift="off")
        )
        return ap.ToolLoop(chat, max_rounds=30)

    @property
    def sizes(self) -> list[int]:
        """Of the requests that are no summaries."""
        return [len(received.body) for received in self.upstream.received if not is_summary(received)]


@pytest.mark.parametrize("vendor", REFUSALS)
def test_a_refused_request_is_made_smaller_and_sent_once_more(vendor: str) -> None:
    journey = Journey(vendor, refusals=1)
    with journey.upstream:
        loop = journey.start()
        assert loop.chat.token_limit == 60_000
        result = loop.run_sync("Visit all depots.")
        assert (result.reason, result.text) == ("answered", "All seen.")
        assert journey.upstream.refused == [], "what was sent again is a legal request"
    *_, refused, again = journey.sizes
    assert len(journey.sizes) == ROUNDS + 2
    assert again < refused * 0.7
    assert loop.chat.tokens < 60_000


@pytest.mark.parametrize("vendor", REFUSALS)
def test_a_request_that_is_refused_again_is_made_smaller_again(vendor: str) -> None:
    journey = Journey(vendor, refusals=2)
    with journey.upstream:
        result = journey.start().run_sync("Visit all depots.")
        assert (result.reason, result.text) == ("answered", "All seen.")
        assert journey.upstream.refused == []
    *_, first, second, third = journey.sizes
    assert len(journey.sizes) == ROUNDS + 3
    assert third < second < first * 0.7


def test_a_provider_that_refuses_every_size_ends_the_run() -> None:
    journey = Journey("openai", refusals=30)
    with journey.upstream:
        loop = journey.start()
        failed = loop.run_sync("Visit all depots.", check=False)
        assert failed.error is not None
        assert (failed.error.kind, failed.error.status) == ("context_length", 400)
        refused = journey.sizes[ROUNDS:]
        assert len(refused) < 10, "each is half of the one before"
        assert refused == sorted(refused, reverse=True)
        journey.upstream.clear()
        assert loop.run_sync("Go on.").reason == "context_limit", "what must be kept was refused; it is not sent again"
