"""Each rule has one entry: what the checks report and what the writer mentions is in the book of its format."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import antiphon.wire
from antiphon.wire import FORMATS
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.rules import Rule, RuleBook, RuleContext, Violation

WIRE = Path(antiphon.wire.__file__).parent
RULE_ID = re.compile(r"[A-Z]{2}-\d{2}")


def book_of(name: str) -> dict[str, Rule]:
    book = import_module(f"antiphon.wire.{name.replace('-', '_')}.rules").RULES
    assert isinstance(book, RuleBook)
    return book.rules


def strings_in(module: Path) -> Iterator[str]:
    """The strings of a module that are values, not documentation."""
    tree = ast.parse(module.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


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
    assert mentioned <= {*book, "OC-17"}  # Responses refers to the source of that rule
    assert len(mentioned) > 15


def test_a_rule_that_a_loss_mentions_has_a_fix(name: str) -> None:
    book = book_of(name)
    writers = [module for module in (WIRE / name.replace("-", "_")).glob("*.py") if module.name != "limits.py"]
    fixed = {
        rule for module in writers for text in strings_in(module) for rule in re.findall(r"\(([A-Z]{2}-\d{2})\)", text)
    }
    assert {rule for rule in fixed if book[rule].fix is None} == set()
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
