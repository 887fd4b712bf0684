"""Arguments judged by a JSON Schema that was given as it is: drafts, patterns, numbers, limits."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from antiphon.errors import InvalidArguments, InvalidTool
from antiphon.tools import Tool
from antiphon.tools.compiled_schema import describe_schema, usage

RAW = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "^/"},
        "mode": {"enum": ["r", "w"]},
        "ranges": {"type": "array", "items": {"$ref": "#/$defs/range"}, "maxItems": 2},
        "address": {"type": "string", "not": {"const": "x"}},
        "port": {"type": "integer"},
    },
    "required": ["path"],
    "additionalProperties": False,
    "dependentRequired": {"port": ["address"]},
    "$defs": {"range": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "minItems": 2}},
}


def raw(schema: dict[str, Any] | None) -> Tool:
    return Tool.from_schema("read", "Read a file.", schema, lambda arguments, context: arguments)


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({}, ["path: missing, and it is required (string)"]),
        ({"path": "a"}, ['path: must match the pattern ^/, got the string "a"']),
        ({"path": "/a", "mod": "r"}, ["mod: there is no such argument; did you mean 'mode'?"]),
        ({"path": "/a", "ranges": [[1, 2], [1]]}, ["ranges[1]: must have at least 2 items, and has 1"]),
        ({"path": "/a", "ranges": [[1, "b"]]}, ['ranges[0][1]: expected integer, got the string "b"']),
        ({"path": "/a", "port": 1}, ["address: missing, and it is required with 'port'"]),
        (
            {"path": 1, "port": 1},
            ["path: expected string, got 1", "address: missing, and it is required with 'port'"],
        ),
        # Rules without words of our own: the validator's.
        ({"path": "/a", "address": "x"}, ['address: {"const":"x"} is not allowed for "x"']),
    ],
)
def test_raw_schemas_are_judged_by_a_validator(arguments: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(InvalidArguments) as refused:
        raw(RAW).validate(arguments)
    assert sorted(refused.value.problems) == sorted(problems)


def test_raw_schemas_hand_arguments_on_as_they_are() -> None:
    arguments = {"path": "/a", "ranges": [[1, 2]]}
    assert raw(RAW).validate(arguments) is arguments
    assert raw({}).validate({"anything": 1}) == {"anything": 1}
    assert raw(None).parameters["type"] == "object"


def test_an_unreadable_pattern_is_not_checked_and_the_rest_is(caplog: pytest.LogCaptureFixture) -> None:
    name = {"type": "string", "pattern": r"^a\Z", "maxLength": 3}  # \Z is Python's, and not JSON Schema's
    made = raw({"type": "object", "properties": {"name": name}})
    assert "has 1 patterns that cannot be read and are not checked" in caplog.text
    assert made.validate({"name": "Åse"}) == {"name": "Åse"}
    with pytest.raises(InvalidArguments, match="name: must have at most 3 characters"):
        made.validate({"name": "Åses"})
    # Where leaving it out could refuse more, nothing is checked.
    refused = raw({"type": "object", "properties": {"name": {"not": {"pattern": r"^a\Z"}}}})
    assert refused.validate({"name": "b"}) == {"name": "b"}


def test_patterns_know_letters_of_all_scripts() -> None:
    made = raw({"type": "object", "properties": {"name": {"type": "string", "pattern": r"^\p{L}+$"}}})
    assert made.validate({"name": "Åse"}) == {"name": "Åse"}
    with pytest.raises(InvalidArguments):
        made.validate({"name": "5"})


# Each of these takes Python's engine longer than anybody waits.
ENDLESS = [r"^(a+)+$", r"^(a|a)*$", r"^(\w+\s?)*$", r"^([a-z]+)*[0-9]$"]
BACKTRACKING = [r"^(?:a|a)+(?!c)b$", r"^((a+)\2?)+$", r"^(.*)(.*)(.*)(.*)\1x$"]


@pytest.mark.parametrize("pattern", [*ENDLESS, *BACKTRACKING])
def test_no_pattern_runs_without_bound(pattern: str) -> None:
    text = "a" * 5_000 + "!"
    properties = {"text": {"type": "string", "pattern": pattern}}
    nested = {"type": "object", "properties": {"inner": {"type": "object", "properties": properties}}}
    for schema, arguments in (
        ({"type": "object", "properties": properties}, {"text": text}),
        (nested, {"inner": {"text": text}}),
        ({"type": "object", "patternProperties": {pattern: True}, "additionalProperties": False}, {text: 1}),
        ({"type": "object", "propertyNames": {"pattern": pattern}}, {text: 1}),
        ({"type": "object", "anyOf": [{"properties": properties}, {"required": ["other"]}]}, {"text": text}),
    ):
        with pytest.raises(InvalidArguments) as refused:
            raw(schema).validate(arguments)
        assert len(str(refused.value)) < 2_000


def test_a_pattern_with_too_many_steps_is_reported() -> None:
    made = raw({"type": "object", "properties": {"text": {"type": "string", "pattern": BACKTRACKING[0]}}})
    with pytest.raises(InvalidArguments) as refused:
        made.validate({"text": "a" * 5_000})
    assert refused.value.problems == (
        "text: could not be checked against its pattern in a reasonable number of steps; send a shorter or simpler text",
    )


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "integer"}, [5, 5.0, 1e300, -0.0], [5.5, True, "5"]),
        ({"multipleOf": 0.1}, [0.3, 0.7, 1.1, 3], [0.35]),
        ({"multipleOf": 0.01}, [19.99, 4.35, 1.1, 100], [19.995]),
        ({"multipleOf": 0.0001}, [0.0075], [0.00751]),
        ({"uniqueItems": True}, [[1, True], [0, False], ["1", 1], [[1], [True]]], [[1, 1.0], [{"a": 1}, {"a": 1.0}]]),
        ({"enum": [1, "a"]}, [1.0, "a"], [True]),
        ({"const": {"a": False}}, [{"a": False}], [{"a": 0}]),
        ({"type": "array", "prefixItems": [{}], "items": False}, [[], [1]], [[1, 2]]),
    ],
)
def test_numbers_and_equality_are_those_of_json_schema(
    schema: dict[str, Any], right: list[Any], wrong: list[Any]
) -> None:
    made = raw({"type": "object", "properties": {"value": schema}})
    for value in right:
        assert made.validate({"value": value}) == {"value": value}
    for value in wrong:
        with pytest.raises(InvalidArguments, match="value"):
            made.validate({"value": value})


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "problem"),
    [
        (  # a draft-7 tuple without $schema
            {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
            ["a", 1],
            ["a", "b"],
            'value[1]: expected integer, got the string "b"',
        ),
        (  # a bound of draft 4 without $schema
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            2,
            1,
            "value: must be more than 1, got 1",
        ),
        ({"prefixItems": [{"type": "string"}]}, ["a"], [1], "value[0]: expected string, got 1"),
    ],
)
def test_without_a_named_draft_the_one_that_fits_is_used(
    schema: dict[str, Any], right: Any, wrong: Any, problem: str
) -> None:
    made = raw({"type": "object", "properties": {"value": schema}})
    assert made.validate({"value": right}) == {"value": right}
    with pytest.raises(InvalidArguments) as refused:
        made.validate({"value": wrong})
    assert refused.value.problems == (problem,)


def test_definitions_of_older_drafts_are_explained() -> None:
    made = raw(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"who": {"$ref": "#/definitions/person"}},
            "definitions": {"person": {"type": "object", "required": ["name"]}},
        }
    )
    with pytest.raises(InvalidArguments) as refused:
        made.validate({"who": {}})
    assert refused.value.problems == ("who.name: missing, and it is required (anything)",)


def test_values_without_end_are_refused() -> None:
    tree = raw({"type": "object", "additionalProperties": {"$ref": "#"}})
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidArguments, match="the arguments: nested more than 500 levels deep"):
        tree.validate(deep)
    while deep:  # taken apart here: an interpreter would do it by recursion
        deep = deep["a"]
    with pytest.raises(InvalidArguments, match="surrogates not allowed"):
        tree.validate({"\ud800": {}})


def test_an_invalid_schema_is_refused() -> None:
    with pytest.raises(InvalidTool, match=r"tool 'read': its JSON Schema is not valid: at \$\.properties\.a\.type"):
        raw({"type": "object", "properties": {"a": {"type": "nonsense"}}})
    with pytest.raises(InvalidTool, match="type 'object'"):
        raw({"type": "string"})


def test_an_external_reference_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        for reference in (place, "file:///etc/hostname", "#/$defs/nothing"):
            with pytest.raises(
                InvalidTool, match="is referred to and not in the schema; other documents are not fetched"
            ):
                raw({"type": "object", "properties": {"a": {"$ref": reference}}})
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_the_signature_of_a_tool_in_one_line() -> None:
    assert usage("read", RAW) == (
        'read(path: string, mode?: one of "r", "w", ranges?: array of array, address?: string, port?: integer)'
    )
    assert describe_schema({"type": ["string", "null"]}, {}) == "string or null"
    assert describe_schema({"$ref": "#/$defs/a"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}}) == "anything"


def test_a_flood_of_names_or_items_has_a_short_report() -> None:
    count = 300_000
    numbers = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    schema = {"type": "object", "properties": {"numbers": numbers}, "additionalProperties": False}
    floods: list[dict[str, Any]] = [
        {f"name_{number}": 1 for number in range(count)},
        {"numbers": [-1] * count},
        {"numbers": [1] * count + [-1]},
        {"n" * count: 1},
    ]
    for arguments in floods:
        with pytest.raises(InvalidArguments) as refused:
            raw(schema).validate(arguments)
        assert 1 <= len(refused.value.problems) <= 13
        assert len(str(refused.value)) < 4_500
    many = {f"name_{number}": {"type": "integer"} for number in range(2_000)}
    with pytest.raises(InvalidArguments) as refused:
        raw({"type": "object", "properties": many}).validate({"name_1": ""})
    assert len(str(refused.value)) < 4_500
