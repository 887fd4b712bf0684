"""The rules of Responses: each with the smallest body that breaks it and the nearest body that does not."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from support.corpus import are_known, client_requests, in_collection, recorded_requests
from support.wire_formats import RESPONSES
from wire.openai_responses.rule_cases import CLOSED, USER, ask, call, result, wanted

check_request = RESPONSES.check_request


def test_every_kind_of_broken_pair_has_its_rule() -> None:
    items = [call(id="fc_1"), USER, result("c2"), call("c3", id="fc_1"), result("c3")]
    found = [(each.rule, each.path) for each in check_request(ask(*items))]
    assert found == [("OR-10", "input[3].id"), ("OR-06", "input[0].call_id"), ("OR-07", "input[2].call_id")]
    continued = check_request(ask(*items, previous_response_id="resp_1"))
    assert [each.rule for each in continued] == ["OR-10", "OR-06"]
    assert check_request(ask(call(), call("c2"), USER, result("c2"), result())) == []


def test_an_output_may_answer_any_kind_of_call() -> None:
    search = {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {}}
    assert check_request(ask(search, result())) == []


def test_non_string_ids_break_only_their_own_rules() -> None:
    body = ask(call([1]), call({"a": 1}), result([1]), {**USER, "id": [1]})
    assert Counter(each.rule for each in check_request(body)) == {"OR-04": 2, "OR-05": 1, "OR-09": 1}


def test_a_deep_schema_is_checked_without_recursion() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}
    [found] = check_request(wanted(strict=True, schema={**CLOSED, "$defs": {"A": schema}}), advisories=True)
    assert found.rule == "OR-20"
    assert len(found.message) < 1000


# What other hosts of the format take although OpenAI refuses it, as their recorded 200 answers show.
NOT_ENFORCED = {
    "copilot": {"OR-09"},  # its item ids are opaque, and change from event to event
    "deepseek": {"OR-09"},  # bare UUIDs for reasoning
    "local": {"OR-14"},  # a private server, recognised by the model's name
}
# Refusals that no reading of the body explains: the model's name, the key, the account.
NOT_OF_THE_BODY = ("does not exist", "Model not found", "API key", "quota")
FORESEEN = {
    "1d7edaa7c934e421": "OR-15",
    "29872721b4927393": "OR-05",
    "46d07f6c39c40791": "OR-05",
    "7f5b3ce984a604b2": "OR-06",  # by advisory: DeepSeek wants the output beside its call
    "82119f3bfd1a40ff": "OR-20",
    "849cce06838f9d0d": "OR-05",
    "a6a04541f7975203": "OR-21",  # by advisory
    "fe10967f2d5c9e92": "OR-15",
}


def _host(record: dict[str, Any]) -> str:
    return "local" if record["vendor"] == "openai" and "/" in record["model"] else str(record["vendor"])


def test_accepted_requests_break_only_rules_their_host_does_not_enforce() -> None:
    accepted = [record for record in recorded_requests("openai-responses") if 200 <= record["status"] < 300]
    broken: dict[str, set[str]] = {}
    for record in accepted:
        broken.setdefault(_host(record), set()).update(each.rule for each in check_request(record["request"]))
    assert are_known({host: rules for host, rules in broken.items() if rules}, NOT_ENFORCED)
    assert len(accepted) >= in_collection(680)


def test_captured_client_requests_break_no_rule() -> None:
    bodies = list(client_requests("openai-responses"))
    assert [found for body in bodies if (found := check_request(body))] == []
    assert len(bodies) >= in_collection(35)


def test_provider_refusals_are_predicted() -> None:
    refused = [
        record
        for record in recorded_requests("openai-responses")
        if record["status"] == 400 and _blames_the_body(record["response"])
    ]
    caught = [record["id"] for record in refused if FORESEEN.get(record["id"]) in _rules(record["request"])]
    missed = sorted({record["id"] for record in refused} - set(caught))
    assert len(caught) >= in_collection(8), f"foreseen {len(caught)} of {len(refused)}, missed {missed}"


def _blames_the_body(answer: Any) -> bool:
    text = json.dumps(answer)
    return not any(other in text for other in NOT_OF_THE_BODY)


def _rules(body: Any) -> set[str]:
    return {each.rule for each in check_request(body, advisories=True)}
