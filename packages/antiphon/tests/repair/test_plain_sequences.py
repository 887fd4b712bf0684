"""The short way of `is_legal`: what it takes for plainly in order, the judge of order finds nothing wrong with, in any format."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.parts import Image, Part, Text, ToolCallRequest, ToolCallResult
from antiphon.repair import repairer
from antiphon.wire import formats
from antiphon.wire.request import Message
from support.examples import scaled

ids = st.sampled_from(["a", "b", "c", ""])
parts: st.SearchStrategy[Part] = st.one_of(
    st.just(Text("x")),
    ids.map(lambda call_id: ToolCallRequest("weather", call_id, "{}")),
    ids.map(lambda call_id: ToolCallResult("weather", call_id)),
)
messages = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), st.lists(parts, max_size=3).map(tuple)),
    max_size=5,
)
CALL, RESULT = ToolCallRequest("weather", "a", "{}"), ToolCallResult("weather", "a")
ROUND = [Message("user", (Text("Rain?"),)), Message("assistant", (Text("I look."), CALL)), Message("tool", (RESULT,))]


@settings(max_examples=scaled(60))
@given(messages)
def test_plain_sequences_in_order_are_legal_in_every_format(given_messages: list[Message]) -> None:
    if repairer.is_plain(given_messages):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(repairer, "is_plain", lambda _: False)
            for wire in formats.values():
                assert repairer.is_legal(given_messages, wire.spec.sequence_rule)


def test_rounds_of_calls_are_plainly_in_order_and_broken_ones_are_not() -> None:
    assert repairer.is_plain(ROUND)
    assert repairer.is_plain([*ROUND, Message("assistant", (Text("It rains."),)), ROUND[0]])
    assert not repairer.is_plain(ROUND[:2])
    assert not repairer.is_plain([ROUND[0], ROUND[2]])
    assert not repairer.is_plain([*ROUND[:2], ROUND[0], ROUND[2]])
    assert not repairer.is_plain([*ROUND, *ROUND]), "an id that comes again is for the judge"
    seen = Message("tool", (ToolCallResult("weather", "a", content=(Image("image/png", "aGk="),)),))
    assert not repairer.is_plain([*ROUND[:2], seen]), "a picture may have to be fetched"
