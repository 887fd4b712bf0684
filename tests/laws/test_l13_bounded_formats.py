"""L13, bounded: twice the input is twice the work, for everything that reads, writes, repairs or checks a format.

The shapes are in `growing_formats`: requests and answers of any size that a client or a provider may send. Work is counted in
instructions of our own code, which is exact, and in the long run also in CPU time, because a list or string that is copied for
each element costs no instructions. A quadratic step makes the work four times as much.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from functools import cache

import pytest
from bench.budget.counts import instructions_of

from laws.growing_formats import answers, requests
from laws.growing_formats.requests import Shape, Work

MOST_INSTRUCTIONS = 2.1
MOST_TIME = 2.6  # a larger heap alone costs some of it
SIZE = 30
LONG_SIZE = 120
EVERYDAY_STEP = 5
MOST_MEASURED = 20_000
LONG_ENOUGH = 0.1
ONLY_IN_THE_LONG_RUN = ("check ", "repair for gemini", "repair for openai-responses", "layout ")


@pytest.fixture(autouse=True, scope="module")
def _small_heap() -> None:
    """Collections look only at what these tests make: each measurement begins with one, and other tests may have left much.

    What is frozen stays so: to unfreeze it would let every later test collect all that was imported, again and again.
    """
    gc.collect()
    gc.freeze()


@cache
def groups() -> dict[str, list[tuple[str, Shape]]]:
    """The shapes by what is done with them and in which format."""
    found: defaultdict[str, list[tuple[str, Shape]]] = defaultdict(list)
    for label, shape in (*requests.shapes(), *answers.shapes()):
        found[label.partition(":")[0]].append((label, shape))
    return found


EVERYDAY = [
    group for group in groups() if not group.startswith(ONLY_IN_THE_LONG_RUN) and not group.endswith(", repaired")
]


def growth_of_instructions(shape: Shape, size: int) -> float:
    once, twice = shape(size), shape(2 * size)
    for work in (once, twice):
        work()  # imports and caches
    return instructions_of(twice) / max(instructions_of(once), 1)


def everyday_shapes(group: str) -> list[tuple[str, Shape]]:
    """Every fifth shape of a group, each group starting at another one: each shape is read or written in some format."""
    shapes = groups()[group]
    return (
        shapes if len(shapes) <= EVERYDAY_STEP else shapes[list(groups()).index(group) % EVERYDAY_STEP :: EVERYDAY_STEP]
    )


def too_many_instructions(shapes: list[tuple[str, Shape]], size: int) -> dict[str, float]:
    """The shapes that grow too much, also at a larger size: there is a step where a short road ends."""
    found: dict[str, float] = {}
    for label, shape in shapes:
        growth = growth_of_instructions(shape, size)
        if growth > MOST_INSTRUCTIONS and (growth := growth_of_instructions(shape, 5 * size)) > MOST_INSTRUCTIONS:
            found[label] = round(growth, 2)
    return found


@pytest.mark.parametrize("group", EVERYDAY)
def test_twice_the_input_is_twice_the_instructions(group: str) -> None:
    assert too_many_instructions(everyday_shapes(group), SIZE) == {}


@pytest.mark.slow
@pytest.mark.parametrize("group", list(groups()))
def test_twice_the_input_is_twice_the_instructions_in_every_shape(group: str) -> None:
    assert too_many_instructions(groups()[group], LONG_SIZE) == {}


def seconds(work: Work, times: int) -> float:
    """The least CPU time of a few runs."""
    least = float("inf")
    for _ in range(times):
        gc.collect()
        gc.disable()
        try:
            started = time.process_time()
            work()
            least = min(least, time.process_time() - started)
        finally:
            gc.enable()
    return least


def growth_of_time(shape: Shape) -> float:
    """How much longer twice the input takes, at a size that takes long enough; the least of several attempts."""
    few = 500
    work = shape(few)
    work()
    size = max(few, min(MOST_MEASURED, int(few * LONG_ENOUGH / max(seconds(work, 1), 1e-6))))
    once, twice = shape(size), shape(2 * size)
    least_once = least_twice = growth = float("inf")
    for times in (1, 2, 3, 4):
        least_once = min(least_once, seconds(once, times))
        least_twice = min(least_twice, seconds(twice, times))
        growth = min(growth, least_twice / least_once)
        if growth <= MOST_TIME:
            break
    return growth


@pytest.mark.slow
@pytest.mark.parametrize("group", list(groups()))
def test_twice_the_input_takes_twice_as_long(group: str) -> None:
    grown = {label: growth_of_time(shape) for label, shape in groups()[group]}
    assert {label: round(growth, 2) for label, growth in grown.items() if growth > MOST_TIME} == {}


COPIED = (
    "read a stream of openai-chat: log probabilities",
    "read a stream of openai-chat: a name in every fragment",
    "read a stream of openai-chat: reasoning details",
    "read a stream of anthropic: an unknown block that grows",
    "read a stream of gemini: a string in pieces",
    "read a stream of openai-responses: a text that ends again and again",
    "write a stream of anthropic: a call of blanks",
)
"""Shapes whose lists or strings were copied for each element: the clock sees it, and instructions do not."""


@pytest.mark.parametrize("label", COPIED)
def test_pieces_of_a_stream_are_not_copied_for_each_piece(label: str) -> None:
    shape = dict(groups()[label.partition(":")[0]])[label]
    assert growth_of_time(shape) <= MOST_TIME
