"""The judge's rules against ours: two sets of checks that share no code must agree about the same bodies."""

from __future__ import annotations

import json

import pytest

from antiphon.wire import formats
from antiphon_devtools.conform.case import load_cases
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.rules import sources, violations
from support.corpus import accepted_requests, client_requests, in_collection
from support.rule_cases import Case
from wire.anthropic import rule_cases as anthropic
from wire.gemini import rule_cases as gemini
from wire.gemini_interactions import rule_cases as gemini_interactions
from wire.openai_chat import rule_cases as openai_chat
from wire.openai_responses import rule_cases as openai_responses

CASES: dict[str, list[Case]] = {
    "openai-chat": openai_chat.CASES,
    "openai-responses": openai_responses.CASES,
    "anthropic": anthropic.CASES,
    "gemini": gemini.CASES,
    "gemini-interactions": gemini_interactions.CASES,
}

SEQUENCE = {
    *("OC-03", "OC-04", "OC-05", "OC-14"),
    *("OR-07", "OR-08", "OR-14"),
    *("AN-04", "AN-05", "AN-08", "AN-09"),
    *("GM-02", "GM-03", "GM-05", "GM-06", "GM-07", "GM-10"),
    *("GI-01", "GI-03", "GI-04", "GI-05", "GI-08", "GI-09", "GI-10", "GI-11", "GI-14"),
}
"""The rules that repairs are about: the judge must find every body that breaks one."""

OTHER_HOSTS = {"anthropic_version"}
"""Fields of Bedrock's and Vertex's bodies, which the judge's API does not take."""


def path_of(model: str) -> str:
    return f"/v1beta/models/{model or 'gemini-2.5-flash'}:generateContent"


@pytest.mark.parametrize("name", FORMATS)
def test_the_judge_reports_broken_bodies_and_no_legal_ones(name: str) -> None:
    wrong = []
    for case in CASES[name]:
        path = path_of(case.options.model)
        is_of_another_host = isinstance(case.legal, dict) and bool(OTHER_HOSTS & case.legal.keys())
        reported = violations(name, case.legal, path)
        if reported and not is_of_another_host:
            wrong.append((case.rule, "legal", reported))
        if case.rule in SEQUENCE and case.rule not in [each.rule for each in violations(name, case.broken, path)]:
            wrong.append((case.rule, "broken, but not reported", case.broken))
    assert wrong == []


@pytest.mark.parametrize("name", FORMATS)
def test_violations_that_the_judge_finds_in_recorded_requests_are_found_by_our_rules(name: str) -> None:
    count = 0
    for body in (*accepted_requests(name), *client_requests(name)):
        count += 1
        judged = [each for each in violations(name, body, path_of("")) if each.where not in OTHER_HOSTS]
        if judged:
            ours = {each.rule for each in formats[name].check_request(body)}
            assert ours & {each.rule for each in judged}, judged
    assert count > in_collection(500)


@pytest.mark.parametrize("name", FORMATS)
def test_both_sets_of_rules_accept_the_same_cases_of_the_suite(name: str) -> None:
    """The suite's own requests: valid for the judge exactly if they are valid for our rules."""
    model = {"openai-chat": "gpt-4o", "openai-responses": "gpt-4o", "anthropic": "claude-sonnet-4-5"}.get(
        name, "gemini-2.5-flash"
    )
    differing = []
    for case in load_cases():
        if case.clients and name not in case.clients:
            continue
        written = FORMATS[name].write_request(case.dialogue, model, False) | case.bodies.get(name, {})
        body = json.loads(json.dumps(written))
        ours = formats[name].check_request(body)
        judged = violations(name, body, path_of(model))
        if bool(ours) != bool(judged):
            differing.append((case.id, ours, judged))
    assert differing == []


def test_the_judge_counts_cache_breakpoints() -> None:
    broken = [case.broken for case in CASES["anthropic"] if case.rule == "AN-18"]
    reported = [body for body in broken if "AN-18" in [each.rule for each in violations("anthropic", body)]]
    assert len(reported) == 4, "too many, an hour after five minutes, on thinking, on empty text"


def test_every_rule_of_the_judge_has_a_source() -> None:
    used = {
        each.rule
        for name, cases in CASES.items()
        for case in cases
        for each in violations(name, case.broken, path_of(case.options.model))
    }
    assert used <= sources().keys()
    assert len(used) > 40
    assert all(each.source and each.rule for each in sources().values())
