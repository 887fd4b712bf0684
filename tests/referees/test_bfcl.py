"""The Berkeley Function Calling Leaderboard (`bfcl-eval`): its functions are our tools, its answers are our arguments.

- Every function document, made a schema by BFCL's own table of types, becomes a tool and is carried to all five formats, whose
  rules it must keep.
- Every answer that BFCL lists as right is accepted as arguments exactly if the `jsonschema` library finds it valid. Some are not:
  null for a text, a value that is not in the list of values, a required argument left out. They are counted.
- Answers with a fault (a required argument missing, a value of another type) are refused by BFCL's judge and by ours.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import jsonschema
import msgspec
import pytest

from antiphon.errors import AntiphonError
from antiphon.parts import Text
from antiphon.repair import repair
from antiphon.tools.tool import SchemaTool
from antiphon.wire import FORMATS, Message, ModelRequest, formats

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("bfcl_eval") is None, reason="bfcl-eval is not installed: make referees"),
]

CATEGORIES = {
    "simple_python": (852, 7, 1_921),
    "multiple": (507, 1, 946),
    "parallel": (1_088, 3, 2_579),
    "parallel_multiple": (1_212, 11, 2_801),
    "live_simple": (429, 66, 851),
    "live_multiple": (2_181, 411, 3_933),
    "live_parallel": (75, 1, 152),
    "live_parallel_multiple": (108, 5, 165),
}
"""Answers that are accepted, answers that BFCL's own schema forbids, and faults that are refused.

The arguments of simple_java and simple_javascript are source code, and memory, web search and multi-turn tasks have no list of
right arguments."""


class Case(NamedTuple):
    id: str
    function: Mapping[str, Any]
    """The document of the function, as BFCL has it."""
    accepted: Mapping[str, list[Any]]
    """For each argument the values that are right; an empty text among them: it may be left out."""


def data() -> Path:
    found = find_spec("bfcl_eval")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "data"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@lru_cache
def cases(category: str) -> list[Case]:
    name = f"BFCL_v4_{category}.json"
    answers = {row["id"]: row["ground_truth"] for row in lines(data() / "possible_answer" / name)}
    found = []
    for row in lines(data() / name):
        functions = {function["name"]: function for function in row["function"]}
        for answer in answers[row["id"]]:
            ((called, accepted),) = answer.items()
            found.append(Case(row["id"], functions[called], accepted))
    return found


def schema_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """A type of BFCL as JSON Schema, by its own table of types; `any` is any value, as its judge takes it."""
    types: Mapping[str, str] = import_module("bfcl_eval.constants.type_mappings").GORILLA_TO_OPENAPI
    made = dict(node)
    if made.get("type") == "any":
        del made["type"]
    elif "type" in made:
        made["type"] = types.get(made["type"], "string")  # as BFCL does
    made.pop("optional", None)
    if "properties" in made:
        made["properties"] = {name: schema_of(value) for name, value in made["properties"].items()}
    if isinstance(made.get("items"), Mapping):
        made["items"] = schema_of(made["items"])
    if not isinstance(made.get("required", []), list):
        del made["required"]
    return made


def tool_of(function: Mapping[str, Any]) -> SchemaTool:
    name = function["name"].replace(".", "_")[:64]
    return SchemaTool(name, function["description"], schema_of(function["parameters"]), lambda arguments, _: arguments)


def values(accepted: Any) -> Any:
    """The first right value, with what is right inside of it."""
    if isinstance(accepted, Mapping):
        choices = {name: inner[0] if isinstance(inner, list) else inner for name, inner in accepted.items()}
        return {name: values(choice) for name, choice in choices.items() if choice != ""}
    return [values(one) for one in accepted] if isinstance(accepted, list) else accepted


def answers(case: Case) -> Iterator[dict[str, Any]]:
    """Every answer with one choice changed from the first."""
    first = {name: values(right[0]) for name, right in case.accepted.items() if right and right[0] != ""}
    yield first
    for name, right in case.accepted.items():
        for other in right[1:]:
            if other == "":
                yield {key: value for key, value in first.items() if key != name}
            else:
                yield {**first, name: values(other)}


def is_accepted(tool: SchemaTool, arguments: dict[str, Any]) -> bool:
    try:
        tool.validate(copy.deepcopy(arguments))
    except AntiphonError:
        return False
    return True


@lru_cache
def their_judge() -> ModuleType:
    """BFCL's judge. It asks for a table of models, whose clients are not installed; the table says only how names are written."""
    table = ModuleType("bfcl_eval.constants.model_config")
    vars(table)["MODEL_CONFIG_MAPPING"] = {"ours": SimpleNamespace(underscore_to_dot=False)}
    sys.modules.setdefault(table.__name__, table)
    return import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")


def they_accept(case: Case, arguments: dict[str, Any]) -> bool:
    name = case.function["name"]
    language = import_module("bfcl_eval.constants.enums").Language.PYTHON
    judged = their_judge().simple_function_checker(
        case.function, {name: arguments}, {name: case.accepted}, language, "ours"
    )
    return bool(judged["valid"])


def of_another_type(value: Any) -> Any:
    return ["no"] if isinstance(value, str | bool | int | float) or value is None else 7


@pytest.mark.parametrize("category", CATEGORIES)
def test_right_arguments_are_accepted_and_wrong_ones_refused(category: str) -> None:
    right = against_schema = wrong = 0
    problems = []
    for case in cases(category):
        tool = tool_of(case.function)
        schema = jsonschema.Draft202012Validator(tool.parameters)
        for arguments in answers(case):
            is_ours = is_accepted(tool, arguments)
            if is_ours is not schema.is_valid(arguments):
                problems.append((case.id, f"accepted: {is_ours}", arguments))
            right += is_ours
            against_schema += not is_ours
        first = next(answers(case))
        if not they_accept(case, first) or not is_accepted(tool, first):
            continue
        faults = [{k: v for k, v in first.items() if k != name} for name in case.function["parameters"]["required"]]
        faults += [
            {**first, name: of_another_type(value)}
            for name, value in first.items()
            if "type" in tool.parameters["properties"][name]
        ]
        for arguments in faults:
            wrong += 1
            if is_accepted(tool, arguments) or they_accept(case, arguments):
                problems.append((case.id, "accepted", arguments))
    print(f"\n  BFCL {category}: {right} accepted, {against_schema} against BFCL's own schema, {wrong} faults refused")
    assert problems == []
    assert (right, against_schema, wrong) == CATEGORIES[category]


def test_every_function_is_a_tool_that_all_five_formats_accept() -> None:
    documents = [
        function
        for file in sorted(data().glob("BFCL_v4_*.json"))
        if "format_sensitivity" not in file.name
        for row in lines(file)
        for function in row.get("function", ())
    ]
    for file in sorted((data() / "multi_turn_func_doc").glob("*.json")):
        documents += lines(file)
    assert len(documents) > 4_000
    broken = []
    for function in documents:
        tool = tool_of(function)
        request = ModelRequest(
            model="m", messages=(Message("user", (Text("Please help me."),)),), tools=(tool.definition,)
        )
        for name in FORMATS:
            body = json.loads(msgspec.json.encode(formats[name].write_request(repair(request, name)[0])[0]))
            options: dict[str, Any] = {"model": "gemini-3-flash-preview"} if name == "gemini" else {}
            broken += [(tool.name, name, str(found)) for found in formats[name].check_request(body, **options)]
    assert broken == []
    print(f"\n  BFCL: {len(documents)} functions as tools of {len(FORMATS)} formats")
