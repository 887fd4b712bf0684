"""The tool loop: CPU time per round, with a scripted model and with the real clients over a transport in memory.

One call per round, an async tool that does nothing, the history in memory, no reader of events; every answer is checked. The
scripted model of each framework does the least its interface allows. `llm` is measured with its sync and its async interface. The
other frameworks run in processes of their own (`loop_peers`), alternating with ours. The floor is a handwritten loop: a list of
dicts, json, and a function call.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import ContextEntry, Origin
from antiphon.http.client.request import HttpRequest, HttpResponse
from antiphon.parts import Text, TokenUsage, ToolCallRequest
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.presets import get_preset
from antiphon.tools import tool
from antiphon.wire import Format, ModelOutput, formats
from antiphon.wire.delta import Finished, ModelOutputDelta, PartStarted, deltas_from_output
from bench.measure.figures import Figure, Timing, not_measured

ROOT = Path(__file__).parents[2]
PEERS_PYTHON = ROOT / ".venv-loop-peers" / "bin" / "python"
RUNS = 5
TURNS = 3
"""Turns per run, of ours and of each other framework: the first one warms up."""
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
        scripted += [asyncio.run(run_scripted_turn(550)) for _ in range(TURNS)]
        for name in AT_MOST:
            timestamps, reason = run_peer(name, 50)
            if timestamps:
                peers.setdefault(name, []).append(microseconds_per_round(timestamps, 5, 50))
            else:
                reasons[name] = reason
    ours = round_timing(scripted, 5, 50)
    floor = Timing.of([handwritten_loop(50) for _ in range(RUNS * 4)])
    yield Figure.of("a round of the loop, 50 rounds", ours, floor, "us", against="a loop written by hand")
    yield promised("the same", ours, 150)
    late, early = round_timing(scripted, 490, 510), round_timing(scripted, 3, 23)
    yield Figure.of("round 500 against round 5", late, early, "us", at_most=1.3, against="the same turn")
    for name, at_most in AT_MOST.items():
        if name in peers:
            theirs = Timing.of(peers[name])
            yield Figure.of(f"a round of the loop, {name}", ours, theirs, "us", at_most=at_most, against=name)
        else:
            yield not_measured(f"a round of the loop, {name}", reasons[name])
    yield from client_figures()


CLIENT_MODELS = {
    "openai": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
}


def client_figures() -> Iterator[Figure]:
    """The same through the real clients and formats: requests are rendered, answers are the bytes of a stream."""
    for preset, model in CLIENT_MODELS.items():
        timestamps = [asyncio.run(run_client_turn(preset, model, 210)) for _ in range(RUNS * TURNS)]
        yield promised(f"a round through {preset}'s client at 50", round_timing(timestamps, 40, 60), 400)
        yield promised(f"a round through {preset}'s client at 200", round_timing(timestamps, 190, 210), 500)


def promised(name: str, ours: Timing, microseconds: float) -> Figure:
    against = f"the promise: {microseconds:g} us"
    return Figure(name, ours.least, microseconds, "us", 1.0, against, ours.median)


class MemoryTransport:
    """Answers each request with the next of its streams, without a network."""

    def __init__(self, streams: Sequence[bytes]) -> None:
        self.timestamps: list[float] = []
        self._streams = streams

    async def send(self, _: HttpRequest) -> HttpResponse:
        self.timestamps.append(time.process_time())
        return HttpResponse.of(200, {"content-type": "text/event-stream"}, self._streams[len(self.timestamps) - 1])

    async def aclose(self) -> None:
        pass


async def run_client_turn(preset: str, model: str, rounds: int) -> list[float]:
    """The CPU times at which the requests of the rounds were sent."""
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
    transport = MemoryTransport([stream_of(wire, output) for output in outputs])
    async with HttpProviderClient(preset, keys=["a-test-key"], transport=transport) as client:
        await run_turn(Conversation(model, provider=client, tools=[weather], system="Be brief."), rounds)
    return transport.timestamps


def stream_of(wire: Format, output: ModelOutput) -> bytes:
    """An answer as the provider would stream it."""
    writer = wire.stream_writer(output.model)
    return b"".join([writer.write(delta) for delta in deltas_from_output(output)]) + writer.close()


def round_timing(runs: Sequence[Sequence[float]], first: int, last: int) -> Timing:
    """The timing of the rounds from `first` to `last`, in microseconds per round."""
    return Timing.of([microseconds_per_round(timestamps, first, last) for timestamps in runs])


def microseconds_per_round(timestamps: Sequence[float], first: int, last: int) -> float:
    return (timestamps[last] - timestamps[first]) / (last - first) * 1e6


class ScriptedModel(ProviderClient):
    """Calls `weather` in `rounds` rounds, `calls` times each, then ends."""

    name = "scripted"

    def __init__(self, rounds: int, calls: int = 1) -> None:
        self.timestamps: list[float] = []
        self._rounds = rounds
        self._calls = range(calls)
        self._origin = Origin("scripted", "", "scripted")

    async def call_model(
        self, _: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        self.timestamps.append(time.process_time())
        options.report.origin = self._origin
        number = len(self.timestamps)
        if number > self._rounds:
            yield PartStarted(0, Text("done"))
            yield Finished("end")
            return
        for lane in self._calls:
            call = ToolCallRequest("weather", f"call_{number}_{lane}", f'{{"city": "Town {number}-{lane}"}}')
            yield PartStarted(lane, call)
        yield Finished("tool_calls")


async def run_scripted_turn(rounds: int) -> list[float]:
    """The CPU times at which the model was called."""
    model = ScriptedModel(rounds)
    await run_turn(Conversation(model, tools=[weather], system="Be brief."), rounds)
    return model.timestamps


async def run_turn(chat: Conversation, rounds: int) -> None:
    result = await ToolLoop(chat, max_rounds=rounds + 5).run("Is it raining?")
    assert (result.text, result.rounds) == ("done", rounds + 1)


def handwritten_loop(rounds: int) -> float:
    """The lower bound, in microseconds per round: the messages, the arguments, the tool."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Is it raining?"}]
    started = time.process_time()
    for number in range(rounds):
        arguments = json.dumps({"city": f"Town {number}"})
        calls = [{"id": f"call_{number}", "type": "function", "function": {"name": "weather", "arguments": arguments}}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        city = json.loads(arguments)["city"]
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": f"Rain in {city}, 7 degrees"})
    return (time.process_time() - started) / rounds * 1e6


def run_peer(name: str, rounds: int) -> tuple[list[float], str]:
    """The timestamps of another framework, or why there are none."""
    if not PEERS_PYTHON.exists():
        return [], "`make bench` sets up its environment"
    run = subprocess.run(
        [str(PEERS_PYTHON), "-m", "bench.library.loop_peers", name, str(rounds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath, "HOME": str(PEERS_PYTHON.parent.parent)},
    )
    if run.returncode:
        return [], run.stderr.strip()[-200:]
    timestamps: list[float] = json.loads(run.stdout.splitlines()[-1])
    return (timestamps, "") if len(timestamps) > rounds else ([], f"it ended after {len(timestamps)} rounds")
