"""The formats: translating requests, assembling streams, repairing sequences; against msgspec alone on the same bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.repair import repair
from antiphon.wire import Assembler, Message, ModelRequest, formats
from antiphon.wire.growing import GrowingBody
from bench.figures import Figure, best_of

MESSAGES = 200
EVENTS = 2_000


def chat_request(length: int) -> dict[str, Any]:
    """A tool conversation as an agent has it: questions, calls, results of a kilobyte or two, answers."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a careful assistant. " * 20}]
    for number in range((length - 1) // 4):
        call = {"name": "search_web", "arguments": '{"query": "rain in Oslo today", "limit": 5, "lang": "en"}'}
        messages += [
            {
                "role": "user",
                "content": f"Question {number}: is it raining in Oslo, and should I take an umbrella? " * 3,
            },
            {
                "role": "assistant",
                "content": "Let me look that up for you.",
                "tool_calls": [{"id": f"call_{number:024d}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{number:024d}", "content": "Rain, 7 C, wind from the west. " * 50},
            {"role": "assistant", "content": "Yes: it rains, it is 7 degrees, and an umbrella is a good idea. " * 10},
        ]
    return {"model": "gpt-4o", "messages": messages, "tools": [CHAT_TOOL], "temperature": 0.5, "max_tokens": 1_000}


SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "search_web", "description": "Search the web.", "parameters": SCHEMA},
}


def figures() -> Iterator[Figure]:
    chat = msgspec.json.encode(chat_request(MESSAGES))
    request = formats["openai-chat"].read_request(chat)
    bodies = {name: msgspec.json.encode(wire.write_request(request).body) for name, wire in formats.items()}
    for source, target in (
        ("openai-chat", "anthropic"),
        ("anthropic", "openai-chat"),
        ("openai-chat", "openai-responses"),
        ("openai-responses", "anthropic"),
        ("openai-chat", "gemini"),
        ("gemini", "openai-chat"),
    ):
        yield converting(source, target, bodies[source])
    yield from growing()
    yield from assembling()
    yield from repairing()


def converting(source: str, target: str, data: bytes) -> Figure:
    """Bytes to bytes, as the gateway does it: decode, read, repair, write, encode."""
    read, write = formats[source].read_request, formats[target].encode_request

    def ours() -> None:
        for _ in range(10):
            write(repair(read(data), target).request)

    def theirs() -> None:
        for _ in range(10):
            msgspec.json.encode(msgspec.json.decode(data))

    took = best_of(ours, theirs, runs=30, clock=time.process_time)
    name = f"{source} to {target}, {MESSAGES} messages"
    return Figure(name, took[0] * 100, took[1] * 100, "ms", 2.0, f"msgspec decode and encode, {len(data) // 1000} KB")


def growing() -> Iterator[Figure]:
    """A round of a conversation, appended and written: at 200 messages against at 10. As pieces, as a client sends them."""
    messages = formats["openai-chat"].read_request(chat_request(240)).messages
    for name in formats:
        at = {length: min(round_time(name, messages, length) for _ in range(30)) for length in (10, 200)}
        yield Figure(
            f"a round at 200 messages, {name}", at[200] * 1e6, at[10] * 1e6, "us", 1.3, "a round at 10 messages"
        )


def round_time(name: str, messages: tuple[Message, ...], length: int) -> float:
    """The CPU time of one round (a question, a call, its result, an answer) of a conversation of `length` messages."""
    body = GrowingBody(formats[name])
    head = ModelRequest(model="m", messages=messages[: length - 1])
    body.write(head)
    body.write(msgspec.structs.replace(head, messages=messages[:length]))
    started = time.process_time()
    for more in range(1, 9):
        body.chunks(msgspec.structs.replace(head, messages=messages[: length + more]))
    return (time.process_time() - started) / 2


def assembling() -> Iterator[Figure]:
    for name, stream in streams().items():
        chunks = [stream[start : start + 4096] for start in range(0, len(stream), 4096)]

        def ours(name: str = name, chunks: list[bytes] = chunks) -> None:
            reader, assembler = formats[name].stream_reader(), Assembler()
            for chunk in chunks:
                for delta in reader.feed(chunk):
                    assembler.add(delta)
            for delta in reader.close():
                assembler.add(delta)
            assert assembler.is_finished

        def theirs(stream: bytes = stream) -> None:
            for line in stream.split(b"\n"):
                if line.startswith(b"data: {"):
                    msgspec.json.decode(line[6:])

        took = best_of(ours, theirs, runs=15, clock=time.process_time)
        against = "splitting lines and msgspec decoding"
        yield Figure(f"assembling {EVENTS} events, {name}", took[0] * 1e3, took[1] * 1e3, "ms", 3.0, against)


def streams() -> dict[str, bytes]:
    """A long answer as each provider streams it."""
    words = [f"word{number} " for number in range(EVENTS - 10)]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    chat = [{**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}]
    chat += [{**head, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in words]
    chat += [{**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude",
        "stop_reason": None,
    }
    claude: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 10, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in words),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2_000}},
        {"type": "message_stop"},
    ]
    return {
        "openai-chat": b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in chat)
        + b"data: [DONE]\n\n",
        "anthropic": b"".join(
            b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n" for event in claude
        ),
    }


def repairing() -> Iterator[Figure]:
    """A legal history of 10,000 messages looked through, and a broken one mended, against decoding it."""
    body = chat_request(10_000)
    data = msgspec.json.encode(body)
    legal = formats["openai-chat"].read_request(body)
    messages = body["messages"]
    for place in range(2, len(messages) - 1, 8):
        messages[place], messages[place + 1] = messages[place + 1], messages[place]
    broken = formats["openai-chat"].read_request(body)
    for name, request, at_most in (("a legal", legal, 0.2), ("a broken", broken, None)):
        took = best_of(
            lambda request=request: repair(request, "openai-chat"),  # type: ignore[misc]
            lambda: msgspec.json.decode(data),
            runs=15,
            clock=time.process_time,
        )
        yield Figure(
            f"repair of {name} history, 10,000 messages", took[0] * 1e3, took[1] * 1e3, "ms", at_most, "decoding it"
        )
