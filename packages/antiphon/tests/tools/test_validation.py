"""Wrong arguments give errors a model can correct itself by: every problem, its place, what was expected and what was given."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from antiphon.errors import InvalidArguments
from antiphon.text import near_misses
from antiphon.tools import ToolContext, tool
from antiphon.tools.compiled_schema import CompiledSchema


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


def test_valid_arguments_are_converted_and_defaults_stay_the_functions() -> None:
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


def test_a_flood_of_names_has_a_short_report() -> None:
    with pytest.raises(InvalidArguments) as refused:
        plan.validate({f"name_{number}": 1 for number in range(300_000)})
    assert refused.value.problems == (
        "title: missing, and it is required (string)",
        "… and perhaps more: of arguments this large only the first problem is named",
    )


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
        assert CompiledSchema(plan.parameters).problems(given_arguments) == []
