"""The tool loop at 5, 50 and 500 rounds, and with 1 and 8 calls a round: the whole turn, ours and the other frameworks'.

A turn that costs the same for each round has the slope 1; one that carries its history along each time comes nearer to 2. The
scripted model is `loop`'s, and so are the other frameworks. The answer at the end of each turn is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import ToolCallResultsEntry
from bench.figures import Figure, Growth, Taken, in_turns, not_measured
from bench.loop import AT_MOST, Scripted, by_hand, peer, weather

SIZES = (5, 50, 500)
WIDTHS = (1, 8)
RUNS = 7
PEER_RUNS = 2
LONGEST = {"langgraph": 200, "openai-agents": 200}
"""The most rounds of a framework whose 500 would take minutes."""


def figures() -> Iterator[Figure | Growth | str]:
    yield from own_figures()
    for name in AT_MOST:
        yield peer_growth(name)


def own_figures() -> Iterator[Figure | Growth]:
    work: dict[tuple[int, int], Callable[[], object]] = {
        (width, size): turn_of(width, size) for width in WIDTHS for size in SIZES
    }
    taken = in_turns(work, runs=RUNS)
    floors = {
        size: Taken.of([by_hand(size) * size for _ in range(RUNS * 2)]) for size in SIZES
    }  # microseconds a turn, one call a round
    for width in WIDTHS:
        label = f"the loop, {width} {'call' if width == 1 else 'calls'} a round"
        for size in SIZES:
            each = taken[width, size].scaled(1e6 / size)
            floor = floors[size].scaled(width / size)
            yield Figure.of(f"{label}, {size} rounds", each, floor, "us", against=f"{width} written by hand")
        yield Growth.of(label, "rounds", {size: taken[width, size].scaled(1e3) for size in SIZES}, "ms")


def turn_of(width: int, rounds: int) -> Callable[[], object]:
    """A whole turn: so many rounds of so many calls, and the answer."""

    def play() -> None:
        chat = Conversation(Scripted(rounds, width), tools=[weather], system="Be brief.")
        reply = asyncio.run(ToolLoop(chat, max_rounds=rounds + 5).run("Is it raining?"))
        assert str(reply) == "done"
        last = chat.history.entries[-2]
        assert isinstance(last, ToolCallResultsEntry)
        assert len(last.content) == width

    return play


def peer_growth(name: str) -> Growth | str:
    """A framework at the same sizes, as far as it can be waited for. Nothing is promised for others."""
    longest = min(SIZES[-1], LONGEST.get(name, SIZES[-1]))
    label = f"the loop, 1 call a round: {name}"
    costs: dict[int, list[float]] = {}
    for _ in range(PEER_RUNS):
        stamps, why = peer(name, longest)
        if not stamps:
            return not_measured(label, why)
        for size in sorted({*(size for size in SIZES if size < longest), longest}):
            costs.setdefault(size, []).append((stamps[size] - stamps[0]) * 1e3)
    return Growth.of(label, "rounds", {size: Taken.of(runs) for size, runs in costs.items()}, "ms", at_most=None)
