"""The tool loop at 5, 50 and 500 rounds, with 1 and 8 calls per round: a whole turn of ours and of other frameworks.

A turn whose rounds cost the same has the slope 1; one that processes its whole history in every round comes near 2. The scripted
model and the other frameworks are those of `loop`. The answer of each turn is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import ToolCallResultsEntry
from bench.library.loop import AT_MOST, ScriptedModel, handwritten_loop, run_peer, weather
from bench.measure.figures import Figure, Growth, Timing, not_measured, run_alternately

SIZES = (5, 50, 500)
WIDTHS = (1, 8)
RUNS = 7
PEER_RUNS = 2
MOST_ROUNDS = {"langgraph": 200, "openai-agents": 200}
"""Of frameworks whose 500 rounds would take minutes."""


def figures() -> Iterator[Figure | Growth | str]:
    yield from own_figures()
    for name in AT_MOST:
        yield peer_growth(name)


def own_figures() -> Iterator[Figure | Growth]:
    work: dict[tuple[int, int], Callable[[], object]] = {
        (width, size): turn_of(width, size) for width in WIDTHS for size in SIZES
    }
    timings = run_alternately(work, runs=RUNS)
    floors = {
        size: Timing.of([handwritten_loop(size) * size for _ in range(RUNS * 2)]) for size in SIZES
    }  # microseconds per turn with one call per round
    for width in WIDTHS:
        label = f"the loop, {width} {'call' if width == 1 else 'calls'} a round"
        for size in SIZES:
            each = timings[width, size].scaled(1e6 / size)
            floor = floors[size].scaled(width / size)
            yield Figure.of(f"{label}, {size} rounds", each, floor, "us", against=f"{width} written by hand")
        yield Growth.of(label, "rounds", {size: timings[width, size].scaled(1e3) for size in SIZES}, "ms")


def turn_of(width: int, rounds: int) -> Callable[[], object]:
    """A whole turn of `rounds` rounds with `width` calls each."""

    def run() -> None:
        chat = Conversation(ScriptedModel(rounds, width), tools=[weather], system="Be brief.")
        reply = asyncio.run(ToolLoop(chat, max_rounds=rounds + 5).run("Is it raining?"))
        assert str(reply) == "done"
        last = chat.history.entries[-2]
        assert isinstance(last, ToolCallResultsEntry)
        assert len(last.content) == width

    return run


def peer_growth(name: str) -> Growth | str:
    """Another framework at the same sizes, if they do not take too long."""
    longest = min(SIZES[-1], MOST_ROUNDS.get(name, SIZES[-1]))
    label = f"the loop, 1 call a round: {name}"
    costs: dict[int, list[float]] = {}
    for _ in range(PEER_RUNS):
        timestamps, reason = run_peer(name, longest)
        if not timestamps:
            return not_measured(label, reason)
        for size in sorted({*(size for size in SIZES if size < longest), longest}):
            costs.setdefault(size, []).append((timestamps[size] - timestamps[0]) * 1e3)
    return Growth.of(label, "rounds", {size: Timing.of(runs) for size, runs in costs.items()}, "ms", at_most=None)
