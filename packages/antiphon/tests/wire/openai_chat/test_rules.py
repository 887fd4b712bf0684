"""The rules of Chat Completions: each with the smallest body that breaks it and the nearest body that does not."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from support.corpus import are_known, client_requests, in_collection, recorded_requests
from support.wire_formats import CHAT
from wire.openai_chat.rule_cases import SAYS, USER, asks, call, chat, result, tool, tools

check_request = CHAT.check_request


def test_every_kind_of_broken_order_has_its_rule() -> None:
    messages = [
        USER,
        asks(call(), call("c2")),
        result(),
        USER,
        result("c2"),
        asks(call("c3")),
        result("c3"),
        result("c3"),
    ]
    found = [(each.rule, each.path) for each in check_request(chat(*messages))]
    assert found == [
        ("OC-03", "messages[1].tool_calls"),
        ("OC-04", "messages[4].role"),
        ("OC-05", "messages[7].tool_call_id"),
    ]
    assert check_request(chat(USER, asks(call()), result(), SAYS, USER)) == []


def test_non_string_ids_break_only_their_own_rules() -> None:
    body = chat(USER, asks(call([1]), call({"a": 1})), result([1]), result({"a": 1}))
    assert Counter(each.rule for each in check_request(body)) == {"OC-07": 2, "OC-04": 2}


def test_a_deep_schema_is_checked_without_recursion() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(10_000):
        schema = {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}
    [found] = check_request(tools(tool(strict=True, parameters=schema)), advisories=True)[:1]
    assert found.rule == "OC-17"
    assert len(found.message) < 1000


# What other vendors' APIs take although OpenAI refuses it, as their recorded 200 answers show.
NOT_ENFORCED = {
    "cerebras": {"OC-26"},  # clear_thinking
    "deepseek": {"OC-26"},  # thinking
    "gpustack": {"OC-26"},  # enable_thinking
    "groq": {"OC-26"},  # reasoning_format, search_settings
    "huggingface": {"OC-14"},  # an empty list of tools
    "mistral": {"OC-06", "OC-11", "OC-12", "OC-15", "OC-16", "OC-18", "OC-26"},  # MI-02 says which shapes it adds
    "ollama": {"OC-03", "OC-26"},  # a call without an answer; keep_alive, options, enable_thinking
    "openrouter": {"OC-12", "OC-15", "OC-17", "OC-26"},  # video_url, its own tools, Gemini's schemas, provider
    "perplexity": {"OC-26"},  # search_context_size, return_related_questions
    "together": {"OC-18", "OC-26"},  # function_call without functions; top_k
    "venice": {"OC-26"},  # venice_parameters
    "zai": {"OC-26"},  # thinking
}
# Refusals that no reading of the body explains: the model's name, the key, the web, the model's own answer.
NOT_OF_THE_BODY = (
    "model names",
    "Invalid model",
    "does not exist",
    "API key",
    "downloading",
    "tool_use_failed",
    "quota",
)
FORESEEN = {
    "0607cab242610810": "OC-20",
    "0d187c0e6510dc56": "OC-26",
    "1d2038ffca3eeba5": "OC-20",
    "382f7cacaca97ada": "OC-02",
    "3eb8e7d9bcfa7955": "OC-12",  # by advisory: DeepSeek reads text only
    "49632ff9f0debc56": "OC-17",
    "52b1fd8b6e2080e6": "OC-12",
    "75f0ce0c21a02052": "OC-01",
    "82c407b772281b05": "OC-02",
    "8fbe600b861ace7e": "OC-12",
    "903b34a2a6d82481": "OC-20",
    "a2a2cbdb7c94341a": "OC-26",
    "a877beb33ff64a23": "OC-20",
    "af2e4b819cc4c876": "OC-12",  # by advisory
    "bcb13411eb7a2079": "OC-12",  # by advisory
    "d13b6d003687615e": "OC-13",
    "f5d9d631f6377221": "OC-11",
}


def test_requests_that_openai_accepted_break_no_rule() -> None:
    accepted = [record for record in recorded_requests("openai-chat") if 200 <= record["status"] < 300]
    flagged = {record["id"]: found for record in accepted if (found := check_request(record["request"]))}
    assert flagged == {}
    assert len(accepted) >= in_collection(633)


def test_requests_that_other_vendors_accepted_break_only_rules_they_do_not_enforce() -> None:
    broken: dict[str, set[str]] = {}
    for record in recorded_requests("openai_compatible"):
        if 200 <= record["status"] < 300:
            broken.setdefault(record["vendor"], set()).update(each.rule for each in check_request(record["request"]))
    assert are_known({vendor: rules for vendor, rules in broken.items() if rules}, NOT_ENFORCED)


def test_captured_client_requests_break_no_rule() -> None:
    bodies = list(client_requests("openai-chat"))
    assert [found for body in bodies if (found := check_request(body))] == []
    assert len(bodies) >= in_collection(26)


def test_provider_refusals_are_predicted() -> None:
    records = [*recorded_requests("openai-chat"), *recorded_requests("openai_compatible")]
    refused = [record for record in records if record["status"] == 400 and _blames_the_body(record["response"])]
    caught = [record["id"] for record in refused if FORESEEN.get(record["id"]) in _rules(record["request"])]
    missed = sorted({record["id"] for record in refused} - set(caught))
    assert len(caught) >= in_collection(17), f"foreseen {len(caught)} of {len(refused)}, missed {missed}"


def _blames_the_body(answer: Any) -> bool:
    text = json.dumps(answer)
    return not any(other in text for other in NOT_OF_THE_BODY)


def _rules(body: Any) -> set[str]:
    return {each.rule for each in check_request(body, advisories=True)}
