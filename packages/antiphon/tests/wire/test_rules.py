"""The rules of every format: one entry per rule, its cases, and bodies that no check may fail on.

The cases of each format are in its folder (`rule_cases.py`): `CASES` and `ADVICE`, the `WORDS` of the bodies, and the
`OPTIONS` under which a body is checked, if there are several.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import antiphon.wire
from antiphon.wire import FORMATS, formats
from antiphon.wire.format import DEFAULT_OPTIONS
from antiphon.wire.rules import STRING, Object, Violation
from antiphon.wire.rules.book import CrossRule, RuleBook
from support.cases import each_case
from support.examples import scaled
from support.rule_cases import (
    AWKWARD_VALUES,
    Case,
    CheckRequest,
    any_bodies,
    assert_advised_on_demand,
    assert_awkward_value_is_reported,
    assert_check_only_reports,
    assert_only_this_rule_is_broken,
)

WIRE = Path(antiphon.wire.__file__).parent
RULE_ID = re.compile(r"[A-Z]{2}-\d{2}")


def book_of(name: str) -> Mapping[str, str]:
    book = import_module(f"antiphon.wire.{name.replace('-', '_')}.rules").RULES
    assert isinstance(book, RuleBook)
    return book.sources


def check_of(name: str) -> CheckRequest:
    check: CheckRequest = import_module(f"antiphon.wire.{name.replace('-', '_')}.rules").check_request
    return check


def cases_of(name: str) -> Any:
    return import_module(f"wire.{name.replace('-', '_')}.rule_cases")


def short_bodies(name: str) -> list[Any]:
    """Legal bodies and broken ones, without the few that are large."""
    cases = [*cases_of(name).CASES, *cases_of(name).ADVICE]
    return [case.legal for case in cases] + [case.broken for case in cases if len(str(case.broken)) < 2_000]


@cache
def bodies_of(name: str) -> st.SearchStrategy[Any]:
    return any_bodies(short_bodies(name), cases_of(name).WORDS, formats[name].spec.messages_key)


@each_case(("name", "case"), [(name, case) for name in FORMATS for case in cases_of(name).CASES])
def test_a_broken_rule_is_found_and_the_nearest_legal_body_is_clean(name: str, case: Case) -> None:
    assert_only_this_rule_is_broken(check_of(name), case)


@each_case(("name", "case"), [(name, case) for name in FORMATS for case in cases_of(name).ADVICE])
def test_an_advisory_is_given_on_demand(name: str, case: Case) -> None:
    assert_advised_on_demand(check_of(name), case)


@pytest.mark.parametrize("name", FORMATS)
def test_every_rule_of_the_book_has_a_case(name: str) -> None:
    assert {case.rule for case in [*cases_of(name).CASES, *cases_of(name).ADVICE]} == set(book_of(name))


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(max_examples=scaled(25), deadline=None)
def test_no_body_makes_the_check_fail(name: str, data: st.DataObject) -> None:
    body = data.draw(bodies_of(name))
    for options in getattr(cases_of(name), "OPTIONS", [DEFAULT_OPTIONS]):
        assert_check_only_reports(check_of(name), body, options)


@pytest.mark.parametrize("value", AWKWARD_VALUES, ids=repr)
@pytest.mark.parametrize("name", FORMATS)
def test_no_value_anywhere_in_a_body_makes_the_check_fail(name: str, value: Any) -> None:
    legal = [case.legal for case in [*cases_of(name).CASES, *cases_of(name).ADVICE]]
    assert_awkward_value_is_reported(check_of(name), [body for body in legal if len(str(body)) < 2_000], value)


def strings_in(module: Path) -> Iterator[str]:
    """The strings of a module that are values, not documentation."""
    tree = ast.parse(module.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


HOST_RULES = {"DS-01"}
"""Rules of hosts, which the dialects of several formats keep."""


@pytest.fixture(params=FORMATS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_rule_id_in_the_code_of_a_format_is_in_its_book(name: str) -> None:
    book = book_of(name)
    mentioned = {
        rule
        for module in (WIRE / name.replace("-", "_")).rglob("*.py")
        for text in strings_in(module)
        for rule in RULE_ID.findall(text)
    }
    assert mentioned <= {*book, "OC-17", *HOST_RULES}  # Responses refers to the source of that rule
    assert len(mentioned) > 15


def test_a_book_has_a_row_and_a_source_for_every_rule() -> None:
    row = Object(rule="XX-01", fields={"a": STRING})
    advice = (CrossRule("XX-02", lambda body, _: [("b", "risky")] if "b" in body else []),)
    with pytest.raises(ValueError, match="XX-03"):
        RuleBook("openai-chat", {"XX-01": "here", "XX-02": "here", "XX-03": "nowhere"}, row, advice=advice)
    with pytest.raises(ValueError, match="XX-02"):
        RuleBook("openai-chat", {"XX-01": "here"}, row, advice=advice)
    book = RuleBook("openai-chat", {"XX-01": "here", "XX-02": "here"}, row, advice=advice)
    body = {"a": 1, "b": 2}
    errors = [Violation("XX-01", "a", "expected a string, got an integer"), Violation("XX-01", "b", "unknown field")]
    assert book.check_request(body) == errors
    advised = Violation("XX-02", "b", "risky", advisory=True)
    assert book.check_request(body, advisories=True) == [*errors, advised]
    assert book.check_request([]) == [Violation("XX-01", "", "expected an object, got an array")]
