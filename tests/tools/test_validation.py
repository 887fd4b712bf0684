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
from antiphon.tools.problems import expected, find_problems, near_misses, usage


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
    assert text.startswith("The arguments of plan are not right, and it was not run:\n- ")
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
        "address": {"type": "string"},
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
        # A rule the walk does not know: the validator's own words.
        ({"path": "/a", "port": 1}, ["the arguments: 'address' is a dependency of 'port'"]),
        (
            {"path": 1, "port": 1},
            ["path: expected string, got 1", "the arguments: 'address' is a dependency of 'port'"],
        ),
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


def test_a_pattern_of_another_dialect_is_left_to_whoever_wrote_it() -> None:
    made = raw({"type": "object", "properties": {"name": {"type": "string", "pattern": r"^\p{L}+$"}}})
    assert made.validate({"name": "Åse"}) == {"name": "Åse"}


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidTool, match=r"tool 'read': its JSON Schema is not valid at \$\.properties\.a\.type"):
        raw({"type": "object", "properties": {"a": {"type": "nonsense"}}})
    with pytest.raises(InvalidTool, match="type 'object'"):
        raw({"type": "string"})


def test_a_reference_to_elsewhere_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        elsewhere = raw({"type": "object", "properties": {"a": {"$ref": place}}})
        socket.setdefaulttimeout(1.0)  # whoever does ask must not wait for an answer for ever
        try:
            with pytest.raises(InvalidArguments, match="cannot be called: its schema refers to"):
                elsewhere.validate({"a": 1})
        finally:
            socket.setdefaulttimeout(None)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_without_jsonschema_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["jsonschema"] = None
from antiphon.tools import InvalidTool, Tool, tool
tool(name="fine")(lambda a: a)
try:
    Tool.from_schema("raw", "", {}, print)
except InvalidTool as error:
    print(error)
print(sorted({"pydantic", "referencing", "mcp", "aiohttp"} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, loaded = ended.stdout.splitlines()
    assert "pip install 'antiphon[mcp]'" in said
    assert loaded == "[]"


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
    assert expected({"type": ["string", "null"]}, {}) == "string or null"
    assert expected({"$ref": "#/$defs/a"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}}) == "anything"


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
def test_whatever_comes_is_taken_or_explained(more: dict[str, Any], base: dict[str, Any]) -> None:
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
        said = {name: value for name, value in arguments.items() if name in converted}
        assert find_problems(plan.parameters, said) == []
