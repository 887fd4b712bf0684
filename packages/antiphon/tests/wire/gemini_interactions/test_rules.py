"""The rules of the Interactions API, beside what `wire/test_rules.py` asserts of every format's rules."""

from __future__ import annotations

from typing import Any

import pytest

from support.interactions_spec import request_problems
from support.rule_cases import Case, label
from wire.gemini_interactions.bodies import WIRE
from wire.gemini_interactions.rule_cases import SPECIFIED


@pytest.mark.parametrize("case", SPECIFIED, ids=label)
def test_the_specification_refuses_the_broken_body_too(case: Case) -> None:
    assert request_problems(case.broken) != []
    assert request_problems(case.legal) == []


@pytest.mark.parametrize("body", [None, 5, [], "x", {}])
def test_anything_can_be_checked(body: Any) -> None:
    assert WIRE.check_request(body)[0].rule == "GI-01"
