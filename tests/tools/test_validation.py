"""Wrong arguments give errors a model can correct itself by: every problem, its place, what was expected and what was given."""

from __future__ import annotations

import datetime
import socket
import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from antiphon.errors import InvalidArguments, InvalidTool
from antiphon.tools import Tool, ToolContext, tool
from antiphon.tools.argument_errors import describe_errors, describe_schema, near_misses, usage


class Task(msgspec.Struct):
    title: str
    done: bool = False


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


@tool
def plan(
    title: Annotated[str, msgspec.Meta(min_length=1)],
    tasks: list[Task],
    context: ToolContext,
    priority: Literal["low", "high"] = "low",
    days: Annotated[int, msgspec.Meta(ge=1, le=30)] = 7,
    start: datetime.datetime | None = None,
    owner: Person | None = None,
) -> str:
    return title


GOOD: dict[str, Any] = {"title": "A", "tasks": [{"title": "a"}]}
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        {},
        [
            "title: missing, and it is required (string)",
            "tasks: missing, and it is required (array of object with title, done)",
        ],
    ),
    ({**GOOD, "days": "5"}, ['days: expected integer, got the string "5"']),
    ({**GOOD, "days": True}, ["days: expected integer, got true"]),
    ({**GOOD, "days": 1.5}, ["days: expected integer, got 1.5"]),
    ({**GOOD, "days": 31}, ["days: must be at most 30, got 31"]),
    ({**GOOD, "title": ""}, ["title: must have at least 1 characters, and has 0"]),
    ({**GOOD, "priority": "urgent"}, ['priority: expected one of "high", "low", got the string "urgent"']),
    ({**GOOD, "prioritty": "low"}, ["prioritty: there is no such argument; did you mean 'priority'?"]),
    (
        {**GOOD, "zzz": 1},
        ["zzz: there is no such argument; there are title, tasks, priority, days, start, owner"],
    ),
    (
        {**GOOD, "context": {}},
        ["context: there is no such argument; there are title, tasks, priority, days, start, owner"],
    ),
    (
        {"titel": "A", "tasks": []},
        ["titel: there is no such argument; did you mean 'title'?", "title: missing, and it is required (string)"],
    ),
    (
        {"title": 1, "tasks": [{"title": "a", "done": 1}, {"done": False}, "b"], "days": 0},
        [
            "title: expected string, got 1",
            "tasks[0].done: expected boolean, got 1",
            "tasks[1].title: missing, and it is required (string)",
            'tasks[2]: expected object with title, done, got the string "b"',
            "days: must be at least 1, got 0",
        ],
    ),
    (
        {**GOOD, "tasks": {"title": "a"}},
        ['tasks: expected array of object with title, done, got an object {"title":"a"}'],
    ),
    ({**GOOD, "start": "soon"}, ['start: Invalid RFC3339 encoded datetime, got the string "soon"']),
    ({**GOOD, "owner": {"name": "A", "age": "2"}}, ['owner.age: Input should be a valid integer, got the string "2"']),
    ({**GOOD, "owner": {"name": "A", "age": -1}}, ["owner.age: Input should be greater than or equal to 0, got -1"]),
    (
        {**GOOD, "owner": {"name": 1, "age": "2"}, "days": 0},
        [
            "owner.name: expected string, got 1",
            'owner.age: expected integer, got the string "2"',
            "days: must be at least 1, got 0",
        ],
    ),
]


@pytest.mark.parametrize(("arguments", "problems"), WRONG)
def test_every_problem_is_named(arguments: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(InvalidArguments) as refused:
        plan.validate(arguments)
    assert sorted(refused.value.problems) == sorted(problems)
    text = str(refused.value)
    assert text.startswith("Invalid arguments for plan; the tool was not run:\n- ")
    assert "plan(title: string, tasks: array of object with title, done, " in text
    assert not refused.value.retry


def test_a_flood_of_problems_is_bounded() -> None:
    with pytest.raises(InvalidArguments) as refused:
        plan.validate({"title": "A", "tasks": ["x" * 10_000] * 1_000})
    assert len(str(refused.value)) < 4_000
    assert refused.value.problems[-1] == "… and 988 more problems of this kind"


def test_what_is_right_is_converted_and_defaults_stay_the_functions() -> None:
    assert plan.validate(GOOD) == {"title": "A", "tasks": [Task("a")]}
    both = plan.validate({**GOOD, "owner": {"name": "A", "age": 1}, "start": "2026-01-31T12:00:00Z"})
    assert both["owner"] == Person(name="A", age=1)
    assert both["start"] == datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def test_null_for_what_need_not_be_given_means_not_given() -> None:
    assert plan.validate({**GOOD, "days": None, "priority": None}) == plan.validate(GOOD)
    assert plan.validate({**GOOD, "start": None}) == {**plan.validate(GOOD), "start": None}
    with pytest.raises(InvalidArguments, match="title: expected string, got null"):
        plan.validate({**GOOD, "title": None})


def test_lax_takes_only_text_that_is_plainly_the_value() -> None:
    @tool(lax=True)
    def scale(factor: float, times: int = 1, strict: bool = False) -> float:
        return factor

    assert scale.validate({"factor": "1.5", "times": "3", "strict": "true"}) == {
        "factor": 1.5,
        "times": 3,
        "strict": True,
    }
    with pytest.raises(InvalidArguments) as refused:
        scale.validate({"factor": "much", "times": "2.5"})
    assert refused.value.problems == (
        'factor: expected number, got the string "much"',
        'times: expected integer, got the string "2.5"',
    )


def test_a_function_without_arguments_takes_none() -> None:
    @tool
    def now() -> str:
        return ""

    assert now.validate({}) == {}
    with pytest.raises(InvalidArguments, match="zone: there is no such argument; there are none"):
        now.validate({"zone": "UTC"})


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
    assert list(refused.value.problems) == problems


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


def test_the_patterns_of_functions_run_with_bounds_too() -> None:
    class Named(msgspec.Struct):
        name: Annotated[str, msgspec.Meta(pattern=r"^(a+)+$")]

    @tool
    def rename(
        name: Annotated[str, msgspec.Meta(pattern=r"^(a+)+$", max_length=9_000)],
        more: list[Annotated[str, msgspec.Meta(pattern=r"^(b+)+$")]] | None = None,
        inner: Named | None = None,
        python: Annotated[str, msgspec.Meta(pattern=r"^a\Z")] = "a",
    ) -> str:
        return name

    assert rename.validate({"name": "aaa", "more": ["b"], "inner": {"name": "a"}, "python": "a"})["more"] == ["b"]
    assert rename.validate({"name": "aaa", "more": None, "python": None}) == {"name": "aaa", "more": None}
    long = "a" * 5_000 + "!"
    for arguments, place in (
        ({"name": long}, "name"),
        ({"name": "a", "more": [long]}, "more[0]"),
        ({"name": "a", "inner": {"name": long}}, "inner.name"),
    ):
        with pytest.raises(InvalidArguments) as refused:
            rename.validate(arguments)
        (problem,) = refused.value.problems
        assert problem.startswith(f"{place}: must match the pattern ^(")
    with pytest.raises(InvalidArguments, match="name: must have at most 9000 characters, and has 9001"):
        rename.validate({"name": "a" * 9_001})
    with pytest.raises(InvalidArguments, match=r"python: .*\^a"):
        rename.validate({"name": "a", "python": "b"})


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
    with pytest.raises(InvalidArguments) as refused:
        plan.validate(floods[0])
    assert refused.value.problems[-1] == "… and at least 989 more problems of this kind"
    many = {f"name_{number}": {"type": "integer"} for number in range(2_000)}
    with pytest.raises(InvalidArguments) as refused:
        raw({"type": "object", "properties": many}).validate({"name_1": ""})
    assert len(str(refused.value)) < 4_500


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


def test_numbers_of_functions_are_those_of_json_schema() -> None:
    @tool
    def pay(
        amount: Annotated[float, msgspec.Meta(multiple_of=0.01, ge=0)],
        times: int = 1,
        notes: dict[str, int] | None = None,
    ) -> None: ...

    assert pay.validate({"amount": 19.99, "times": 5.0, "notes": {"a": 2.0}}) == {
        "amount": 19.99,
        "times": 5,
        "notes": {"a": 2},
    }
    assert type(pay.validate({"amount": 1, "times": 5.0})["times"]) is int
    with pytest.raises(InvalidArguments) as refused:
        pay.validate({"amount": 19.995, "times": 5.5})
    assert refused.value.problems == (
        "amount: must be a multiple of 0.01, got 19.995",
        "times: expected integer, got 5.5",
    )

    @tool(lax=True)
    def lax_pay(amount: Annotated[float, msgspec.Meta(multiple_of=0.01)]) -> None: ...

    assert lax_pay.validate({"amount": "19.99"}) == {"amount": 19.99}
    with pytest.raises(InvalidArguments, match=r"amount: must be a multiple of 0\.01, got 19\.995"):
        lax_pay.validate({"amount": "19.995"})


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


def test_importing_tools_loads_no_validator() -> None:
    code = """
import sys
from antiphon.tools import tool
tool(name="fine")(lambda a: a).validate({"a": 1})
print(sorted({"pydantic", "jsonschema_rs", "mcp", "aiohttp"} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("search_webb", ["search_web"]),
        ("searchWeb", ["search_web"]),
        ("SEARCH-WEB", ["search_web"]),
        ("functions.search_web", ["search_web"]),
        ("plan", ["get_plan", "create_plan"]),
        ("weather", []),
        ("", []),
        ("x" * 1_000_000, []),
    ],
)
def test_near_misses(name: str, meant: list[str]) -> None:
    assert near_misses(name, ["search_web", "create_plan", "get_plan"]) == meant


def test_how_a_tool_is_called_in_one_line() -> None:
    assert usage("read", RAW) == (
        'read(path: string, mode?: one of "r", "w", ranges?: array of array, address?: string, port?: integer)'
    )
    assert describe_schema({"type": ["string", "null"]}, {}) == "string or null"
    assert describe_schema({"$ref": "#/$defs/a"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}}) == "anything"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["title", "tasks", "priority", "days", "start", "owner", "other"])
likely = st.fixed_dictionaries(
    {"title": st.text(max_size=3), "tasks": st.lists(st.fixed_dictionaries({"title": st.text(max_size=3)}), max_size=2)}
)


@given(st.dictionaries(names, json_values), likely | st.just({}))
def test_any_arguments_are_accepted_or_explained(more: dict[str, Any], base: dict[str, Any]) -> None:
    arguments = {**base, **more}
    refused: InvalidArguments | None = None
    try:
        converted = plan.validate(arguments)
    except InvalidArguments as error:
        refused = error
    if refused is not None:
        assert refused.problems
        assert all(refused.problems)
    else:
        # What is taken has no problem, but for nulls that mean "not given".
        given_arguments = {name: value for name, value in arguments.items() if name in converted}
        assert describe_errors(plan.parameters, given_arguments) == []
