"""What the suite writes as Gemini Interactions fits the published specification: requests, answers and events."""

from __future__ import annotations

import json

import pytest

from antiphon_devtools.conform.case import Case, load_cases
from antiphon_devtools.conform.formats import gemini_interactions
from antiphon_devtools.conform.rules import violations
from support.interactions_spec import EVENT, INTERACTION, problems, request_problems

VALID = [case for case in load_cases() if case.group in ("clean", "answers")]


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.id)
def test_requests_answers_and_events_fit_the_specification(case: Case) -> None:
    body = json.loads(json.dumps(gemini_interactions.write_request(case.dialogue, "gemini-2.5-flash", True)))
    assert violations("gemini-interactions", body) == []
    assert request_problems(body) == []
    assert problems(INTERACTION, gemini_interactions.write_answer(case.answer, "gemini-2.5-flash")) == []
    *events, done = gemini_interactions.write_events(case.answer, "gemini-2.5-flash")
    for event in events:
        assert problems(EVENT, json.loads(event.partition(b"data: ")[2])) == []
    assert done == b"event: done\ndata: [DONE]\n\n"


def test_errors_fit_the_specification() -> None:
    assert problems("Error", gemini_interactions.write_error(404, "no such model")["error"]) == []
    assert problems(EVENT, json.loads(gemini_interactions.error_event("busy").partition(b"data: ")[2])) == []
