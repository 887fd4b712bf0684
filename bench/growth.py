"""Cost as work grows: the same work at 1, 10 and 100 times its size, in turns, and the slope. Nothing of ours is above linear.

Translations are at 10, 200 and 2,000 messages, bytes to bytes, without tools (those are the same at every size); their floor,
msgspec decoding and encoding the same bytes, stands beside them. The loop and the disk have their growths in their own groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from antiphon.wire import FORMATS
from bench import hot_paths as hot
from bench.figures import STEEPEST, Growth, in_turns, timed
from bench.loop import WIRED
from bench.tokens import counting, history_of

FEWEST, MOST = 3, 9
"""Runs: as many as fit into `SECONDS`, within these."""
SECONDS = 6.0
MESSAGES = (10, 200, 2_000)
PAIRS = (
    ("openai-chat", "anthropic"),
    ("anthropic", "openai-chat"),
    ("openai-chat", "openai-responses"),
    ("openai-responses", "openai-chat"),
    ("openai-chat", "gemini"),
    ("gemini", "openai-chat"),
)
LEAST_SECONDS = 0.004
"""A run that is shorter is repeated inside of itself: clocks and caches tell too little of it."""


def figures() -> Iterator[Growth]:
    for source, target in PAIRS:
        yield grown(f"{source} to {target}", "messages", MESSAGES, partial(hot.translating, source, target))
    for source in ("openai-chat", "anthropic"):
        floor = partial(hot.decoding_and_encoding, source)
        yield grown(f"msgspec alone, {source}", "messages", MESSAGES, floor, at_most=None)
    for name in FORMATS:
        yield grown(f"assembling a stream, {name}", "events", (200, 2_000, 20_000), partial(hot.streaming, name))
    yield grown("append in memory", "entries", (100, 1_000, 10_000), hot.appending)
    yield grown("durable append", "entries", (50, 500, 5_000), hot.appending_to_a_file)
    for name in FORMATS:
        yield grown(f"rendering round by round, {name}", "rounds", (5, 50, 500), partial(hot.rendering, name))
    for preset in WIRED:
        yield grown(f"the loop through {preset}'s client", "rounds", (5, 50, 500), partial(hot.wired, preset))
    yield grown("repair of a legal history", "messages", (100, 1_000, 10_000), hot.repairing_what_is_legal)
    yield grown("repair of a broken history", "messages", (100, 1_000, 10_000), hot.repairing_what_is_broken)
    yield grown("counting tokens", "messages", (201, 2_001, 20_001), lambda size: counting(history_of(size)))
    yield grown("gateway, an agent's request", "messages", (21, 201, 2_001), hot.handling)


def grown(
    name: str,
    sized: str,
    sizes: tuple[int, ...],
    ready: Callable[[int], Callable[[], object]],
    *,
    at_most: float | None = STEEPEST,
) -> Growth:
    """The whole cost at each size, in milliseconds."""
    work = {size: ready(size) for size in sizes}
    once = {size: min(timed(one), timed(one)) for size, one in work.items()}
    repeats = {size: max(1, round(LEAST_SECONDS / max(seconds, 1e-6))) for size, seconds in once.items()}
    runs = max(FEWEST, min(MOST, round(SECONDS / sum(once[size] * repeats[size] for size in sizes))))
    taken = in_turns({size: _repeated(one, repeats[size]) for size, one in work.items()}, runs=runs)
    costs: Mapping[int, float] = {size: 1e3 / repeats[size] for size in sizes}
    return Growth.of(name, sized, {size: taken[size].scaled(costs[size]) for size in sizes}, "ms", at_most=at_most)


def _repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated
