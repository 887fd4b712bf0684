"""The everyday sample of a large table: it leaves out no pair of values, and most cases."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pairwise import Values, sample


@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.integers(1, 2))
def test_every_pair_of_values_is_in_the_sample(sizes: list[int], together: int) -> None:
    cases = [
        frozenset(combinations(((str(place), str(value)) for place, value in enumerate(case)), together))
        for case in product(*map(range, sizes))
    ]
    kept = sample(cases)
    everything: frozenset[Values] = frozenset().union(*cases)
    assert frozenset().union(*(cases[number] for number in kept)) == everything
    assert together == 2 or len(kept) == max(sizes)


@pytest.mark.pairwise
@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("second", range(3))
@pytest.mark.parametrize("third", range(3))
def test_cases_that_bring_nothing_new_are_slow(
    request: pytest.FixtureRequest, first: int, second: int, third: int
) -> None:
    names = {item.name for item in request.session.items if item.name.startswith("test_cases_that_bring_nothing_new")}
    slow = [item for item in request.session.items if item.name in names and item.get_closest_marker("slow")]
    assert 9 <= len(names) - len(slow) < 27, (first, second, third)
