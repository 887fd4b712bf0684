"""Numbers that no float holds: a model may write them, and no translation fails for it."""

from __future__ import annotations

import pytest

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.wire import FORMATS, Message, ModelRequest, formats

CALL = ToolCallRequest("weigh", "call_1", '{"grams": 1e999}')
REQUEST = ModelRequest(
    model="m",
    messages=(
        Message("user", (Text("How heavy?"),)),
        Message("assistant", (CALL,)),
        Message("tool", (ToolCallResult.of(CALL, "Too heavy."),)),
    ),
)


@pytest.mark.parametrize("name", FORMATS)
def test_a_number_too_large_is_written_as_the_model_wrote_it(name: str) -> None:
    assert b"1e999" in formats[name].encode_request(REQUEST).data
    assert "weigh" in str(formats[name].write_request(REQUEST).body)
