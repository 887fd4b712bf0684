"""The tool loop: CPU time a round, with a scripted model and with the real clients over a transport in memory.

One call a round, an async tool that does nothing, the history in memory, and no reader of the events: each is asked for its
answer, which is checked. Every framework's model is the least that its class of models allows: it says a call and no more.
`llm` plays twice, with its plain face, which most of its users see, and with its async one. The other frameworks play the same
in processes of their own (`loop_peers.py`), in turns with ours. The floor is a loop written by hand: a list of dicts, json, and
a function call.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import ContextEntry, Origin, TokenUsage
from antiphon.parts import Text, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.engine.response_reader import deltas_from_output
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.presets import get_preset
from antiphon.providers.transport.request import HttpRequest
from antiphon.tools import tool
from antiphon.wire import Format, ModelOutput, formats
from antiphon.wire.delta import Finished, ModelOutputDelta, PartStarted
from bench.figures import Figure, Taken, not_measured

ROOT = Path(__file__).parent.parent
PEERS_PYTHON = ROOT / ".venv-loop-peers" / "bin" / "python"
RUNS = 5
PLAYS = 3
"""How often a turn is played in a run, by us and by each of the others: the first play warms up."""
AT_MOST = {
    "pydantic-ai": 1 / 20,
    "openai-agents": 1 / 20,
    "langgraph": 1 / 20,
    "llm": 1.0,
    "llm-async": 1.0,
    "agno": 1.0,
}


@tool
async def weather(city: str) -> str:
    """Current weather in a city."""
    return f"Rain in {city}, 7 degrees"


def figures() -> Iterator[Figure | str]:
    peers: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    scripted: list[list[float]] = []
    for _ in range(RUNS):
        scripted += [asyncio.run(play(550)) for _ in range(PLAYS)]
        for name in AT_MOST:
            stamps, reason = peer(name, 50)
            if stamps:
                peers.setdefault(name, []).append(between(stamps, 5, 50))
            else:
                reasons[name] = reason
    ours = taken(scripted, 5, 50)
    floor = Taken.of([by_hand(50) for _ in range(RUNS * 4)])
    yield Figure.of("a round of the loop, 50 rounds", ours, floor, "us", against="a loop written by hand")
    yield promised("the same", ours, 150)
    late, early = taken(scripted, 490, 510), taken(scripted, 3, 23)
    yield Figure.of("round 500 against round 5", late, early, "us", at_most=1.3, against="the same turn")
    for name, at_most in AT_MOST.items():
        if name in peers:
            theirs = Taken.of(peers[name])
            yield Figure.of(f"a round of the loop, {name}", ours, theirs, "us", at_most=at_most, against=name)
        else:
            yield not_measured(f"a round of the loop, {name}", reasons[name])
    yield from over_the_wire()


WIRED = {"openai": "gpt-4o", "openai-responses": "gpt-4o", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}


def over_the_wire() -> Iterator[Figure]:
    """The same through the real clients and formats: requests are rendered, answers come as the bytes of a stream."""
    for preset, model in WIRED.items():
        stamps = [asyncio.run(play_wired(preset, model, 210)) for _ in range(RUNS * PLAYS)]
        yield promised(f"a round through {preset}'s client at 50", taken(stamps, 40, 60), 400)
        yield promised(f"a round through {preset}'s client at 200", taken(stamps, 190, 210), 500)


def promised(name: str, ours: Taken, microseconds: float) -> Figure:
    against = f"the promise: {microseconds:g} us"
    return Figure(name, ours.least, microseconds, "us", 1.0, against, ours.median)


class MemoryTransport:
    """Answers each request with the next of the streams it was given, without a network."""

    def __init__(self, streams: Sequence[bytes]) -> None:
        self.stamps: list[float] = []
        self._streams = streams

    async def send(self, _: HttpRequest) -> MemoryResponse:
        self.stamps.append(time.process_time())
        return MemoryResponse(self._streams[len(self.stamps) - 1])

    async def aclose(self) -> None:
        pass


class MemoryResponse:
    """A stream that is there at once."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self._bytes()

    async def _bytes(self) -> AsyncIterator[bytes]:
        yield self._stream

    async def aclose(self) -> None:
        pass


async def play_wired(preset: str, model: str, rounds: int) -> list[float]:
    """The CPU time at which requests were sent, round by round."""
    outputs = [
        ModelOutput(
            parts=(ToolCallRequest("weather", f"call_{number}", f'{{"city": "Town {number}"}}'),),
            stop_reason="tool_calls",
            model=model,
            usage=TokenUsage(100, 20),
        )
        for number in range(rounds)
    ]
    outputs.append(ModelOutput(parts=(Text("done"),), stop_reason="end", model=model))
    wire = formats[get_preset(preset).format]
    transport = MemoryTransport([streamed(wire, output) for output in outputs])
    async with HttpProviderClient(preset, keys=["a-test-key"], transport=transport) as client:
        await turn(Conversation(model, provider=client, tools=[weather], system="Be brief."), rounds)
    return transport.stamps


def streamed(wire: Format, output: ModelOutput) -> bytes:
    """An answer as the provider would stream it."""
    writer = wire.stream_writer(output.model)
    return b"".join([writer.write(delta) for delta in deltas_from_output(output)]) + writer.close()


def taken(runs: Sequence[Sequence[float]], first: int, last: int) -> Taken:
    return Taken.of([between(stamps, first, last) for stamps in runs])


def between(stamps: Sequence[float], first: int, last: int) -> float:
    """Microseconds a round."""
    return (stamps[last] - stamps[first]) / (last - first) * 1e6


class Scripted(ProviderClient):
    """Asks for the weather in so many rounds, in so many places at once, and is done."""

    name = "scripted"

    def __init__(self, rounds: int, calls: int = 1) -> None:
        self.stamps: list[float] = []
        self._rounds = rounds
        self._calls = range(calls)
        self._origin = Origin("scripted", "", "scripted")

    async def call_model(
        self, _: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        self.stamps.append(time.process_time())
        options.report.origin = self._origin
        number = len(self.stamps)
        if number > self._rounds:
            yield PartStarted(0, Text("done"))
            yield Finished("end")
            return
        for lane in self._calls:
            call = ToolCallRequest("weather", f"call_{number}_{lane}", f'{{"city": "Town {number}-{lane}"}}')
            yield PartStarted(lane, call)
        yield Finished("tool_calls")


async def play(rounds: int) -> list[float]:
    """The CPU time at which the model was asked, round by round."""
    model = Scripted(rounds)
    await turn(Conversation(model, tools=[weather], system="Be brief."), rounds)
    return model.stamps


async def turn(chat: Conversation, rounds: int) -> None:
    result = await ToolLoop(chat, max_rounds=rounds + 5).run("Is it raining?")
    assert (result.text, result.rounds) == ("done", rounds + 1)


def by_hand(rounds: int) -> float:
    """The lower bound: the messages, the arguments, the tool."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Is it raining?"}]
    started = time.process_time()
    for number in range(rounds):
        arguments = json.dumps({"city": f"Town {number}"})
        calls = [{"id": f"call_{number}", "type": "function", "function": {"name": "weather", "arguments": arguments}}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        city = json.loads(arguments)["city"]
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": f"Rain in {city}, 7 degrees"})
    return (time.process_time() - started) / rounds * 1e6


def peer(name: str, rounds: int) -> tuple[list[float], str]:
    """The stamps of a peer, or why there are none."""
    if not PEERS_PYTHON.exists():
        return [], "`make bench` sets its environment up"
    run = subprocess.run(
        [str(PEERS_PYTHON), str(ROOT / "bench" / "loop_peers.py"), name, str(rounds)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath, "HOME": str(PEERS_PYTHON.parent.parent)},
    )
    if run.returncode:
        return [], run.stderr.strip()[-200:]
    stamps: list[float] = json.loads(run.stdout.splitlines()[-1])
    return (stamps, "") if len(stamps) > rounds else ([], f"it ended after {len(stamps)} rounds")
