"""A table of cases in one test: every case runs, and each that fails is named."""

from __future__ import annotations

import inspect

import pytest

from support.cases import each_case


def test_every_combination_of_stacked_tables_runs() -> None:
    seen = []

    @each_case("one", [1, 2])
    @each_case(("two", "three"), [("a", "b"), ("c", "d")])
    def run(one: int, two: str, three: str, fixture: object) -> None:
        seen.append((one, two, three, fixture))

    assert list(inspect.signature(run).parameters) == ["fixture"]
    run(fixture=None)
    assert seen == [(1, "a", "b", None), (1, "c", "d", None), (2, "a", "b", None), (2, "c", "d", None)]


def test_each_failed_case_is_named_and_the_others_run() -> None:
    seen = []

    @each_case("number", [1, 2, 3])
    def run(number: int) -> None:
        seen.append(number)
        assert number == 2, "only two is right"

    with pytest.raises(AssertionError, match=r"(?s)2 of 3 cases failed.*number=1.*only two is right.*number=3"):
        run()
    assert seen == [1, 2, 3]


def test_an_empty_table_is_an_error() -> None:
    with pytest.raises(AssertionError, match="there are no cases"):
        each_case("number", [])
