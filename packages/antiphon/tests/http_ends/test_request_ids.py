"""Ids of requests: each greater than the one before, and like those of everything else."""

from __future__ import annotations

from itertools import islice, pairwise

from antiphon.http.request_ids import new_request_ids
from antiphon.ids import is_id


def test_ids_grow_and_are_ids_across_blocks() -> None:
    ids = list(islice(new_request_ids(), 3000))
    assert all(map(is_id, ids))
    assert all(first < second for first, second in pairwise(ids))


def test_request_ids_of_two_generators_differ() -> None:
    first, second = (set(islice(new_request_ids(), 2000)) for _ in range(2))
    assert not first & second
