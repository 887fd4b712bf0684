"""Seed 001's function on plain OpenAI messages."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from antiphon.repair import fix_tool_call_sequence
from antiphon.repair.sequence import INTERRUPTED
from antiphon.wire.openai_chat.rules import judge_order

CALL = {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "found"}
USER = {"role": "user", "content": "wait!"}


def test_an_interruption_moves_after_the_result_and_dicts_are_kept() -> None:
    fixed = fix_tool_call_sequence([ASKS, USER, RESULT], "req-1")
    assert fixed == [ASKS, RESULT, USER]
    assert all(one is other for one, other in zip(fixed, [ASKS, RESULT, USER], strict=True))


def test_a_legal_sequence_is_returned_as_the_same_list() -> None:
    messages: list[dict[str, Any]] = [USER, ASKS, RESULT, USER]
    assert fix_tool_call_sequence(messages, "req-1") is messages
    empty: list[dict[str, Any]] = []
    assert fix_tool_call_sequence(empty, "req-1") is empty


def test_a_missing_result_is_reported_honestly_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        fixed = fix_tool_call_sequence([ASKS, USER], "req-7")
    assert fixed == [ASKS, {"role": "tool", "tool_call_id": "a", "content": INTERRUPTED}, USER]
    assert judge_order(fixed) == []
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "antiphon.repair")
    assert record.getMessage() == (
        "[req-7] repaired the sequence: 1 synthesised; such as messages[0]: synthesised: search (a) has no result"
    )


def test_unknown_fields_survive() -> None:
    odd = {**USER, "x_mood": "cross"}
    asks = {**ASKS, "x_cost": 3}
    assert fix_tool_call_sequence([asks, odd, RESULT], "r") == [asks, RESULT, odd]


@pytest.mark.parametrize("messages", [[1, "two", None], [{"role": 5}], [{"role": "tool"}], [{}], [{"tool_calls": "x"}]])
def test_invalid_messages_pass_through(messages: Any) -> None:
    fixed = fix_tool_call_sequence(messages, "r")
    assert len(fixed) >= len(messages)


def test_a_repair_that_fails_lets_the_original_through_with_a_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken repair")

    monkeypatch.setattr("antiphon.repair.repairer.is_legal", fail)
    messages: list[dict[str, Any]] = [ASKS, USER]
    assert fix_tool_call_sequence(messages, "req-9") is messages
    assert "[req-9] repair failed" in caplog.text
    assert "broken repair" in caplog.text
