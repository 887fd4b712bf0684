"""Tools and output formats of the Messages API: choice, strictness, schemas."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from antiphon.parts import (
    Document,
)
from antiphon.wire import (
    OutputFormat,
    ToolChoice,
    ToolDefinition,
)
from support.wire_formats import ANTHROPIC
from wire.anthropic.sample_requests import SCHEMA, TOOL, request, user, written

check_request = ANTHROPIC.check_request


def test_some_of_the_tools_may_be_allowed() -> None:
    other = ToolDefinition("search")
    allowed = ToolChoice("allowed", ("search",), must_call=True)
    body, losses = written(request(tools=(TOOL, other), tool_choice=allowed))
    assert [tool["name"] for tool in body["tools"]] == ["search"]
    assert body["tool_choice"] == {"type": "any"}
    assert losses == ["tools[0]"]
    body, losses = written(request(tools=(TOOL, other), tool_choice=ToolChoice("allowed", ("gone",))))
    assert len(body["tools"]) == 2
    assert losses == ["tool_choice.names"]


def test_tools_of_one_name_and_tools_all_deferred() -> None:
    body, losses = written(request(tools=(TOOL, TOOL)))
    assert len(body["tools"]) == 1
    assert losses == ["tools[1]"]
    late = ToolDefinition("weather", None, SCHEMA, native={"anthropic": {"defer_loading": True}})
    body, losses = written(request(tools=(late,)))
    assert losses == ["tools[0].defer_loading"]
    assert check_request(body) == []


def test_strict_tools_within_their_limits() -> None:
    tools = tuple(ToolDefinition(f"t{number}", None, SCHEMA, strict=True) for number in range(22))
    body, losses = written(request(tools=tools))
    assert losses == ["tools[20].strict", "tools[21].strict"]
    assert check_request(body) == []
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    circle = ToolDefinition("t", None, {"type": "object", "$defs": {"Node": node}}, strict=True)
    assert written(request(tools=(circle,)))[1] == ["tools[0].strict"]


@pytest.mark.parametrize(
    ("schema", "expected", "lost"),
    [
        (None, {"type": "object", "properties": {}}, []),
        ({}, {"type": "object"}, []),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/definitions/A"}},
                "definitions": {"A": {"type": "null"}},
            },
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "null"}}},
            [],
        ),
        (
            {"$ref": "#/definitions/A", "definitions": {"A": {"type": "object", "properties": {}}}},
            {"type": "object", "properties": {}, "$defs": {"A": {"type": "object", "properties": {}}}},
            [],
        ),
        (
            {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"a": {"type": "string"}, "k": {"const": 1}},
                        "required": ["a", "k"],
                    },
                    {
                        "type": "object",
                        "properties": {"b": {"type": "string"}, "k": {"const": 2}},
                        "required": ["b", "k"],
                    },
                    {"type": "null"},
                ]
            },
            {
                "type": "object",
                "properties": {
                    "a": {"type": "string"},
                    "k": {"anyOf": [{"const": 1}, {"const": 2}]},
                    "b": {"type": "string"},
                },
                "required": ["k"],
            },
            ["anyOf"],
        ),
        (
            {"type": "object", "allOf": [{"required": ["a"]}, {"properties": {"a": {}}, "required": ["b"]}]},
            {"type": "object", "properties": {"a": {}}, "required": ["a", "b"]},
            ["allOf"],
        ),
        (
            {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {}}},
            {
                "type": "object",
                "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
                "required": ["value"],
                "additionalProperties": False,
                "$defs": {"A": {}},
            },
            [""],
        ),
        ({"type": ["object", "null"]}, {"type": "object"}, ["type"]),
        ({"$ref": "#/$defs/Gone"}, {"type": "object"}, ["$ref"]),
    ],
)
def test_the_input_of_a_tool_is_an_object(schema: Any, expected: Any, lost: list[str]) -> None:
    before = copy.deepcopy(schema)
    body, losses = written(request(tools=(ToolDefinition("t", None, schema),)))
    assert body["tools"][0]["input_schema"] == expected
    assert losses == [f"tools[0].parameters.{path}".removesuffix(".") for path in lost]
    assert check_request(body) == []
    assert schema == before


def test_property_keys_are_plain() -> None:
    schema = {"type": "object", "properties": {"$filter": {"type": "string"}}, "required": ["$filter"]}
    body, losses = written(request(tools=(ToolDefinition("t", None, schema),)))
    assert check_request(body) == []
    assert body["tools"][0]["input_schema"]["required"] == list(body["tools"][0]["input_schema"]["properties"])
    assert losses == ["tools[0].parameters.properties.$filter"]


def test_the_output_format_takes_no_bounds() -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0}, "x": {"oneOf": [{"type": "null"}, {"maxLength": 3}]}},
    }
    form = OutputFormat("json_schema", schema, name="person", strict=True)
    body, losses = written(request(output_format=form))
    assert body["output_config"]["format"]["schema"]["properties"] == {
        "age": {"type": "integer", "description": "minimum: 0"},
        "x": {"anyOf": [{"type": "null"}, {"description": "maxLength: 3"}]},
    }
    assert sorted(losses) == [
        "output_format.name",
        "output_format.schema.additionalProperties",
        "output_format.schema.properties.age.minimum",
        "output_format.schema.properties.x.anyOf[1].maxLength",
        "output_format.schema.properties.x.oneOf",
    ]
    assert check_request(body) == []
    assert "minimum" in schema["properties"]["age"]  # type: ignore[index]
    assert written(request(output_format=OutputFormat("json_object")))[1] == ["output_format"]
    assert written(request(output_format=OutputFormat("text")))[1] == []
    assert written(request(output_format=OutputFormat("json_schema", SCHEMA, strict=False)))[1] == [
        "output_format.strict"
    ]
    cited = Document("text/plain", text="a", native={"anthropic": {"citations": {"enabled": True}}})
    assert written(request(user(cited), output_format=OutputFormat("json_schema", SCHEMA)))[1] == ["output_format"]
