"""Each rule of generateContent: a body that breaks it, the nearest body that does not, and the recorded traffic for both."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from antiphon.wire.format import WriteOptions
from support.cases import each_case
from support.corpus import are_known, client_captures, in_collection, recorded
from support.rule_cases import Case
from support.wire_formats import GEMINI
from wire.gemini.rule_cases import (
    ASK,
    CASES,
    ROUND,
    body,
    call,
    config,
    declared,
    model,
    response,
    schema,
    text,
    user,
)

check_request = GEMINI.check_request


@pytest.mark.parametrize("name", ["", "gemini-2.5-flash", "gemini-3.5-flash", "a-model-we-do-not-know"])
def test_a_model_turn_may_end_the_request_where_the_model_takes_it(name: str) -> None:
    assert check_request(body(ASK, model(text())), WriteOptions(model=name)) == []


@pytest.mark.parametrize("name", ["", "gemini-2.5-pro", "gemini-3-pro-image-preview"])
def test_signatures_are_asked_for_only_where_the_model_asks(name: str) -> None:
    assert check_request(body(*ROUND), WriteOptions(model=name)) == []


@each_case("case", CASES)
def test_paths_can_be_followed_in_the_body(case: Case) -> None:
    steps: list[Any] = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", case.path)]
    value = case.broken
    for step in steps[:-1]:
        # One object may stand for a list of one, and the last step may be the field that is missing.
        value = value[step]
    assert not steps or isinstance(value, dict | list)


def test_every_kind_of_broken_order_has_its_rule() -> None:
    assert check_request(body(*ROUND)) == []
    found = check_request(body(model(call()), ASK, user(response()), model(text()), user(response())))
    assert [violation.rule for violation in found] == ["GM-05", "GM-06"]


def test_deep_nesting_is_safe() -> None:
    deep: dict[str, Any] = {"type": "STRING"}
    for _ in range(10_000):
        deep = {"type": "OBJECT", "properties": {"a": deep}}
    assert check_request(declared({"name": "f", "parameters": deep})) == []
    assert check_request(config(responseSchema=deep)) == []
    value: Any = []
    for _ in range(10_000):
        value = [value]
    for place in ("contents", "tools", "toolConfig", "systemInstruction", "generationConfig"):
        assert check_request(body(**{place: value}))
    assert check_request(body({"role": value, "parts": value}))
    assert check_request(schema(type=value, enum=value, items=value))
    assert check_request(body(ASK, model(call(name=value, args=value)), user(response(name=value))))


def test_numbers_of_any_size_are_numbers() -> None:
    for number in (10**5000, float("inf"), float("nan"), -1):
        assert [violation.rule for violation in check_request(config(temperature=number))] == ["GM-14"]


def model_in(path: str, otherwise: str = "") -> str:
    match = re.search(r"models/([^:/?]+)", path)
    return match[1] if match else otherwise


def test_no_accepted_request_is_flagged() -> None:
    checked = 0
    for record in recorded("gemini"):
        if 200 <= record["status"] < 300 and isinstance(record["request"], dict):
            checked += 1
            found = check_request(
                record["request"], WriteOptions(model=model_in(record["url_path"], record["model"] or ""))
            )
            assert found == [], record["id"]
    sys.stdout.write(f"{checked} accepted requests checked\n")
    assert checked >= in_collection(595)


FORESEEN = {
    "630cabc16859841c": [("GM-01", "contents")],
    "b645aa7d4cdc18cd": [],  # it asks for a page that the web site would not give
    "d4207d0a6b82f453": [("GM-14", "generationConfig.temperature")],
    "fb15c78d06e107b8": [("GM-02", "contents[0].role")],
}


def test_refused_requests_are_found_where_the_provider_finds_them() -> None:
    found = {
        record["id"]: [(it.rule, it.path) for it in check_request(record["request"], WriteOptions(model=model))]
        for record in recorded("gemini")
        if record["status"] == 400 and isinstance(record["request"], dict)
        # A key the provider does not know says nothing of the body.
        if "API key" not in record["response"]["error"]["message"]
        for model in [model_in(record["url_path"])]
    }
    assert found == FORESEEN


# Captured after an interrupt: the client answers its one call twice, which the provider would not take.
INTERRUPTED = {
    "gemini-cli.gemini.interrupted-text.04.side-call.json",
    "gemini-cli.gemini.interrupted-text.05.after-interrupt.json",
    "gemini-cli.gemini.interrupted-text.06.after-tool.json",
}


def test_captured_client_requests_are_clean_but_for_one_interrupt() -> None:
    flagged = {}
    for name, capture in client_captures("gemini"):
        found = check_request(capture["body"], WriteOptions(model=model_in(capture["path"])))
        if found:
            flagged[name] = {violation.rule for violation in found}
    assert are_known(flagged, {name: {"GM-07"} for name in INTERRUPTED})
