"""What real programs send, replayed over HTTP to upstreams of every format: accepted, answered, and every word arrives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.parts import Text, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import ModelRequest, ToolDefinition
from gateway.rig import Client, Got, Rig, rig
from gateway.strict_upstream import text_answer
from support.corpus import CORPUS

WIRES = {"chat": "openai-chat", "openai-chat": "openai-chat", "responses": "openai-responses"}
OUR_OWN = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding"}
ANSWER = "Everything arrived."


def captures() -> list[tuple[str, dict[str, Any]]]:
    return [(path.name, msgspec.json.decode(path.read_bytes())) for path in sorted((CORPUS / "clients").glob("*.json"))]


def source_of(capture: dict[str, Any]) -> str:
    return WIRES.get(capture["wire"], str(capture["wire"]))


def model_of(capture: dict[str, Any]) -> str:
    """The model a program asked for."""
    in_path = re.search(r"/models/([^:]+):", capture["path"])
    return in_path[1] if in_path else str((capture["body"] or {}).get("model", ""))


def asked_of(capture: dict[str, Any], target: str) -> str:
    """What to ask for: its own model where the upstream speaks its format, for what it asks depends on that."""
    own = f"{target}-{model_of(capture)}"
    return own if source_of(capture) == target else f"to-{target}"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    own = {(source_of(capture), model_of(capture)) for _, capture in captures()}
    with rig(models={f"{source}-{model}": [f"{source}/{model}"] for source, model in own if model}) as running:
        for upstream in running.upstreams.values():
            upstream.answer = lambda _: text_answer(ANSWER)
        yield running


def strings(value: Any) -> Iterator[str]:
    """Every text in a body, wherever it stands."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def words(request: ModelRequest) -> Iterator[str]:
    """What a request says: its texts, the names and results of its calls, its tools."""
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Text):
                yield part.text
            elif isinstance(part, ToolCallResult):
                yield from (piece.text for piece in part.content if isinstance(piece, Text))
            elif isinstance(part, ToolCallRequest):
                yield part.tool_name
    for tool in request.tools:
        if isinstance(tool, ToolDefinition):
            yield tool.name
            yield tool.description or ""


def arrived(phrase: str, received_text: str) -> bool:
    """Whether it arrived: as it is, or taken apart where it is JSON and the format takes results as objects."""
    if phrase in received_text:
        return True
    try:
        return all(text in received_text for text in strings(msgspec.json.decode(phrase)))
    except msgspec.DecodeError:
        return False


def replayed(client: Client, capture: dict[str, Any], target: str, before: Got | None) -> Got:
    """The capture as it was sent, but for the model and the ids that another server gave to its answer `before`."""
    body, path = dict(capture["body"] or {}), capture["path"]
    model = asked_of(capture, target)
    path = re.sub(r"(/models/)[^:]+", rf"\1{model}", path)
    if "model" in body:
        body["model"] = model
    if before is not None and (
        given := re.search(rb'"id":"(resp_[^"]+)".*?"id":"(msg_[^"]+)"', before.body, re.DOTALL)
    ):
        response_id, item_id = given[1].decode(), given[2].decode()
        if body.get("previous_response_id"):
            body["previous_response_id"] = response_id
        if isinstance(body.get("input"), list):
            body["input"] = [
                {**item, "id": item_id} if item.get("type") == "item_reference" else item for item in body["input"]
            ]
    headers = {
        name.lower(): value.replace("…", "")  # where the recorder cut it
        for name, value in capture["headers"].items()
        if name.lower() not in OUR_OWN
    }
    address = f"{path}?{capture['query']}" if capture["query"] else path
    return client.post(address, body, headers) if capture["method"] == "POST" else client.get(address, **headers)


@pytest.mark.parametrize("target", FORMATS)
def test_every_request_of_a_real_program_is_answered(gateway: Rig, target: str) -> None:
    found = captures()
    upstream = gateway.upstreams[target]
    got: Got | None = None
    with gateway.client() as client:
        for name, capture in found:
            upstream.received.clear()
            source = source_of(capture)
            got = replayed(client, capture, target, got)
            assert got.status == 200, (name, got.body[:400])
            assert upstream.refused == [], name
            if capture["method"] == "GET" or capture["path"].endswith("count_tokens"):
                assert got.json.get("input_tokens") or got.json["data"], name
                continue
            streams = "event-stream" in got.headers["content-type"]
            output = got.output(source, streams=streams)
            assert text_of(output.parts) == ANSWER, name
            assert streams == bool(capture["body"].get("stream") or "stream" in capture["path"]), name
            received_text = "\n".join(strings(msgspec.json.decode(upstream.received[-1].body)))
            asked = formats[source].read_request(capture["body"])
            missing = [phrase for phrase in words(asked) if not arrived(phrase, received_text)]
            assert not missing or "x-antiphon-losses" in got.headers, (name, missing)
            assert all(phrase.strip() == "" for phrase in missing), (name, missing, got.headers["x-antiphon-losses"])
