"""The rules of the Messages API, by case and against the recorded traffic."""

from __future__ import annotations

import sys
from typing import Any

from antiphon.wire.format import WriteOptions
from support.cases import each_case
from support.corpus import are_known, client_captures, in_collection, recorded
from support.rule_cases import Case
from support.wire_formats import ANTHROPIC
from wire.anthropic.rule_cases import (
    ASK,
    CASES,
    OBJECT,
    ROUND,
    assistant,
    body,
    call,
    output,
    result,
    strict,
    system,
    user,
)

check_request = ANTHROPIC.check_request


@each_case("case", CASES)
def test_paths_can_be_followed_in_the_body(case: Case) -> None:
    value = case.broken
    *way, last = case.path.split(".") if case.path else ("",)
    for step in way:
        value = value[int(step)] if isinstance(value, list) else value[step]
    # The last step may be the field that is missing.
    assert isinstance(value, dict) or (isinstance(value, list) and (not last or int(last) < len(value)))


def test_a_foreign_id_is_reported_at_the_call_and_at_its_result() -> None:
    found = check_request(body(ASK, assistant(call("eval:301")), user(result("eval:301"))))
    assert [(violation.rule, violation.path) for violation in found] == [
        ("AN-11", "messages.1.content.0.id"),
        ("AN-11", "messages.2.content.0.tool_use_id"),
    ]


def test_a_misplaced_system_message_and_a_call_without_a_result_are_both_found() -> None:
    assert check_request(body(*ROUND)) == []
    found = check_request(body(ASK, assistant(call()), system(), ASK))
    assert sorted(violation.rule for violation in found) == ["AN-03", "AN-03", "AN-03", "AN-08"]


def test_a_system_message_does_not_part_calls_from_results() -> None:
    found = check_request(body(ASK, assistant(call()), system(), user(result())))
    assert {violation.rule for violation in found} == {"AN-03"}


def nested(key: str, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {**OBJECT, key: {"a": schema} if key == "properties" else schema}
    return schema


def test_deep_nesting_is_safe() -> None:
    deep = nested("properties", 10_000)
    assert check_request(body(output_config=output(deep))) == []
    assert check_request(body(tools=strict(1, deep)))[0].rule == "AN-16"
    value: Any = []
    for _ in range(10_000):
        value = [value]
    for place in ("messages", "system", "tools", "thinking", "tool_choice", "temperature", "stop_sequences", "model"):
        assert check_request(body(**{place: value}))
    assert check_request(body(user(value)))
    assert check_request(body({"role": value, "content": value}))
    assert check_request(body(user({"type": value}), user(result(value)), assistant(call(value))))


# Accepted, and yet against a rule that holds today: which rules, and why.
ACCEPTED_ANYWAY = {
    "498a7f5112dee12d": ({"AN-05"}, "Bedrock takes blank text in an answer"),
    "755c9310356c117f": ({"AN-05"}, "Bedrock takes blank text in an answer"),
    "c3e0bcd4bb4bdc89": ({"AN-05"}, "Bedrock takes blank text in an answer"),
    "cf03935ef502b4d6": ({"AN-05"}, "Bedrock takes blank text in an answer"),
    "710eada6edc5d982": ({"AN-08", "AN-09"}, "recorded with Claude 3, before the ids were compared"),
    "767dd5fafa3dbb65": ({"AN-08", "AN-09"}, "recorded with Claude 3, before the ids were compared"),
    "84d60f82ef315abc": ({"AN-25"}, "the recorder put another id in place of the real one"),
}


def test_no_accepted_request_is_flagged() -> None:
    checked = 0
    for record in recorded("anthropic"):
        if 200 <= record["status"] < 300 and isinstance(record["request"], dict):
            checked += 1
            rules, _ = ACCEPTED_ANYWAY.get(record["id"], (set(), ""))
            found = check_request(record["request"])
            assert {violation.rule for violation in found} == rules, (record["id"], found)
    sys.stdout.write(f"{checked} accepted requests checked, {len(ACCEPTED_ANYWAY)} of them excused by name\n")
    assert checked >= in_collection(639)


FORESEEN = {
    "123973b1c1f68647": [("AN-16", "tools.0.input_schema.type"), ("AN-16", "tools.0.input_schema")],
    "199d8ecd2120eda9": [("AN-16", "tools")],
    "26469ba40f2003b4": [("AN-16", "tools.0.input_schema")],
    "4df640eda333289c": [("AN-24", "messages.0.content.1.source")],
    "582fc4050f73792d": [("AN-16", "tools.0.input_schema.type"), ("AN-16", "tools.0.input_schema")],
    "60f73c95fef83380": [("AN-29", "messages.0")],
    "7bd87ef04d7b7fc5": [("AN-16", "tools.0.input_schema.type")],
    "7e05bd4d8dc72cec": [("AN-32", "output_format.schema"), ("AN-32", "output_format")],
    "ada4b7359f509a53": [("AN-04", "messages.0")],
    "c7480a7501b9ff64": [("AN-32", "output_config.effort")],
    "d55f6a2138208879": [("AN-02", "messages.0")],
}
"""What is wrong in the requests that the API refused. The one left over is a system message to Opus 4.8, which other recordings
show accepted."""


def test_refused_requests_are_found_at_the_path_that_the_provider_names() -> None:
    refused = [record for record in recorded("anthropic") if record["status"] == 400]
    caught = {record["id"]: [(it.rule, it.path) for it in check_request(record["request"])] for record in refused}
    assert are_known({name: found for name, found in caught.items() if found}, FORESEEN)


def test_no_captured_client_request_is_flagged() -> None:
    checked = 0
    for name, capture in client_captures("anthropic"):
        if capture["kind"] != "count-tokens":
            checked += 1
            assert (
                check_request(capture["body"], WriteOptions(version=capture["headers"]["anthropic-version"])) == []
            ), name
    sys.stdout.write(f"{checked} captured client requests checked\n")
    assert checked >= in_collection(37)
