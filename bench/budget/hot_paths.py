"""The hot paths: what happens for each entry, round, request and event, as work of any size.

`library.growth` times each at 1, 10 and 100 times its size; `budget` counts what each does at one size. Preparation is not
measured, every run does the same, and each checks its result.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.context import LiveContextRenderer
from antiphon.history import (
    AgentHistory,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SqliteStore,
    ToolCallResultsEntry,
)
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.repair import repair
from antiphon.wire import FORMATS, ModelRequest, formats
from bench.budget.memory_gateway import send_requests
from bench.library.formats import assembler
from bench.library.log import conversation
from bench.library.loop import CLIENT_MODELS, run_client_turn
from bench.library.rounds import turn_of
from bench.workload.agent_request import chat_request
from bench.workload.streams import streams, words_of

Work = Callable[[], object]


class HotPath(Struct, frozen=True):
    """Work of a given size, in the unit `sized`; `prepare(size)` returns it. The budget counts at `size`."""

    name: str
    sized: str
    size: int
    prepare: Callable[[int], Work]


def hot_paths() -> Iterator[HotPath]:
    """All hot paths."""
    yield HotPath("append", "entries", 200, appending)
    yield HotPath("durable append", "entries", 100, appending_durably)
    yield HotPath("snapshot", "snapshots", 200, taking_snapshots)
    for name in FORMATS:
        yield HotPath(f"render a round, {name}", "rounds", 50, partial(rendering, name))
    for name in FORMATS:
        yield HotPath(f"read a request, {name}", "messages", 200, partial(reading, name))
        yield HotPath(f"write a request, {name}", "messages", 200, partial(writing, name))
        yield HotPath(f"encode a request, {name}", "messages", 200, partial(encoding, name))
    for name in FORMATS:
        yield HotPath(f"read a stream, {name}", "events", 2_000, partial(streaming, name))
    yield HotPath("repair a legal history", "messages", 10_000, repairing_legal)
    yield HotPath("repair a broken history", "messages", 2_000, repairing_broken)
    yield HotPath("a round of the loop", "rounds", 50, partial(turn_of, 1))
    yield HotPath("a round of the loop, 8 calls", "rounds", 20, partial(turn_of, 8))
    for preset in CLIENT_MODELS:
        yield HotPath(f"a round through {preset}'s client", "rounds", 20, partial(client_turn, preset))
    small = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Is it raining in Oslo?"}]}
    claude = {**small, "model": "claude-sonnet-4-5", "max_tokens": 100}
    for label, client, body in (
        ("a small request", "openai-chat", small),
        ("a small stream", "openai-chat", {**small, "stream": True}),
        ("a translated request", "anthropic", claude),
        ("a translated stream", "anthropic", {**claude, "stream": True}),
    ):
        yield HotPath(f"gateway, {label}", "requests", 10, partial(send_requests, client, body))
    yield HotPath("gateway, an agent's request", "messages", 200, agent_request)


def appending(entries: int) -> Work:
    given = list(conversation(entries))

    def work() -> None:
        history = AgentHistory()
        for entry in given:
            history.append(entry)
        assert history.version == entries

    return work


def appending_durably(entries: int) -> Work:
    given = list(conversation(entries))
    folder = tempfile.TemporaryDirectory(prefix="antiphon-bench-")
    store = SqliteStore(Path(folder.name) / "kept.db")

    def work(_: object = folder) -> None:  # the folder lives as long as the work does
        history = store.create()
        for entry in given:
            history.append(entry)
        assert history.version == entries

    return work


def taking_snapshots(count: int) -> Work:
    history = AgentHistory()
    for entry in conversation(100):
        history.append(entry)

    def work() -> None:
        for _ in range(count):
            assert history.snapshot().version == 100

    return work


def rendering(name: str, rounds: int) -> Work:
    """Rounds appended one by one, and the request rendered for each, as a client of that format does."""
    target = Origin("bench", name, "model")

    def work() -> None:
        history, renderer = AgentHistory(), LiveContextRenderer()
        history.set_system_instruction("Be brief.")
        history.append(ModelInputEntry.of("Is it raining?"))
        chunks: list[bytes] = []
        for number in range(rounds):
            call = ToolCallRequest("weather", f"call_{number}", f'{{"city": "Town {number}"}}')
            history.append(ModelOutputEntry.of(call))
            history.append(ToolCallResultsEntry((ToolCallResult.of(call, f"Rain in Town {number}, 7 degrees"),)))
            chunks = render_call(renderer.render(history.snapshot()), ProviderCallOptions(model="model"), target).chunks
        assert f"Rain in Town {rounds - 1}".encode() in b"".join(chunks)

    return work


def body_without_tools(count: int) -> dict[str, Any]:
    """The bench's conversation without its tools, cut after the last whole round within `count` messages."""
    body = chat_request(count + 21)
    return {"model": body["model"], "max_tokens": body["max_tokens"], "messages": body["messages"][:count]}


@cache
def neutral(count: int) -> ModelRequest:
    """The same, read."""
    return formats["openai-chat"].read_request(body_without_tools(count))


@cache
def body_of(name: str, count: int) -> bytes:
    """The same in a format, as bytes."""
    return formats[name].encode_request(repair(neutral(count), name).request).data


def reading(name: str, messages: int) -> Work:
    data, read = body_of(name, messages), formats[name].read_request
    return lambda: read(data)


def writing(name: str, messages: int) -> Work:
    request, write = repair(neutral(messages), name).request, formats[name].write_request
    return lambda: write(request)


def encoding(name: str, messages: int) -> Work:
    request, encode = repair(neutral(messages), name).request, formats[name].encode_request
    return lambda: encode(request)


def translating(source: str, target: str, messages: int) -> Work:
    """Bytes to bytes, as the gateway does it."""
    data = body_of(source, messages)
    read, encode = formats[source].read_request, formats[target].encode_request
    assert not formats[target].check_request(encode(repair(read(data), target).request).data)
    return lambda: encode(repair(read(data), target).request)


def decoding_and_encoding(source: str, messages: int) -> Work:
    """The floor of a translation."""
    data = body_of(source, messages)
    return lambda: msgspec.json.encode(msgspec.json.decode(data))


def streaming(name: str, events: int) -> Work:
    words = words_of(events)
    return assembler(name, streams(words)[name], words)


def repairing_legal(messages: int) -> Work:
    request = neutral(messages)

    def work() -> None:
        assert repair(request, "openai-chat").request is request

    return work


def repairing_broken(messages: int) -> Work:
    """Every eighth message has changed places with the next."""
    order = list(neutral(messages).messages)
    for place in range(2, len(order) - 1, 8):
        order[place], order[place + 1] = order[place + 1], order[place]
    request = structs.replace(neutral(messages), messages=tuple(order))

    def work() -> None:
        assert repair(request, "openai-chat").actions

    return work


def client_turn(preset: str, rounds: int) -> Work:
    return lambda: asyncio.run(run_client_turn(preset, CLIENT_MODELS[preset], rounds))


def agent_request(messages: int) -> Work:
    """One request of a long conversation with its tools, through the gateway."""
    return send_requests("openai-chat", {**chat_request(messages + 1), "model": "gpt-4o"}, 1)
