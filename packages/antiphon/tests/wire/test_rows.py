"""The law of rows: a rule is one row, which the writer keeps and the checker reports.

What the `fit` of a limit returns is accepted by its `check`, what is accepted comes back as the same object, and a loss names the
rule. What the `fix` of a rule about several values leaves has nothing that its `find` finds.
"""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.wire import FORMATS, formats
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.parameters import UNSET, Choice, Length, Pairs, Parameter, ParameterTable, Range, Texts
from antiphon.wire.rules import Checked
from antiphon.wire.rules.book import CrossRule

TEXTS = st.text(max_size=6) | st.sampled_from(["", " ", "x" * 600])
VALUES: dict[type, st.SearchStrategy[Any]] = {
    Range: st.integers(-10, 70_000) | st.floats(-10, 70_000) | st.just(float("nan")),
    Texts: st.lists(TEXTS, max_size=9).map(tuple),
    Pairs: st.dictionaries(TEXTS.map(str.strip), TEXTS | st.integers(), max_size=20),
    Length: TEXTS,
    Choice: st.sampled_from(["auto", "default", "standard_only", "flex", "x"]),
}


class Target:
    """What Anthropic's rows ask beside the model."""

    is_version_2026_10 = False


def limited_rows() -> list[Any]:
    tables: list[tuple[str, ParameterTable]] = [
        (name, import_module(f"antiphon.wire.{name.replace('-', '_')}.limits").PARAMETER_TABLE) for name in FORMATS
    ]
    return [
        pytest.param(row, id=f"{name} {row.key}")
        for name, table in tables
        for row in table.rows
        if row.limit is not None
    ]


def values_of(row: Parameter) -> st.SearchStrategy[Any]:
    kind = next((kind for kind in VALUES if isinstance(row.limit, kind)), Length)
    if isinstance(row.limit, Range) and row.limit.is_whole:
        return st.integers(-10, 70_000)
    return VALUES[kind] if row.field != "seed" else st.integers(-(2**40), 2**40)


def problems(row: Parameter, value: Any, model: Capabilities) -> list[Any]:
    assert row.limit is not None
    found = Checked({}, model, target=Target())
    row.limit.check(list(value) if isinstance(value, tuple) else value, (None, row.key), found)
    return found.violations


@pytest.mark.parametrize("row", limited_rows())
@given(data=st.data())
def test_a_fitted_value_is_accepted_and_an_accepted_value_is_unchanged(row: Parameter, data: st.DataObject) -> None:
    value = data.draw(values_of(row))
    model = data.draw(st.sampled_from([Capabilities(), Capabilities(max_output_tokens=100, candidates=1)]))
    assert row.limit is not None
    losses: list[Loss] = []
    fitted = row.limit.fit(value, row.field, losses, model)
    assert fitted is None or problems(row, fitted, model) == []
    is_cut_by_the_api = row.field == "seed" and not -(2**31) <= value < 2**31
    if (
        not is_cut_by_the_api
        and problems(row, value, model) == []
        and (not isinstance(row.limit, Choice) or row.limit.is_own(value))
    ):
        is_none = isinstance(row.limit, Range) and row.limit.unset == "drop" and value == UNSET
        assert fitted is value or is_none
        assert losses == []
    assert all(row.limit.rule in loss.why for loss in losses)


def crossing_rows() -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name} {row.rule} {row.find.__qualname__}")
        for name in FORMATS
        for row in import_module(f"antiphon.wire.{name.replace('-', '_')}.rules").RULES.crossing
        if row.fix is not None
    ]


def found_in(row: CrossRule, body: dict[str, Any], writer: Any) -> list[Any]:
    return list(row.find(body, Checked(body, writer.model, target=getattr(writer, "target", None))))


@pytest.mark.parametrize(("name", "row"), crossing_rows())
def test_nothing_is_found_after_the_fix(name: str, row: CrossRule) -> None:
    """Each body that breaks the rule, of the cases of the format, is fixed as if it had just been written."""
    cases = [case for case in import_module(f"wire.{name.replace('-', '_')}.rule_cases").CASES if case.rule == row.rule]
    fixed = 0
    for case in cases:
        wire, body = formats[name], deepcopy(case.broken)
        try:
            request = wire.read_request(deepcopy(case.broken))
        except WireError:  # not a request at all, so it is never written
            continue
        writer = wire.request_writer(request, Losses(), case.options)
        if found_in(row, body, writer):
            for index, message in enumerate(request.messages):
                writer.add(index, message)
            writer.losses.clear()
            assert row.fix is not None
            row.fix(body, writer)
            assert found_in(row, body, writer) == []
            assert all(row.rule in loss.why for loss in writer.losses)
            fixed += 1
    assert fixed > 0
