"""Remembered results: the same call, for a time, within limits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.tools import ResultCache, tool


@tool(effect="read", cache_seconds=10)
def look(query: str = "") -> str:
    return query


@tool(effect="read", cache_seconds=10)
def glance(query: str = "") -> str:
    return query


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def result(text: str = "x") -> ToolCallResult:
    return ToolCallResult.of(ToolCallRequest("look", "1"), text)


def test_the_same_call_is_the_same_json_of_the_same_tool() -> None:
    key = ResultCache.key
    assert key(look, {"a": 1, "b": {"d": 1, "c": 2}}) == key(look, {"b": {"c": 2, "d": 1}, "a": 1})
    assert key(look, {"a": 1}) != key(look, {"a": 2})
    assert key(look, {"a": 1}) != key(look, {"a": True})
    assert key(look, {"a": 1}) != key(glance, {"a": 1})
    assert key(look, {"a": [1, 2]}) != key(look, {"a": [2, 1]})


def test_time_runs_out() -> None:
    clock = Clock()
    cache = ResultCache(clock=clock)
    key = cache.key(look, {})
    cache.put(key, result(), 10)
    clock.now = 9.9
    assert cache.get(key) == result()
    clock.now = 10
    assert cache.get(key) is None
    assert len(cache) == 0


def test_least_recently_used_entries_are_evicted_first() -> None:
    cache = ResultCache(max_entries=2)
    one, two, three = (cache.key(look, {"q": number}) for number in range(3))
    cache.put(one, result(), 10)
    cache.put(two, result(), 10)
    cache.get(one)
    cache.put(three, result(), 10)
    assert cache.get(one) is not None
    assert cache.get(two) is None
    assert cache.get(three) is not None
    cache.clear()
    assert len(cache) == 0


def test_a_result_that_is_too_large_is_not_cached() -> None:
    cache = ResultCache(max_characters=100)
    key = cache.key(look, {})
    cache.put(key, result("x" * 200), 10)
    assert cache.get(key) is None


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 60), st.integers(1, 5), st.integers(0, 3))))
def test_the_bounds_hold_after_any_operations(steps: list[tuple[int, int, int, int]]) -> None:
    clock = Clock()
    cache = ResultCache(max_entries=4, max_characters=120, clock=clock)
    held: dict[Any, str] = {}
    for name, size, seconds, passed in steps:
        key = cache.key(look, {"q": name})
        text = "x" * size
        cache.put(key, result(text), seconds)
        held[key] = text
        clock.now += passed
        remembered = {key: found for key in held if (found := cache.get(key)) is not None}
        assert len(cache) <= 4
        assert sum(len(found.result_markdown) for found in remembered.values()) <= 120
        assert all(found.result_markdown == held[key] for key, found in remembered.items())
