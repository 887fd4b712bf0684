"""The formats: translating requests, assembling streams, repairing sequences; against msgspec alone on the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from antiphon.parts import text_of
from antiphon.repair import repair
from antiphon.wire import Assembler, Message, ModelRequest, formats
from antiphon.wire.request_writer import RequestEncoder
from bench.measure.figures import Figure, Timing, compare
from bench.workload.agent_request import MESSAGES, chat_request
from bench.workload.streams import EVENTS, GEMINI_ARRAY, OBJECT_BORDER, WORDS, streams

PAIRS = (
    ("openai-chat", "anthropic"),
    ("anthropic", "openai-chat"),
    ("openai-chat", "openai-responses"),
    ("openai-responses", "openai-chat"),
    ("openai-responses", "anthropic"),
    ("anthropic", "openai-responses"),
    ("openai-chat", "gemini"),
    ("gemini", "openai-chat"),
    ("openai-chat", "gemini-interactions"),
    ("gemini-interactions", "openai-chat"),
)
MORE_PAIRS = (
    ("gemini", "anthropic"),
    ("anthropic", "gemini"),
    ("gemini", "openai-responses"),
    ("openai-responses", "gemini"),
)
"""Without a promise: in both formats arguments are objects, or the floor is low."""
FEW, MANY = 21, 201  # whole tasks of the conversation


def figures() -> Iterator[Figure]:
    data = bodies()
    for source, target in PAIRS:
        yield translate(source, target, data[source], 2.0)
    for source, target in MORE_PAIRS:
        yield translate(source, target, data[source], None)
    yield from round_figures()
    yield from stream_figures()
    yield from repair_figures()


def bodies() -> dict[str, bytes]:
    """The conversation in every format."""
    chat = msgspec.json.encode(chat_request())
    request = formats["openai-chat"].read_request(chat)
    return {name: wire.encode_request(request).data for name, wire in formats.items()} | {"openai-chat": chat}


def translate(source: str, target: str, data: bytes, at_most: float | None) -> Figure:
    """Bytes to bytes, as the gateway does it: decode, read, repair, write, encode."""
    read, write = formats[source].read_request, formats[target].encode_request
    assert not formats[target].check_request(write(repair(read(data), target).request).data)

    def ours() -> None:
        for _ in range(5):
            write(repair(read(data), target).request)

    def theirs() -> None:
        for _ in range(5):
            msgspec.json.encode(msgspec.json.decode(data))

    name = f"{source} to {target}, {MESSAGES} messages"
    against = f"msgspec decode and encode, {len(data) // 1000} KB"
    return compare(name, ours, theirs, runs=60, scale=200, unit="ms", at_most=at_most, against=against)


def round_figures() -> Iterator[Figure]:
    """Appending a round to a conversation and writing the request: at 201 messages against at 21."""
    messages = formats["openai-chat"].read_request(chat_request(MANY + 20)).messages
    rounds = messages[MANY:]
    for name in formats:
        at: dict[int, list[float]] = {FEW: [], MANY: []}
        for _ in range(60):
            for length, times in at.items():
                times.append(round_time(name, messages[:length], rounds) * 1e6)
        many, few = Timing.of(at[MANY]), Timing.of(at[FEW])
        label = f"a round at {MANY} messages, {name}"
        yield Figure.of(label, many, few, "us", at_most=1.3, against=f"a round at {FEW} messages")


def round_time(name: str, messages: tuple[Message, ...], more: tuple[Message, ...]) -> float:
    """The CPU time of a round (two messages) that continues a conversation."""
    body = RequestEncoder(formats[name])
    head = ModelRequest(model="m", messages=messages)
    body.write(head)
    body.write(msgspec.structs.replace(head, messages=messages + more[:1]))
    started = time.process_time()
    for count in range(2, 10):
        body.chunks(msgspec.structs.replace(head, messages=messages + more[:count]))
    return (time.process_time() - started) / 4


def stream_figures() -> Iterator[Figure]:
    for name, stream in streams().items():
        is_array = name == GEMINI_ARRAY
        against = f"splitting {'objects' if is_array else 'lines'} and msgspec decoding"
        floor = objects_of(stream) if is_array else lines_of(stream)
        ours = assembler(name.partition(",")[0], stream)
        label = f"assembling {EVENTS} events, {name}"
        yield compare(label, ours, floor, runs=30, scale=1e3, unit="ms", at_most=3.0, against=against)


def assembler(name: str, stream: bytes, expected: list[str] = WORDS) -> Callable[[], None]:
    """Assembles a stream from pieces of 4 KB and checks its text."""
    chunks = [stream[start : start + 4096] for start in range(0, len(stream), 4096)]
    words = "".join(expected)

    def assemble() -> None:
        reader, whole = formats[name].stream_reader(), Assembler()
        for chunk in chunks:
            for delta in reader.feed(chunk):
                whole.add(delta)
        for delta in reader.close():
            whole.add(delta)
        assert whole.is_finished
        assert text_of(whole.output.parts) == words

    return assemble


def lines_of(stream: bytes) -> Callable[[], None]:
    def split() -> None:
        for line in stream.split(b"\n"):
            if line.startswith(b"data: {"):
                msgspec.json.decode(line[6:])

    return split


def objects_of(stream: bytes) -> Callable[[], None]:
    def split() -> None:
        for piece in stream[1:-1].split(OBJECT_BORDER):
            msgspec.json.decode(piece)

    return split


def repair_figures() -> Iterator[Figure]:
    """Checking a legal history of 10,000 messages and repairing a broken one, against decoding it."""
    body = chat_request(10_001)
    data = msgspec.json.encode(body)
    legal = formats["openai-chat"].read_request(body)
    messages = body["messages"]
    for place in range(2, len(messages) - 1, 8):
        messages[place], messages[place + 1] = messages[place + 1], messages[place]
    broken = formats["openai-chat"].read_request(body)
    for name, request, at_most in (("a legal", legal, 0.2), ("a broken", broken, 1.0)):
        yield compare(
            f"repair of {name} history, 10,000 messages",
            lambda request=request: repair(request, "openai-chat"),  # type: ignore[misc]
            lambda: msgspec.json.decode(data),
            runs=15,
            scale=1e3,
            unit="ms",
            at_most=at_most,
            against="decoding it",
        )
