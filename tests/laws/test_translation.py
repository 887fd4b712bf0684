"""L3, L4, L6 and L9 across formats: the recorded traffic of each, carried to every other.

L2 (a format to itself) and the cuts of L6 are in `packages/antiphon/tests/wire`, with each format.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.errors import WireError
from antiphon.parts import Native, Refusal, Text, ToolCallRequest, ToolCallResult
from antiphon.repair import repair
from antiphon.wire import FORMATS, Assembler, Message, ModelOutput, ModelRequest, ToolDefinition, formats
from antiphon.wire.loss import Loss
from support.corpus import accepted_requests, client_requests, in_collection, recorded, streams
from support.damage import HUGE, damaged

PAIRS = [(source, target) for source in FORMATS for target in FORMATS]
MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}


def carried(body: dict[str, Any], source: str, target: str) -> tuple[ModelRequest, dict[str, Any], list[Any]]:
    request = formats[source].read_request(body)
    if source != target:
        request = msgspec.structs.replace(request, model=MODELS[target])
    fixed, _ = repair(request, target)
    written, losses = formats[target].write_request(fixed)
    return request, msgspec.json.decode(msgspec.json.encode(written)), losses


def everything(name: str) -> Iterator[dict[str, Any]]:
    yield from accepted_requests(name)
    yield from client_requests(name)
    if name == "openai-chat":
        yield from accepted_requests("openai_compatible")


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != pair[1]])
def test_every_recorded_request_is_accepted_everywhere(
    source: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """L4, and L3 by counting words: each text of the source is in the target, or a loss names the path of that very part.
    No exceptions are needed."""
    bodies = lost = 0
    refused: list[str] = []
    silent: list[str] = []
    for body in everything(source):
        request, written, losses = carried(body, source, target)
        bodies += 1
        lost += len(losses)
        refused += [str(found) for found in formats[target].check_request(written)]
        silent += missing_words(request, written, losses)
        silent += missing_tools(request, written, losses)
    with capsys.disabled():
        print(f"\n  {source} to {target}: {bodies} bodies, {lost} losses reported", end="")
    assert bodies > in_collection(100)
    assert refused == []
    assert silent == []


@pytest.mark.parametrize("source", FORMATS)
def test_malformed_requests_are_carried_to_every_format(source: str) -> None:
    """L4 for bodies that no client should send: they are refused in words, or become legal. L5: repair is idempotent."""
    dice = random.Random(4)
    for body in [*everything(source)] * 4:
        broken = damaged(body, dice)
        try:
            request = formats[source].read_request(msgspec.json.encode(broken))
        except WireError:
            continue
        assert formats[source].read_request(broken) == request
        for target in FORMATS:
            fixed, _ = repair(msgspec.structs.replace(request, model=MODELS[target]), target)
            assert repair(fixed, target).request is fixed
            written = formats[target].encode_request(fixed).data
            if target != source:
                assert [str(found) for found in formats[target].check_request(written)] == [], broken


@pytest.mark.parametrize("source", FORMATS)
def test_a_number_that_no_float_holds_is_carried_from_any_place_of_a_body(source: str) -> None:
    """From bytes and from values alike; what is written is legal."""
    small = [body for body in everything(source) if len(msgspec.json.encode(body)) < 2_500]
    with_media_or_strict = [body for body in small if re.search(r"'strict': True|[Ff]ile_?|inline", repr(body))]
    for body in (*small[:2], *with_media_or_strict[:4]):
        for broken in with_each_value_replaced(body, HUGE):
            try:
                request = formats[source].read_request(msgspec.json.encode(broken))
            except WireError:
                continue
            assert formats[source].read_request(broken) == request
            for target in FORMATS:
                fixed, _ = repair(msgspec.structs.replace(request, model=MODELS[target]), target)
                written = formats[target].encode_request(fixed).data
                if target != source:
                    assert [str(found) for found in formats[target].check_request(written)] == [], broken


def with_each_value_replaced(body: dict[str, Any], value: Any) -> Iterator[dict[str, Any]]:
    """The body with another value at each place in turn."""
    places: list[tuple[Any, Any]] = [(body, key) for key in body]
    for holder, key in places:  # grows while it is read
        inner = holder[key]
        if isinstance(inner, dict | list):
            places.extend((inner, index) for index in (inner if isinstance(inner, dict) else range(len(inner))))
        holder[key] = value
        yield body
        holder[key] = inner


def missing_words(request: ModelRequest, written: dict[str, Any], losses: list[Any]) -> list[str]:
    there = "\n".join(strings(written))
    lost = {loss.path for loss in losses}
    return [
        f"{path}: {text[:80]!r}"
        for index, message in enumerate(request.messages)
        for path, text in texts_of(message, f"messages[{index}]")
        if text.strip() and text.strip() not in there and path not in lost
    ]


def test_a_loss_excuses_only_the_text_whose_path_it_names() -> None:
    request = ModelRequest(messages=(Message("user", (Text("kept"), Text("gone"))),))
    written = {"messages": [{"role": "user", "content": "kept"}]}
    for path in ("messages[0]", "messages[0].parts[0]", "messages[0].parts[1].native"):
        assert missing_words(request, written, [Loss(path, "text", "dropped")]) == ["messages[0].parts[1]: 'gone'"]
    assert missing_words(request, written, [Loss("messages[0].parts[1]", "text", "dropped")]) == []


CALLABLE = {"parameters", "parametersJsonSchema", "input_schema", "format"}


def missing_tools(request: ModelRequest, written: dict[str, Any], losses: list[Any]) -> list[str]:
    """The callable tools of the request that the target does not declare, without a loss that names the tool itself."""
    declared, lost = set(tool_names(written, any_shape=True)), {loss.path for loss in losses}
    return [
        f"{path}: {name}"
        for path, name in named_tools(request)
        if path not in lost and not any(name in known for known in declared)
    ]


def named_tools(request: ModelRequest) -> Iterator[tuple[str, str]]:
    """The names of callable tools, each with the path that a loss of it must name."""
    for index, tool in enumerate(request.tools):
        names = [tool.name] if isinstance(tool, ToolDefinition) else tool_names({"tools": [tool.data]})
        yield from ((f"tools[{index}]", name) for name in names if is_plain_name(name))
    for index, message in enumerate(request.messages):
        for position, part in enumerate(message.parts):
            if isinstance(part, Native):
                yield from (
                    (f"messages[{index}].parts[{position}]", name) for name in tool_names({"tools": [part.data]})
                )


def test_a_loss_excuses_only_the_tool_whose_path_it_names() -> None:
    request = ModelRequest(tools=(ToolDefinition("kept"), ToolDefinition("gone")))
    written = {"tools": [{"type": "function", "function": {"name": "kept", "parameters": {}}}]}
    for path in ("tools", "tools[0]", "tools[1].parameters", "tool_choice.names"):
        assert missing_tools(request, written, [Loss(path, "tool", "dropped")]) == ["tools[1]: gone"]
    assert missing_tools(request, written, [Loss("tools[1]", "tool", "dropped")]) == []


def tool_names(body: dict[str, Any], *, any_shape: bool = False) -> Iterator[str]:
    """The names of functions and custom tools, at any depth: tools may be in namespaces and in messages.

    `any_shape`: also those without parameters.
    """
    stack: list[Any] = [body]
    while stack:
        holder = stack.pop()
        if not isinstance(holder, dict):
            continue
        for key in ("tools", "functionDeclarations", "input"):
            members = holder.get(key)
            stack.extend(members if isinstance(members, list) else ())
        for tool in (holder, holder.get("function"), holder.get("custom")):
            if not isinstance(tool, dict) or (not any_shape and tool.keys().isdisjoint(CALLABLE)):
                continue
            name = tool.get("name")
            if isinstance(name, str) and is_plain_name(name):
                yield name


def is_plain_name(name: str) -> bool:
    """Whether every format takes a name as it is."""
    return re.fullmatch(r"[a-zA-Z]\w{0,40}", name) is not None


def texts_of(message: Message, place: str) -> Iterator[tuple[str, str]]:
    """The texts of a message, each with the path that a loss of it must name."""
    for position, part in enumerate(message.parts):
        path = f"{place}.parts[{position}]"
        if isinstance(part, Text | Refusal):
            yield path, part.text
        elif isinstance(part, ToolCallResult):
            yield from (
                (f"{path}.content[{number}]", inner.text)
                for number, inner in enumerate(part.content)
                if isinstance(inner, Text) and not inner.text.startswith(("{", "["))
            )


def strings(value: Any) -> Iterator[str]:
    """Every string in a body, those inside JSON strings too."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_same_request_gives_the_same_bytes_and_a_longer_one_the_same_beginning(source: str, target: str) -> None:
    """L9. Messages that end a request may be closed differently; what comes before them may not change."""
    for body in list(everything(source))[:150]:
        request = formats[source].read_request(body)
        fixed, _ = repair(msgspec.structs.replace(request, model=MODELS[target]), target)
        whole = msgspec.json.encode(formats[target].write_request(fixed).body)
        assert msgspec.json.encode(formats[target].write_request(fixed).body) == whole
        blocks = flattened(msgspec.json.decode(whole))
        for end in turn_ends(fixed.messages):
            shorter = msgspec.structs.replace(fixed, messages=fixed.messages[:end])
            beginning = flattened(msgspec.json.decode(msgspec.json.encode(formats[target].write_request(shorter).body)))
            assert blocks[: len(beginning)] == beginning


def turn_ends(messages: tuple[Message, ...]) -> list[int]:
    """Where a request could have ended: after user text or tool results, before the model's answer."""
    return [
        index
        for index in range(1, len(messages))
        if messages[index].role == "assistant" and messages[index - 1].role in ("user", "tool")
    ][:6]


def flattened(body: dict[str, Any]) -> list[bytes]:
    """The conversation as a flat list: every message, or every block of formats that merge messages."""
    if "contents" in body:
        return [
            msgspec.json.encode((content.get("role"), part))
            for content in body["contents"]
            for part in content["parts"]
        ]
    if "input" in body:
        items = body["input"]
        return (
            [msgspec.json.encode(item) for item in items] if isinstance(items, list) else [msgspec.json.encode(items)]
        )
    blocks: list[bytes] = []
    for message in body.get("messages", ()):
        content = message.get("content")
        if isinstance(content, str) and set(message) == {"role", "content"}:
            content = [{"type": "text", "text": content}]  # the short form of the same
        if isinstance(content, list) and "tool_calls" not in message and message["role"] != "tool":
            blocks += [msgspec.json.encode((message["role"], block)) for block in content]
        else:
            blocks.append(msgspec.json.encode(message))
    return blocks


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != pair[1]])
def test_every_recorded_response_is_carried(source: str, target: str) -> None:
    for record in recorded(source):
        if record["status"] != 200 or not isinstance(record["response"], dict):
            continue
        output = formats[source].read_response(record["response"])
        written, losses = formats[target].write_response(output)
        again = formats[target].read_response(msgspec.json.decode(msgspec.json.encode(written)))
        assert missing_texts(output, again, losses) == [], record["id"]
        assert calls(again) == calls(output), record["id"]
        if output.usage and again.usage:
            assert again.usage.completion_tokens == output.usage.completion_tokens, record["id"]
            assert again.usage.prompt_tokens == output.usage.prompt_tokens, record["id"]


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != pair[1]])
def test_every_recorded_stream_is_carried(source: str, target: str) -> None:
    """L6 across formats: written as a stream of another format and read again, it says the same."""
    count = 0
    for stream in streams(source):
        first, second = Assembler(), Assembler()
        reader, writer, other = (
            formats[source].stream_reader(),
            formats[target].stream_writer("m"),
            formats[target].stream_reader(),
        )
        for delta in [*reader.feed(stream), *reader.close()]:
            first.add(delta)
            for echoed in other.feed(writer.write(delta)):
                second.add(echoed)
        for echoed in [*other.feed(writer.close()), *other.close()]:
            second.add(echoed)
        assert first.is_finished == second.is_finished
        assert (first.error is None) == (second.error is None)
        if first.is_finished:
            assert missing_texts(first.output, second.output, writer.losses) == []
            assert calls(second.output) == calls(first.output)
            count += 1
    assert count > in_collection(10)


def missing_texts(output: ModelOutput, again: ModelOutput, losses: list[Any]) -> list[str]:
    """What differs in the text of an answer, without a loss that names the part it was in."""
    lost = {loss.path for loss in losses}
    expected = "".join(
        part.text if isinstance(part, Text | Refusal) and f"parts[{index}]" not in lost else transcript_of(part)
        for index, part in enumerate(output.parts)
        if isinstance(part, Text | Refusal) or f"parts[{index}]" in lost
    )
    return [] if expected == text_in(again) else [f"{expected[:80]!r} became {text_in(again)[:80]!r}"]


def transcript_of(part: Any) -> str:
    """The words of sound that another format gets as text."""
    found = [extras.get("transcript") for extras in (getattr(part, "native", None) or {}).values()]
    return "".join(filter(None, found))


def text_in(output: ModelOutput) -> str:
    return "".join(part.text for part in output.parts if isinstance(part, Text | Refusal))


def calls(output: ModelOutput) -> list[tuple[str, object]]:
    return [(part.tool_name, arguments(part)) for part in output.parts if isinstance(part, ToolCallRequest)]


def arguments(call: ToolCallRequest) -> object:
    try:
        value = call.parse_arguments()
    except ValueError:
        return call.arguments
    wrapped = [
        value[key] for key in ("input", "_raw") if set(value) == {key}
    ]  # freeform, or no object: carried inside one
    return wrapped[0] if wrapped else value
