"""L12 by example: short conversations; each broke a law once. The driver of the law must find nothing in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.conversation import RunLimits
from antiphon.parts import OutputPart, Text, ToolCallRequest
from laws.conversation_simulation.surfaces import Ending, Play
from laws.conversation_simulation.world import Answer, Surface
from laws.test_l12_conversations import DEEP, Conversations

STRICT, LAX, TEAM = Surface(), Surface(is_strict=False), Surface(has_agents=True)
CUT = Answer((Text("hm"),), fate="is cut")


def call(name: str, arguments: str = "{}", *, freeform: bool = False) -> ToolCallRequest:
    return ToolCallRequest(name, "", arguments, freeform)


def asks(surface: Surface, *parts: OutputPart, **how: Any) -> Play:
    """A person speaks, and the model answers with these parts."""
    return Play(surface, "speaks", [Answer(parts)], **how)


def crashes(appends: int, *, is_stored: bool = True) -> Ending:
    return Ending("crashes", appends, is_stored)


PAY = call("pay", '{"text": "x"}')
PENDING = ("play_loop", asks(STRICT, PAY))
EXAMPLES: dict[str, Sequence[tuple[str, Any]]] = {
    "a freeform call needs approval": [("play_loop", asks(STRICT, call("pay", "x", freeform=True)))],
    "a call run by hand needs approval": [("play_by_hand", asks(STRICT, PAY, limits=RunLimits(max_rounds=2)))],
    "a call run by hand is not repeated": [
        ("play_loop", asks(STRICT, call("send"), ending=crashes(3))),
        ("play_by_hand", Play(STRICT)),
    ],
    "another loop does not run a pending call": [PENDING, ("play_loop", Play(LAX))],
    "a graph does not run a pending call": [PENDING, ("play_graph", Play(LAX))],
    "a worker does not run a pending call": [PENDING, ("play_run", Play(LAX))],
    "a call is pending before it is reported": [
        ("play_loop", asks(STRICT, PAY, ending=crashes(2))),
        ("play_loop", Play(LAX)),
    ],
    "deeply nested arguments are refused": [("play_loop", asks(STRICT, call("pay", DEEP)))],
    "a retry keeps the notebook": [
        ("play_loop", Play(STRICT, "speaks", [CUT])),
        ("change", {"change": "notebook", "text": "Be kind.", "back": 0}),
        ("play_loop", Play(STRICT)),
    ],
    "a retry keeps the new instruction": [
        ("play_loop", Play(STRICT, "speaks", [CUT])),
        ("reopen", {"surface": STRICT, "system": "You are new."}),
        ("play_loop", Play(STRICT)),
    ],
    "an agent without instructions keeps those of the conversation": [
        ("change", {"change": "system", "text": "Be kind.", "back": 0}),
        ("play_loop", asks(TEAM, call("hand_off_to_plain"))),
    ],
    "the tools of agents get the state": [("play_loop", asks(TEAM, call("look")))],
    "the results of agents are bounded": [("play_loop", asks(TEAM, call("dump")))],
    "an agent as a tool asks the model of the conversation": [
        ("play_loop", asks(STRICT, call("ask_helper", '{"request": "look"}')))
    ],
    "a graph asks again after a cut answer with calls": [
        (
            "play_by_hand",
            Play(STRICT, "speaks", [Answer((call("look"),), fate="is cut")], limits=RunLimits(max_rounds=1)),
        ),
        ("play_graph", Play(STRICT)),
    ],
    "a started call beyond the budget is not reported as not run": [
        ("play_loop", asks(STRICT, call("look"), call("put"), ending=crashes(5, is_stored=False))),
        ("play_loop", Play(STRICT, limits=RunLimits(max_calls=1))),
    ],
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_breaks_no_law(example: str) -> None:
    machine = Conversations()
    machine.begin(system=None)
    try:
        machine.laws_hold()
        for rule, arguments in EXAMPLES[example]:
            step: Any = getattr(machine, rule)
            if isinstance(arguments, Play):
                step(play=arguments)
            else:
                step(**arguments)
            machine.laws_hold()
    finally:
        machine.teardown()
