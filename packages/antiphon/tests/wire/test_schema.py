"""What is remembered of schemas, and arguments that are passed over: the same answers as looking each time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.wire import ModelRequest, formats
from antiphon.wire.request import ToolDefinition
from antiphon.wire.tools.definitions import raw_json_object
from antiphon.wire.tools.schema import SchemaCache

SCHEMA = {"type": "OBJECT", "properties": {"city": {"type": "STRING", "nullable": True}}}


def test_a_schema_is_inspected_once() -> None:
    looked: list[Any] = []

    def look(schema: Any) -> int:
        looked.append(schema)
        return len(schema)

    count = SchemaCache(look)
    assert [count(dict(SCHEMA)) for _ in range(3)] == [2, 2, 2]
    assert len(looked) == 1
    assert count({**SCHEMA, "title": "Where"}) == 3


@pytest.mark.parametrize("schema", [{"description": "x" * 40_000}, {"default": object()}])
def test_long_and_invalid_schemas_are_not_cached(schema: dict[str, Any]) -> None:
    looked: list[Any] = []
    count = SchemaCache(looked.append)
    count(schema)
    count(schema)
    assert looked == [schema, schema]


def test_requests_do_not_share_the_schemas_of_their_tools() -> None:
    """A schema that a caller changes must not come back in another request."""
    body = {"contents": [], "tools": [{"functionDeclarations": [{"name": "weather", "parameters": SCHEMA}]}]}
    data = msgspec.json.encode(body)

    def parameters(request: ModelRequest) -> dict[str, Any]:
        (tool,) = msgspec.to_builtins(request.tools)
        found: dict[str, Any] = tool["parameters"]
        return found

    first = formats["gemini"].read_request(data)
    kept = parameters(first)
    first.tools[0].parameters.clear()  # type: ignore[union-attr]
    second = formats["gemini"].read_request(data)
    assert parameters(second) == kept == {"type": "object", "properties": {"city": {"type": ["string", "null"]}}}
    assert formats["gemini"].write_request(second).body["tools"] == body["tools"]


@pytest.mark.parametrize("text", ["{}", ' {"a": 1} ', '{"é": [{"b": null}]}', '{"a": 1, "a": 2}'])
def test_the_json_of_an_object_is_passed_over(text: str) -> None:
    raw = raw_json_object(text)
    assert raw is not None
    assert msgspec.json.decode(raw) == msgspec.json.decode(text)


DEEP = '{"a":' + "[" * 500_000 + "]" * 500_000 + "}"  # deeper than any interpreter allows; their limits differ widely
NO_OBJECTS = [
    "",
    " ",
    "null",
    "[1]",
    '"{}"',
    "1",
    "{",
    '{"a":}',
    '{"a": 1} x',
    '{"a": NaN}',
    '{"a": "\\ud800"}',
    "{\ud800}",
]


@pytest.mark.parametrize("text", [*NO_OBJECTS, DEEP])
def test_anything_but_an_object_is_none(text: str) -> None:
    assert raw_json_object(text) is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("openai-chat", "$defs"),
        ("openai-chat", "definitions"),
        ("openai-responses", "$defs"),
        ("openai-responses", "definitions"),
        ("anthropic", "$defs"),  # it calls the other ones `$defs`
    ],
)
def test_wrapped_parameters_keep_shared_definitions_at_the_root(name: str, key: str) -> None:
    schema = {"type": "array", "items": {"$ref": f"#/{key}/Town"}, key: {"Town": {"type": "string"}}}
    request = ModelRequest(tools=(ToolDefinition("rain", None, schema),), model="m", max_output_tokens=9)
    body, losses = formats[name].write_request(request)
    tool = body["tools"][0]
    parameters = tool.get("function", tool).get("parameters") or tool["input_schema"]
    assert parameters[key] == {"Town": {"type": "string"}}
    assert parameters["properties"] == {"value": {"type": "array", "items": {"$ref": f"#/{key}/Town"}}}
    assert [loss.what for loss in losses if "wrapped" in loss.why] == ["schema"]


@pytest.mark.parametrize("width", [1, 12])
def test_definitions_that_refer_to_each_other_are_merged_once(width: int) -> None:
    """Twelve references on each of sixteen levels are 10^17 branches, if each is followed."""
    levels = {f"A{level}": {"anyOf": [{"$ref": f"#/$defs/A{level + 1}"}] * width} for level in range(16)}
    last = {"type": "object", "properties": {"deep down": {"type": "string"}}, "required": ["deep down"]}
    schema = {"$ref": "#/$defs/A0", "$defs": {**levels, "A8": {**last, "anyOf": [{"$ref": "#/$defs/A0"}]}}}
    request = ModelRequest(model="claude-sonnet-4-5", tools=(ToolDefinition("look", None, schema),))
    (tool,) = formats["anthropic"].write_request(request).body["tools"]
    (key,) = tool["input_schema"]["properties"]
    assert key.startswith("deep_down_")
    assert "anyOf" not in tool["input_schema"]
