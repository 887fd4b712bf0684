"""Limits: what `fit` returns is accepted by the `check` of the same row, and what is accepted comes back as it was."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire import FORMATS
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.parameters import Parameter, ParameterTable
from antiphon.wire.rules import Checked
from antiphon.wire.rules.limits import Choice, Length, Pairs, Range, Texts

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
        (name, import_module(f"antiphon.wire.{name.replace('-', '_')}.parameters").PARAMETER_TABLE) for name in FORMATS
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
def test_what_fits_is_accepted_and_what_is_accepted_fits(row: Parameter, data: st.DataObject) -> None:
    value = data.draw(values_of(row))
    model = data.draw(st.sampled_from([Capabilities(), Capabilities(max_output_tokens=100, candidates=1)]))
    assert row.limit is not None
    losses: list[Loss] = []
    fitted = row.limit.fit(value, row.field, losses, model)
    assert fitted is None or problems(row, fitted, model) == []
    if not losses and fitted is not None and not isinstance(row.limit, Choice) and row.key != "metadata":
        assert fitted == (list(value) if isinstance(value, tuple) else value)
    assert all(row.limit.rule in loss.why for loss in losses if "not a number" not in loss.why)
