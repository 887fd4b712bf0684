"""`repair_messages`: plain messages of any format in, messages that the API of a format accepts out."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.errors import WireError
from antiphon.repair import Action
from antiphon.repair.messages import Change
from antiphon.wire import FORMATS, Violation, formats
from repair.test_broken_sequences import WORDS, bodies, calls, system, text_message, tool, user
from support.cases import each_case

BROKEN = [user("Q1"), calls("a"), user("INTERRUPT"), tool("a", "R1"), text_message("A1")]
UNANSWERED = [user("Q1"), calls("a"), user("INTERRUPT")]
LEGAL = [user("Q1"), calls("a"), tool("a", "R1"), text_message("A1")]


def in_format(messages: list[dict[str, Any]], format_name: str) -> list[Any]:
    """The messages as another format writes them, unrepaired."""
    body = formats[format_name].write_request(formats["openai-chat"].read_request({"messages": messages})).body
    written: list[Any] = body[formats[format_name].spec.messages_key]
    return written


@each_case("target", FORMATS)
@each_case(("source", "name", "body"), bodies())
def test_a_broken_body_is_accepted_and_whole(source: str, name: str, body: dict[str, Any], target: str) -> None:
    given = msgspec.json.encode(body)
    repaired = ap.repair_messages(body, for_=target)
    sent = msgspec.json.encode(repaired)
    assert msgspec.json.encode(body) == given, "what was given is not changed"
    key = formats[target].spec.messages_key
    violations = formats[target].check_request(msgspec.json.decode(sent))
    assert [violation for violation in violations if violation.path.startswith(key)] == []
    for word in WORDS:
        assert word.encode() not in given or word.encode() in sent, f"{word} is gone"
    assert ap.repair_messages(repaired, for_=target) is repaired


@each_case("source", FORMATS)
@each_case("target", FORMATS)
def test_a_list_is_recognised_and_repaired(source: str, target: str) -> None:
    report: list[Change] = []
    repaired = ap.repair_messages(in_format(UNANSWERED, source), for_=target, report=report)
    wire = formats[target]
    text = msgspec.json.encode(repaired).decode()
    assert all(word in text for word in ("Q1", "INTERRUPT"))
    assert [change.kind for change in report if isinstance(change, Action)] == ["synthesised"]
    again: list[Change] = []
    assert ap.repair_messages(repaired, for_=target, report=again) is repaired
    assert again == []
    assert wire.read_request({wire.spec.messages_key: repaired}).messages


@pytest.mark.parametrize("name", FORMATS)
def test_legal_messages_are_the_same_object(name: str, caplog: pytest.LogCaptureFixture) -> None:
    messages = in_format(LEGAL, name)
    body = {"model": "m", formats[name].spec.messages_key: messages, "temperature": 0}
    with caplog.at_level(logging.DEBUG, "antiphon.repair"):
        assert ap.repair_messages(messages, for_=name) is messages
        assert ap.repair_messages(body, for_=name) is body
    assert caplog.records == []


def test_other_fields_and_untouched_messages_stay_as_they_are() -> None:
    first = {"role": "user", "content": "Q1", "name": "ada"}
    body = {"model": "gpt-x", "messages": [first, *BROKEN[1:]], "seed": 7, "own": {"a": 1}}
    repaired = ap.repair_messages(body)
    assert repaired["messages"][0] is first
    assert {key: value for key, value in repaired.items() if key != "messages"} == {
        key: value for key, value in body.items() if key != "messages"
    }


@pytest.mark.parametrize("target", ["anthropic", "gemini", "gemini-interactions"])
def test_a_system_message_needs_the_body_where_the_format_has_it_elsewhere(target: str) -> None:
    messages = [system("Be brief."), *BROKEN]
    with pytest.raises(WireError, match="has the system instruction outside of its messages; give the body"):
        ap.repair_messages(messages, for_=target)
    body = ap.repair_messages({"messages": messages}, for_=target)
    assert "Be brief." in str({**body, formats[target].spec.messages_key: ()})
    assert ap.repair_messages(messages)[0] == messages[0]


def test_the_repairs_are_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    report: list[Change] = []
    with caplog.at_level(logging.INFO, "antiphon.repair"):
        ap.repair_messages(BROKEN, for_="anthropic", report=report)
    assert [change.kind for change in report if isinstance(change, Action)] == ["moved"]
    assert "1 moved" in caplog.text


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("Hi.", "expected a list of messages or a body, got str"),
        (5, "expected a list of messages or a body, got int"),
        ([user("Q1"), ""], "not a message: expected an object, got str"),
        ({"prompt": "Hi."}, "not a body: expected one of the keys messages, input and contents"),
    ],
)
def test_values_that_are_no_messages_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        ap.repair_messages(given, for_="anthropic")


def test_fields_that_the_api_refuses_are_repaired_and_reported() -> None:
    report: list[Change] = []
    messages = [user("Q1"), calls("a"), {**tool("a", "R1"), "name": 5}]
    repaired = ap.repair_messages(messages, report=report)
    assert repaired == [user("Q1"), calls("a"), tool("a", "R1")]
    assert [change.rule for change in report if isinstance(change, Violation)] == ["OC-25"]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(WireError, match="unknown format 'claude'; expected one of: openai-chat"):
        ap.repair_messages(BROKEN, for_="claude")


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("openai-chat", {"role": ["a"], "tool_calls": [5]}),
        ("openai-chat", {"role": "user", "content": object()}),
        ("openai-responses", {"type": 5}),
        ("anthropic", {"role": "user", "content": 5}),
        ("gemini", {"parts": 5}),
        ("gemini-interactions", {"type": "user_input", "content": 5}),
    ],
)
def test_messages_that_cannot_be_repaired_are_left_to_the_api(name: str, odd: dict[str, Any]) -> None:
    messages, report = [odd], list[Change]()
    assert ap.repair_messages(messages, for_=name, report=report) is messages
    assert report == []
