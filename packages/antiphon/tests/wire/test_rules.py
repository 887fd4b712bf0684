"""The rules of every format: one entry per rule, its cases, and bodies that no check may fail on.

The cases of each format are in its folder (`rule_cases.py`): `CASES` and `ADVICE`, the `WORDS` of the bodies, and the
`OPTIONS` under which a body is checked, if there are several.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import antiphon.wire
from antiphon.wire import FORMATS, formats
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.format import DEFAULT_OPTIONS
from antiphon.wire.rules import Rule, RuleBook, RuleContext, Violation
from support.examples import at_least
from support.rule_cases import (
    AWKWARD_VALUES,
    Case,
    CheckRequest,
    any_bodies,
    assert_advised_on_demand,
    assert_awkward_value_is_reported,
    assert_check_only_reports,
    assert_only_this_rule_is_broken,
    label,
)

WIRE = Path(antiphon.wire.__file__).parent
RULE_ID = re.compile(r"[A-Z]{2}-\d{2}")


def book_of(name: str) -> dict[str, Rule]:
    book = import_module(f"antiphon.wire.{name.replace('-', '_')}.rules").RULES
    assert isinstance(book, RuleBook)
    return book.rules


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
    return any_bodies(short_bodies(name), cases_of(name).WORDS, formats[name].module.messages_key)


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in FORMATS for case in cases_of(name).CASES], ids=label
)
def test_a_broken_rule_is_found_and_the_nearest_legal_body_is_clean(name: str, case: Case) -> None:
    assert_only_this_rule_is_broken(check_of(name), case)


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in FORMATS for case in cases_of(name).ADVICE], ids=label
)
def test_an_advisory_is_given_on_demand(name: str, case: Case) -> None:
    assert_advised_on_demand(check_of(name), case)


@pytest.mark.parametrize("name", FORMATS)
def test_every_rule_of_the_book_has_a_case(name: str) -> None:
    assert {case.rule for case in [*cases_of(name).CASES, *cases_of(name).ADVICE]} == set(book_of(name))


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(max_examples=at_least(100), deadline=None)
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


def test_a_rule_that_a_loss_mentions_has_a_fix(name: str) -> None:
    book = book_of(name)
    writers = [module for module in (WIRE / name.replace("-", "_")).glob("*.py") if module.name != "limits.py"]
    fixed = {
        rule for module in writers for text in strings_in(module) for rule in re.findall(r"\(([A-Z]{2}-\d{2})\)", text)
    }
    assert {rule for rule in fixed - HOST_RULES if book[rule].fix is None} == set()
    assert len(fixed) > 4


def test_checks_are_in_the_rules_and_fixes_in_the_writer(name: str) -> None:
    package = f"antiphon.wire.{name.replace('-', '_')}.rules"
    for rule in book_of(name).values():
        assert rule.check.__module__.startswith(package), rule.id
        assert rule.fix is None or not str(getattr(rule.fix, "__module__", "")).startswith(package), rule.id
        assert rule.source, rule.id


def test_a_check_of_several_rules_runs_once_and_advisories_are_left_out_unless_wanted() -> None:
    runs: list[str] = []

    def first(context: RuleContext) -> None:
        runs.append("first")
        context.error("XX-01", "a", "wrong")
        context.advise("XX-02", "b", "risky")

    def second(context: RuleContext) -> None:
        runs.append("second")

    book = RuleBook(
        Rule("XX-01", first, None, "here"), Rule("XX-03", second, None, "here"), Rule("XX-02", first, None, "here")
    )
    error, advisory = Violation("XX-01", "a", "wrong"), Violation("XX-02", "b", "risky", advisory=True)
    assert book.check(RuleContext({}, Capabilities())) == [error]
    assert runs == ["first", "second"]
    assert book.check(RuleContext({}, Capabilities(), advisories=True)) == [error, advisory]
