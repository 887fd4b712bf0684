"""Bodies of the Messages API for tests: the recorded ones, generated ones, and when two of them mean the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from support.corpus import CORPUS


def lines(folder: str) -> list[dict[str, Any]]:
    path = CORPUS / folder / "anthropic_messages.jsonl"
    with path.open(encoding="utf-8") as opened:
        return [json.loads(line) for line in opened]


def accepted_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request the API accepted, every conversation, and what real clients send, each with its name."""
    for record in lines("recorded"):
        if 200 <= record["status"] < 300 and isinstance(record["request"], dict):
            yield record["id"], record["request"]
    for record in lines("conversations"):
        yield record["id"], record["request"]
    for path in sorted((CORPUS / "clients").glob("*.json")):
        capture = json.loads(path.read_text(encoding="utf-8"))
        if capture["wire"] == "anthropic":
            yield path.name, capture["body"]


def answers() -> list[dict[str, Any]]:
    """Every whole answer."""
    recorded = [record["response"] for record in lines("recorded") if record["status"] == 200 and record["response"]]
    return recorded + [record["final"] for record in lines("conversations") if is_message(record["final"])]


def is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "message"


def streams() -> list[tuple[str, bytes]]:
    """Every recorded stream as bytes; those kept as lists of events are written out."""
    found = []
    for record in lines("recorded"):
        sse = record["sse"]
        if sse is not None:
            found.append((record["id"], sse.encode() if isinstance(sse, str) else written_out(sse)))
    return found


def written_out(events: list[dict[str, Any]]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode() for event in events
    )


def sent(body: Any) -> Any:
    """A body as the other side gets it."""
    return msgspec.json.decode(msgspec.json.encode(body))


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    """A request reduced to what it means, by the normalisations that `request` lists and no others."""
    body = without_nulls(body)
    messages = [normal_message(message) for message in body.pop("messages")]
    system = body.pop("system", [])
    blocks = content_of(system) if isinstance(system, str | list) else []
    while messages and is_turn(messages[0]) and messages[0]["role"] == "system":
        blocks += messages.pop(0)["content"]
    if blocks:
        body["system"] = blocks
    elif not isinstance(system, str | list):
        body["system"] = system
    for name in ("model", "tools", "metadata", "output_config"):
        if body.get(name) in ("", [], {}):
            del body[name]
    if isinstance(body.get("tools"), list):
        body["tools"] = [normal_tool(tool) for tool in body["tools"]]
    body["messages"] = merged(messages)
    return body


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def normal_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type", "custom") != "custom":
        return tool
    schema = tool.get("input_schema")
    with_type = {"input_schema": {"type": "object", **schema}} if isinstance(schema, dict) else {}
    return {name: value for name, value in tool.items() if name != "type"} | with_type


def content_of(content: str | list[Any]) -> list[Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [normal_block(block) for block in blocks if not is_blank(block)]


def is_blank(block: Any) -> bool:
    text = block.get("text") if kind_of(block) == "text" else None
    return isinstance(text, str) and not text.strip()


def kind_of(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def is_turn(message: Any) -> bool:
    is_known = isinstance(message, dict) and message.get("role") in ("user", "assistant", "system")
    return is_known and isinstance(message.get("content"), str | list)


def normal_message(message: Any) -> Any:
    return {**message, "content": content_of(message["content"])} if is_turn(message) else message


def normal_block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if kind_of(block) in ("text", "document", "tool_use", "thinking", "image", "tool_result"):
        nothing: tuple[tuple[str, Any], ...] = (
            ("citations", []),
            ("is_error", False),
            ("title", ""),
            ("signature", ""),
        )
        block = {name: value for name, value in block.items() if (name, value) not in nothing}
    if kind_of(block) == "tool_use":
        return {"input": {}, **block} if block.get("input") else {**block, "input": {}}
    if kind_of(block) == "tool_result":
        content = block.get("content", [])
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if isinstance(content, list):
            content = [normal_block(part) for part in content if part != {"type": "text", "text": ""}]
        return {**block, "content": content}
    return block


def merged(messages: list[Any]) -> list[Any]:
    turns: list[Any] = []
    for message in messages:
        if not is_turn(message):
            turns.append(message)
        elif not message["content"]:
            continue
        elif turns and is_turn(turns[-1]) and may_merge(turns[-1], message):
            turns[-1] = {**message, "content": turns[-1]["content"] + message["content"]}
        else:
            turns.append(message)
    turns = [{**turn, "content": ordered(turn)} if is_turn(turn) else turn for turn in turns]
    if turns and is_turn(turns[-1]) and turns[-1]["role"] == "assistant":
        turns[-1] = without_trailing_blanks(turns[-1])
    return turns


def may_merge(turn: dict[str, Any], message: dict[str, Any]) -> bool:
    return turn["role"] == message["role"] != "system" and len(turn) == len(message) == 2


def ordered(turn: dict[str, Any]) -> list[Any]:
    content: list[Any] = turn["content"]
    kinds = [kind_of(block) for block in content]
    if turn["role"] == "user":
        return sorted(content, key=lambda block: kind_of(block) != "tool_result")
    if "tool_use" in kinds and "text" in kinds[kinds.index("tool_use") :]:
        return sorted(content, key=lambda block: kind_of(block) == "tool_use")
    return content


def without_trailing_blanks(turn: dict[str, Any]) -> dict[str, Any]:
    *blocks, last = turn["content"]
    if kind_of(last) == "text" and isinstance(last.get("text"), str):
        last = {**last, "text": last["text"].rstrip()}
    return {**turn, "content": [*blocks, last]}


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
