"""Cost as the work grows: the same work at 1, 10 and 100 times its size, run alternately, and its slope. Nothing may be more than
linear.

Translations are at 10, 200 and 2,000 messages, bytes to bytes, without tools, which are the same at every size. Their floor is
msgspec decoding and encoding the same bytes. The groups `rounds` and `disk` have growths of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from antiphon.wire import FORMATS
from bench.budget import hot_paths as hot
from bench.library.loop import CLIENT_MODELS
from bench.library.tokens import counting, history_of
from bench.measure.figures import STEEPEST, Growth, run_alternately, time_once

FEWEST_RUNS, MOST_RUNS = 3, 9
"""As many runs as fit into `SECONDS`, within these limits."""
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
"""Shorter work is repeated within a run: the clock is too coarse for it."""


def figures() -> Iterator[Growth]:
    for source, target in PAIRS:
        yield measure_growth(f"{source} to {target}", "messages", MESSAGES, partial(hot.translating, source, target))
    for source in ("openai-chat", "anthropic"):
        floor = partial(hot.decoding_and_encoding, source)
        yield measure_growth(f"msgspec alone, {source}", "messages", MESSAGES, floor, at_most=None)
    for name in FORMATS:
        yield measure_growth(
            f"assembling a stream, {name}", "events", (200, 2_000, 20_000), partial(hot.streaming, name)
        )
    yield measure_growth("append in memory", "entries", (100, 1_000, 10_000), hot.appending)
    yield measure_growth("durable append", "entries", (50, 500, 5_000), hot.appending_durably)
    for name in FORMATS:
        yield measure_growth(f"rendering round by round, {name}", "rounds", (5, 50, 500), partial(hot.rendering, name))
    for preset in CLIENT_MODELS:
        yield measure_growth(
            f"the loop through {preset}'s client", "rounds", (5, 50, 500), partial(hot.client_turn, preset)
        )
    yield measure_growth("repair of a legal history", "messages", (100, 1_000, 10_000), hot.repairing_legal)
    yield measure_growth("repair of a broken history", "messages", (100, 1_000, 10_000), hot.repairing_broken)
    yield measure_growth("counting tokens", "messages", (201, 2_001, 20_001), lambda size: counting(history_of(size)))
    yield measure_growth("gateway, an agent's request", "messages", (21, 201, 2_001), hot.agent_request)


def measure_growth(
    name: str,
    sized: str,
    sizes: tuple[int, ...],
    prepare: Callable[[int], Callable[[], object]],
    *,
    at_most: float | None = STEEPEST,
) -> Growth:
    """The whole cost at each size, in milliseconds."""
    work = {size: prepare(size) for size in sizes}
    once = {size: min(time_once(one), time_once(one)) for size, one in work.items()}
    repeats = {size: max(1, round(LEAST_SECONDS / max(seconds, 1e-6))) for size, seconds in once.items()}
    runs = max(FEWEST_RUNS, min(MOST_RUNS, round(SECONDS / sum(once[size] * repeats[size] for size in sizes))))
    timings = run_alternately({size: _repeated(one, repeats[size]) for size, one in work.items()}, runs=runs)
    scales: Mapping[int, float] = {size: 1e3 / repeats[size] for size in sizes}
    return Growth.of(name, sized, {size: timings[size].scaled(scales[size]) for size in sizes}, "ms", at_most=at_most)


def _repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated
