"""Signatures become schemas, docstrings become descriptions; what has no JSON is refused when the tool is made."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import jsonschema
import msgspec
import pytest
from pydantic import BaseModel, Field

from antiphon.errors import InvalidTool
from antiphon.tools import ToolContext, tool
from antiphon.tools.function_schema import read_docstring


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    deep: bool


class Box(msgspec.Struct):
    """A box of points."""

    points: list[Point]
    label: str | None = None


class Person(BaseModel):
    """A person."""

    full_name: str
    age: int = Field(ge=0, description="in years")
    unit: Unit = Unit.CELSIUS


class Tree(BaseModel):
    children: list[Tree] = []


ANNOTATIONS: list[tuple[Any, dict[str, Any], Any, Any]] = [
    # the annotation, what its schema must say, what a model writes, what the function gets
    (int, {"type": "integer"}, 5, 5),
    (float, {"type": "number"}, 5, 5.0),
    (str, {"type": "string"}, "a", "a"),
    (bool, {"type": "boolean"}, True, True),
    (Any, {}, [1], [1]),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}, 1, 1),
    (Annotated[int, msgspec.Meta(ge=1, description="n")], {"type": "integer", "minimum": 1, "description": "n"}, 1, 1),
    (Annotated[int, Field(ge=1, description="n")], {"type": "integer", "minimum": 1, "description": "n"}, 1, 1),
    (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}, "b", "b"),
    (Unit, {"enum": ["celsius", "kelvin"], "type": "string"}, "kelvin", Unit.KELVIN),
    (Level, {"enum": [1, 2]}, 2, Level.HIGH),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),  # noqa: UP045 - as users write it
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a"),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a"], {"a"}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1, 2], (1, 2)),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
    (dict[int, str], {"type": "object", "additionalProperties": {"type": "string"}}, {"1": "a"}, {1: "a"}),
    (datetime.date, {"type": "string", "format": "date"}, "2026-01-31", datetime.date(2026, 1, 31)),
    (
        list[datetime.datetime],
        {"type": "array", "items": {"type": "string", "format": "date-time"}},
        ["2026-01-31T12:00:00"],
        [datetime.datetime(2026, 1, 31, 12)],
    ),
    (uuid.UUID, {"type": "string", "format": "uuid"}, str(uuid.UUID(int=1)), uuid.UUID(int=1)),
    (decimal.Decimal, {"type": "string", "format": "decimal"}, "1.50", decimal.Decimal("1.50")),
    (Path, {"type": "string", "format": "path"}, "a/b", Path("a/b")),
    (Point, {"type": "object", "required": ["x"]}, {"x": 1}, Point(1)),
    (Pair, {"type": "array", "minItems": 2}, [1, "a"], Pair(1, "a")),
    (Options, {"type": "object"}, {"deep": True}, {"deep": True}),
    (Box, {"type": "object", "description": "A box of points."}, {"points": [{"x": 1}]}, Box([Point(1)])),
    (
        Person,
        {"type": "object", "description": "A person."},
        {"full_name": "A", "age": 3},
        Person(full_name="A", age=3),
    ),
    (list[Person], {"type": "array"}, [{"full_name": "A", "age": 3}], [Person(full_name="A", age=3)]),
    (Tree, {}, {"children": [{}]}, Tree(children=[Tree()])),
]


def resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = {**root["$defs"][schema["$ref"].removeprefix("#/$defs/")], **schema}
        del schema["$ref"]
    return schema


@pytest.mark.parametrize(("annotation", "expected", "written", "got"), ANNOTATIONS, ids=lambda value: str(value)[:40])
def test_annotations(annotation: Any, expected: dict[str, Any], written: Any, got: Any) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    made = tool(function)
    root = made.parameters
    assert root["required"] == ["value"]
    assert root["additionalProperties"] is False
    schema = resolved(root["properties"]["value"], root)
    assert {key: schema.get(key) for key in expected} == expected
    assert "title" not in schema
    jsonschema.Draft202012Validator.check_schema(root)
    jsonschema.validate({"value": written}, root)
    assert made.validate({"value": written}) == {"value": got}


def test_a_signature_becomes_a_self_contained_schema() -> None:
    @tool
    def book(
        person: Person,
        where: Point,
        context: ToolContext,
        unit: Unit = Unit.KELVIN,
        note: str = None,  # type: ignore[assignment] # noqa: RUF013 - people write this, and mean Optional
        **more: float,
    ) -> str:
        """Book a place.

        It is then yours.

        Args:
            person: Who.
            where (Point): The place,
                to the metre.
            note: Words.

        Returns:
            A number.
        """
        return ""

    assert book.name == "book"
    assert book.description == "Book a place.\n\nIt is then yours."
    assert book.definition.parameters == book.parameters
    assert book.parameters == {
        "type": "object",
        "properties": {
            "person": {
                "type": "object",
                "description": "A person.",
                "properties": {
                    "full_name": {"type": "string"},
                    "age": {"type": "integer", "minimum": 0, "description": "in years"},
                    "unit": {"$ref": "#/$defs/Unit", "default": "celsius"},
                },
                "required": ["full_name", "age"],
            },
            "where": {"$ref": "#/$defs/Point", "description": "The place, to the metre."},
            "unit": {"$ref": "#/$defs/Unit", "default": "kelvin"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "Words."},
        },
        "required": ["person", "where"],
        "additionalProperties": {"type": "number"},
        "$defs": {
            "Unit": {"enum": ["celsius", "kelvin"], "type": "string"},
            "Point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            },
        },
    }
    assert book.validate({"person": {"full_name": "A", "age": 1}, "where": {"x": 1}, "height": 2}) == {
        "person": Person(full_name="A", age=1),
        "where": Point(1),
        "height": 2.0,
    }


def test_two_types_of_one_name_stay_two() -> None:
    def make(kind: type) -> type:
        return msgspec.defstruct("Thing", [("value", kind)])

    def function(one: Any, two: Any) -> None: ...

    function.__annotations__.update(one=list[make(int)], two=list[make(str)])  # type: ignore[misc]
    made = tool(function)
    assert len(made.parameters["$defs"]) == 2
    jsonschema.validate({"one": [{"value": 1}], "two": [{"value": "a"}]}, made.parameters)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"one": [{"value": 1}], "two": [{"value": 1}]}, made.parameters)


def test_classes_defined_next_to_the_tool_are_found() -> None:
    class Local(msgspec.Struct):
        value: int

    @tool
    def one(item: Local) -> int:
        return item.value

    @tool(name="other")
    def two(item: Local) -> int:
        return item.value

    assert one.validate({"item": {"value": 1}}) == two.validate({"item": {"value": 1}})


class Service:
    def ask(self, question: str) -> str:
        """Ask the service."""
        return question

    def __call__(self, number: int) -> int:
        """Call the service."""
        return number


def test_methods_partials_and_callable_objects() -> None:
    service = Service()
    assert tool(service.ask).name == "ask"
    assert list(tool(service.ask).parameters["properties"]) == ["question"]
    called = tool(name="call_it")(service)
    assert called.parameters["properties"] == {"number": {"type": "integer"}}
    part = tool(name="part", description="Add two.")(functools.partial(lambda a, b: a + b, b=2))
    assert part.parameters["required"] == ["a"]
    assert part.description == "Add two."


def takes_arguments(*numbers: int) -> None: ...


def takes_positional(number: int, /) -> None: ...


def takes_complex(number: complex) -> None: ...


def takes_function(callback: Callable[[], int]) -> None: ...


def takes_two_shapes(shape: Box | Point) -> None: ...


def takes_two_contexts(one: ToolContext, two: ToolContext) -> None: ...


def takes_field(number: int = Field(ge=1)) -> None: ...


def takes_unknown(number: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821


def yields() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (takes_arguments, ["takes_arguments", "'*numbers'", "take a list"]),
        (takes_positional, ["takes_positional", "'number'", "positional-only"]),
        (takes_complex, ["takes_complex", "'number'", "complex", "no JSON Schema"]),
        (takes_function, ["takes_function", "'callback'", "no JSON Schema"]),
        (takes_two_shapes, ["takes_two_shapes", "'shape'", "more than one"]),
        (takes_two_contexts, ["takes_two_contexts", "'two'", "one is enough"]),
        (takes_field, ["takes_field", "'number'", "Annotated"]),
        (takes_unknown, ["takes_unknown", "'Nowhere'", "not defined"]),
        (yields, ["yields", "progress"]),
        (Service.ask, ["ask", "'self'", "tool(instance.method)"]),
        (lambda number: number, ["has no name", "name="]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_unsupported_signatures_are_refused_at_definition(function: Callable[..., Any], words: list[str]) -> None:
    with pytest.raises(InvalidTool) as refused:
        tool(function)
    for word in words:
        assert word in str(refused.value)


GOOGLE = """Look something up.

    More about it.

    Args:
        query (str, optional): What to look for: words
            or a phrase.
        *rest: The rest.
        plain: Short
    Raises:
        ValueError: never: really.
    """

NUMPY = """Look something up.

    More about it.

    Parameters
    ----------
    query : str, optional
        What to look for: words
        or a phrase.
    rest
        The rest.
    plain, other : int
        Short

    Returns
    -------
    str
        Something.
    """

REST = """Look something up.

    More about it.

    :param str query: What to look for: words
        or a phrase.
    :param rest: The rest.
    :keyword plain: Short
    :raises ValueError: never: really.
        Never.
    :returns: something
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_docstrings(text: str) -> None:
    read = read_docstring(text)
    assert read.description == "Look something up.\n\nMore about it."
    expected = {"query": "What to look for: words or a phrase.", "rest": "The rest.", "plain": "Short"}
    assert {name: read.arguments[name] for name in expected} == expected
    assert set(read.arguments) <= {*expected, "other"}


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (None, ""),
        ("", ""),
        ("One line.", "One line."),
        ("Note: this is prose, and stays.", "Note: this is prose, and stays."),
        ("Head.\n\nArgs:\n    a: b\n\nTail.", "Head.\n\nTail."),
        ("\n    Args:\n        a: b", ""),
        ("Times are 12:30 or so.\n:not a field", "Times are 12:30 or so.\n:not a field"),
    ],
)
def test_descriptions(text: str | None, description: str) -> None:
    assert read_docstring(text).description == description
