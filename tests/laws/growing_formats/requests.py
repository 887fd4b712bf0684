"""Requests of any size, one shape after the other: each was, or might be, read or written in quadratic time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from antiphon.parts import (
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.repair import fix_tool_call_sequence, repair
from antiphon.wire import FORMATS, Message, ModelRequest, ToolDefinition, formats
from antiphon.wire.inbound import client_formats
from antiphon.wire.openai_chat.layouts import write_messages

Work = Callable[[], object]
Shape = Callable[[int], Work]

MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-opus-4-8",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}
MARK = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
PIXEL = Image("image/png", "iVBORw0KGgo=")


def call(number: int, name: str = "", call_id: str = "") -> ToolCallRequest:
    return ToolCallRequest(name or f"tool_{number}", call_id or f"call_{number}", '{"city": "Oslo"}')


def result(number: int, *content: Any, name: str = "", call_id: str = "") -> ToolCallResult:
    shown = content or (Text("Rain"),)
    return ToolCallResult(name or f"tool_{number}", call_id or f"call_{number}", content=shown)


def user(*parts: Part) -> Message:
    return Message("user", parts or (Text("Go on."),))


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts or (Text("Yes."),))


def tool(*parts: Part) -> Message:
    return Message("tool", parts)


def _each(make: Callable[[int], tuple[Message, ...]]) -> Callable[[int], Iterator[Message]]:
    return lambda size: (message for number in range(size) for message in make(number))


def _calls_then(*results: Callable[[int, int], Message]) -> Callable[[int], Iterator[Message]]:
    """One message with all calls, then for each call the given messages."""

    def messages(size: int) -> Iterator[Message]:
        yield assistant(*map(call, range(size)))
        yield from (make(number, size) for number in range(size) for make in results)

    return messages


def _same_name(size: int) -> Iterator[Message]:
    yield assistant(*[call(number, "weather", f"call_gm_{number}") for number in range(size)])
    yield user(*[result(number, name="weather", call_id=f"call_gm_{number}") for number in reversed(range(size))])


def _two_names(size: int) -> Iterator[Message]:
    """Generated ids: Gemini has none, and matches by name and order."""
    names = ["first", "second"]
    yield assistant(*[call(number, names[number * 2 // size], f"call_gm_{number}") for number in range(size)])
    order = [*range(size // 2, size), *range(size // 2)]
    yield user(*[result(it, name=names[it * 2 // size], call_id=f"call_gm_{it}") for it in order])


FOREIGN = (
    Native("anthropic", {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}),
    Native("openai-responses", {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}}),
    Native("gemini", {"executableCode": {"language": "PYTHON", "code": "1"}}),
    Native("gemini-interactions", {"type": "code_execution_call", "id": "c", "arguments": {"code": "1"}}),
    Native("openai-chat", {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}),
)
REASONING = (
    Thinking("Hm.", native={"anthropic": {"signature": "c2ln"}}),
    Thinking("Hm.", native={"openai-responses": {"id": "rs_1", "summary": []}}),
    Thinking("Hm.", native={"gemini": {"thoughtSignature": "c2ln"}}),
    Thinking("Hm.", native={"openai-chat": {"field": "reasoning_content"}}),
)

MESSAGES: dict[str, Callable[[int], Iterator[Message]]] = {
    "turns of text": _each(lambda _: (user(), assistant())),
    "rounds of calls": _each(lambda it: (assistant(Text("So."), call(it)), tool(result(it)))),
    "calls, results in order": _calls_then(lambda it, _: tool(result(it))),
    "calls, results in reverse": _calls_then(lambda it, size: tool(result(size - 1 - it))),
    "calls, results of one message in reverse": lambda size: iter(
        (assistant(*map(call, range(size))), user(*map(result, reversed(range(size)))))
    ),
    "calls without results": _each(lambda it: (assistant(call(it)),)),
    "results without calls": _each(lambda it: (tool(result(it)),)),
    "results before their calls": lambda size: iter(
        (*[tool(result(it)) for it in range(size)], *[assistant(call(it)) for it in range(size)])
    ),
    "results twice": _calls_then(lambda it, _: tool(result(it)), lambda it, _: tool(result(it, Text("Sun")))),
    "one id for all calls": _each(lambda it: (assistant(call(it, call_id="c")), tool(result(it, call_id="c")))),
    "one id for all calls of a message": lambda size: iter(
        (
            assistant(*[call(it, call_id="c") for it in range(size)]),
            *[tool(result(it, call_id="c")) for it in range(size)],
        )
    ),
    "calls of users": _each(lambda it: (user(call(it)), user(result(it)))),
    "results of assistants": _each(lambda it: (assistant(call(it), result(it)),)),
    "calls and results of one name, in reverse": _same_name,
    "calls and results of two names": _two_names,
    "results between blank answers": _calls_then(lambda it, _: user(result(it)), lambda *_: assistant(Text(" "))),
    "results and text between blank answers": _calls_then(
        lambda it, _: user(result(it), Text("Well?")), lambda *_: assistant(Text(""))
    ),
    "text between blank answers": _each(lambda _: (user(), assistant(Text("")))),
    "calls between blank questions": _each(lambda it: (assistant(call(it)), user(Text("")))),
    "text and calls between blank questions": _each(lambda it: (assistant(Text("a"), call(it)), user(Text(" ")))),
    "results and text in turn": _calls_then(lambda it, _: user(result(it)), lambda *_: user()),
    "results with text before them": _calls_then(lambda it, _: user(Text("So:"), result(it))),
    "results with media": _calls_then(lambda it, _: tool(result(it, Text("see"), PIXEL))),
    "failed results with media": _calls_then(
        lambda it, _: tool(ToolCallResult("f", f"call_{it}", ToolExecutionStatus.FAILED, (Text("see"), PIXEL)))
    ),
    "media": _each(lambda _: (user(PIXEL, Document("application/pdf", "JVBERi0=")), assistant(PIXEL))),
    "leading system messages": _each(lambda _: (Message("system", (Text("Be brief."),)),)),
    "system notes": _each(lambda _: (user(), Message("system", (Text("Be brief."),)), assistant())),
    "marked system notes": _each(lambda _: (user(), Message("system", (Text("Be brief.", native=MARK),)), assistant())),
    "marked system notes between users": _each(lambda _: (user(), Message("system", (Text("Brief.", native=MARK),)))),
    "system notes between users": _each(lambda _: (user(), Message("developer", (Text("Be brief."),)))),
    "system notes between blank answers": _each(
        lambda _: (user(), Message("system", (Text("Be brief."),)), assistant(Text("")))
    ),
    "marked messages": _each(lambda _: (Message("user", (Text("a"),), None, MARK), assistant(Text("b", native=MARK)))),
    "named messages": _each(lambda it: (Message("user", (Text("a"),), f"person {it}"), assistant())),
    "messages with extras": _each(
        lambda _: tuple(Message("user", (Text("a"),), None, {name: {"x": 1}}) for name in FORMATS)
    ),
    "unknown roles": _each(lambda _: (Message("critic", (Text("a"),)), assistant())),
    "unknown messages": _each(lambda _: tuple(Message("unknown", (Native(name, {"x": 1}),)) for name in FORMATS)),
    "many parts": lambda size: iter((user(*[Text("a")] * size), assistant(*[Text("b")] * size))),
    "empty messages": _each(lambda _: (Message("user", ()), Message("assistant", ()))),
    "blocks of other formats": _each(lambda _: (user(), assistant(*FOREIGN))),
    "blocks of other formats in one message": lambda size: iter((user(), assistant(*FOREIGN * size))),
    "reasoning": _each(lambda it: (user(), assistant(*REASONING, call(it)), tool(result(it)))),
    "reasoning in one message": lambda size: iter((user(), assistant(*REASONING * size, Text("So.")))),
    "refusals": _each(lambda _: (user(Refusal("No.")), assistant(Refusal("No.")))),
}


def request_of(name: str, shape: str, size: int) -> ModelRequest:
    """A request of one shape for a model of one format, with a tool for each call."""
    tools = tuple(ToolDefinition(f"tool_{number}", "A tool.", {"type": "object"}) for number in range(3))
    return ModelRequest(messages=tuple(MESSAGES[shape](size)), tools=tools, model=MODELS[name])


def repairing(name: str, shape: str, size: int) -> Work:
    request = request_of(name, shape, size)
    return lambda: repair(request, name, is_logged=False)


def writing(name: str, shape: str, size: int) -> Work:
    request = request_of(name, shape, size)
    return lambda: formats[name].encode_request(request)


def writing_repaired(name: str, shape: str, size: int) -> Work:
    request = repair(request_of(name, shape, size), name, is_logged=False).request
    return lambda: formats[name].encode_request(request)


def reading(name: str, shape: str, size: int) -> Work:
    """Read from bytes, from decoded JSON, and scanned, as written without repair."""
    wire, data = formats[name], formats[name].encode_request(request_of(name, shape, size)).data
    body = msgspec.json.decode(data)
    return lambda: (wire.read_request(data), wire.read_request(body))


def checking(name: str, shape: str, size: int) -> Work:
    body = msgspec.json.decode(formats[name].encode_request(request_of(name, shape, size)).data)
    return lambda: formats[name].check_request(body, advisories=True)


def fixing(shape: str, size: int) -> Work:
    """`fix_tool_call_sequence` on a plain list of messages."""
    messages = formats["openai-chat"].write_request(request_of("openai-chat", shape, size)).body["messages"]
    return lambda: fix_tool_call_sequence(messages)


def arranging(layout: Any, shape: str, size: int) -> Work:
    messages = tuple(MESSAGES[shape](size))
    return lambda: write_messages(messages, [], layout=layout)


def gemini_turn(size: int, *, ids: bool, names: int, step: int) -> dict[str, Any]:
    """Calls and their results, as clients write them: `step` is -1 if the results come in reverse."""

    def part(kind: str, field: str, number: int) -> dict[str, Any]:
        value = {"name": f"tool_{number % names}", field: {"output": "Rain"}}
        return {kind: {**value, "id": f"id_{number}"} if ids else value}

    calls = [part("functionCall", "args", number) for number in range(size)]
    results = [part("functionResponse", "response", number) for number in range(size)[::step]]
    return {"contents": [{"role": "user", "parts": [{"text": "Go."}]}, _model(calls), _user(results)]}


def _model(parts: list[Any]) -> dict[str, Any]:
    return {"role": "model", "parts": parts}


def _user(parts: list[Any]) -> dict[str, Any]:
    return {"role": "user", "parts": parts}


def _ollama(size: int, order: list[int], result_fields: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    calls = [{"id": f"call_{it}", "function": {"name": f"tool_{it}", "arguments": {}}} for it in range(size)]
    messages = [{"role": "tool", "content": "Rain", **result_fields(number)} for number in order]
    return {"model": "m", "messages": [{"role": "assistant", "content": "", "tool_calls": calls}, *messages]}


BODIES: dict[str, dict[str, Callable[[int], dict[str, Any]]]] = {
    "gemini": {
        f"{'ids' if ids else 'no ids'}, {names} names, {label}": (partial(gemini_turn, ids=ids, names=names, step=step))
        for ids in (False, True)
        for names in (1, 2, 1_000_000)
        for label, step in (("in order", 1), ("in reverse", -1))
    }
    | {
        "results in separate contents after an odd one": lambda size: {
            "contents": [
                _model([{"functionCall": {"name": "f", "args": {}}}] * size),
                {"role": "user", "parts": [{"text": "x"}], "odd": 1},
                *[_user([{"functionResponse": {"name": "f", "response": {"output": "r"}}}])] * size,
            ]
        },
        "results after results of no call": lambda size: {
            "contents": [
                _model([{"functionCall": {"name": "f", "args": {}}}] * size),
                _user([{"functionResponse": {"name": "other", "response": {"output": "r"}}}] * size),
            ]
        },
    },
    "ollama": {
        "ids in order": lambda size: _ollama(size, list(range(size)), lambda it: {"tool_call_id": f"call_{it}"}),
        "ids in reverse": lambda size: _ollama(
            size, list(reversed(range(size))), lambda it: {"tool_call_id": f"call_{it}"}
        ),
        "names in order": lambda size: _ollama(size, list(range(size)), lambda it: {"tool_name": f"tool_{it}"}),
        "names in reverse": lambda size: _ollama(
            size, list(reversed(range(size))), lambda it: {"tool_name": f"tool_{it}"}
        ),
        "neither": lambda size: _ollama(size, list(range(size)), lambda _: {}),
    },
    "ollama-generate": {
        "images": lambda size: {"model": "m", "prompt": "p", "images": ["iVBORw0KGgo="] * size},
    },
    "openai-completions": {
        "prompts": lambda size: {"model": "m", "prompt": ["p"] * size},
        "stop": lambda size: {"model": "m", "prompt": "p", "stop": ["p"] * size},
    },
}


def reading_body(name: str, shape: str, size: int) -> Work:
    body = BODIES[name][shape](size)
    wire, data = client_formats[name], msgspec.json.encode(body)
    return lambda: (wire.read_request(data), wire.read_request(body))


def _tools(kind: str, size: int) -> tuple[ToolDefinition, ...]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    match kind:
        case "legal":
            return tuple(ToolDefinition(f"tool_{number}", "A tool.", schema) for number in range(size))
        case "illegal names":
            return tuple(ToolDefinition(f"tool {number}!", "A tool.", schema) for number in range(size))
        case "freeform":
            return tuple(ToolDefinition(f"tool_{number}", freeform=True) for number in range(size))
        case _:
            properties = {f"property {number}!": {"type": "string"} for number in range(size)}
            return (ToolDefinition("f", "A tool.", {"type": "object", "properties": properties}),)


TOOLS = ("legal", "illegal names", "freeform", "many properties")


def declaring(name: str, kind: str, size: int) -> Work:
    request = ModelRequest(messages=(user(),), tools=_tools(kind, size), model=MODELS[name])
    data = formats[name].encode_request(request).data

    def work() -> None:
        formats[name].encode_request(request)
        formats[name].read_request(data)
        formats[name].check_request(data)

    return work


def shapes() -> Iterator[tuple[str, Shape]]:
    """Every shape, by what is done with it."""
    for shape in MESSAGES:
        for name in FORMATS:
            yield f"repair for {name}: {shape}", partial(repairing, name, shape)
            yield f"write {name}: {shape}", partial(writing, name, shape)
            yield f"write {name}, repaired: {shape}", partial(writing_repaired, name, shape)
            yield f"read {name}: {shape}", partial(reading, name, shape)
            yield f"check {name}: {shape}", partial(checking, name, shape)
        yield f"fix_tool_call_sequence: {shape}", partial(fixing, shape)
        for layout in ("per_part", "iterations"):
            yield f"layout {layout}: {shape}", partial(arranging, layout, shape)
    for name in BODIES:
        for shape in BODIES[name]:
            yield f"read {name}: {shape}", partial(reading_body, name, shape)
    for name in FORMATS:
        for kind in TOOLS:
            yield f"tools of {name}: {kind}", partial(declaring, name, kind)
