"""The everyday part of a large table of cases: every two values of different parameters meet in at least one case.

A test that is marked `pairwise` runs with all its cases in `make test-all`. The everyday run has a sample that contains each
pair of values (this client with that provider, this fault with that client, …); most defects need no more than two. Where a law
or a test without sockets covers the pairs, `pairwise(1)` keeps a sample that contains each value once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest

Values = tuple[tuple[str, str], ...]
"""Some parameters of a case with their values."""


def mark_others_slow(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of tests marked `pairwise` that bring nothing new as slow."""
    tables: dict[tuple[str, str], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("pairwise") and hasattr(item, "callspec"):
            tables[str(item.path), item.originalname].append(item)
    for cases in tables.values():
        kept = sample([values_of(case) for case in cases])
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.slow)


def values_of(case: pytest.Function) -> frozenset[Values]:
    """The pairs of values in a case. A value that cannot be named is known by its identity."""
    marker = case.get_closest_marker("pairwise")
    together = marker.args[0] if marker is not None and marker.args else 2
    values = [
        (name, repr(value) if isinstance(value, (str, int, float, bool, type(None))) else f"#{id(value)}")
        for name, value in sorted(case.callspec.params.items())
    ]
    return frozenset(combinations(values, min(together, len(values))))


def sample(cases: Sequence[frozenset[Values]]) -> set[int]:
    """The numbers of cases that contain all of these: always the one with the most that are new."""
    missing = set().union(*cases)
    kept: set[int] = set()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(cases[number] & missing))
        kept.add(best)
        missing -= cases[best]
    return kept
