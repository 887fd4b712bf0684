"""`is_visible`: what counts as shown, for every kind of delta. The router, the HTTP client and the gateway all ask it."""

from __future__ import annotations

import pytest

from antiphon.parts import Native, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
    is_visible,
)
from antiphon.wire.output import ProviderError

DELTAS: list[tuple[ModelOutputDelta, bool]] = [
    (Started("id", "m"), False),
    (UsageReported(TokenUsage(1, 1)), False),
    (PartStarted(0, Text("")), False),
    (PartStarted(0, Thinking("")), False),
    (PartStarted(0, Refusal("")), False),
    (PartStarted(0, Text("word")), True),
    (PartStarted(0, Thinking("thought")), True),
    (PartStarted(0, ToolCallRequest("look", "call_1", "")), True),
    (PartStarted(0, Native("anthropic", {"type": "redacted_thinking"})), True),
    (PartDelta(0, ""), False),
    (PartDelta(0, "word"), True),
    (PartExtended(0, {"anthropic": {"signature": "s"}}), False),
    (PartEnded(0), False),
    (Finished("end"), False),
    (Finished(""), False),
    (Finished("other"), False),
    (Finished("malformed_call"), False),
    (Finished("refusal"), True),
    (Finished("length"), True),
    (Failed(ProviderError("no")), False),
]


@pytest.mark.parametrize(("delta", "expected"), DELTAS, ids=lambda value: repr(value)[:40])
def test_is_visible_where_a_reader_sees_something_new(delta: ModelOutputDelta, expected: bool) -> None:
    assert is_visible(delta) is expected
