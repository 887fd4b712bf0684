"""The public surface: one list, importable lazily, documented, with explicit signatures, and known to type checkers."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon as ap
from support.cases import each_case
from support.repository import ROOT

PROGRAM = ROOT / "tests" / "support" / "user_program.py"
MYPY = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=.mypy_cache/user")
"""As a user has it: without the settings of this project, and so without its cache."""
NAMES = [name for name in ap.__all__ if name != "__version__"]
ALIASES = {
    *("ApprovalPolicy", "EndReason", "InputPart", "LoopEvent", "ModelOutputDelta", "OutputPart", "Part"),
}
"""Type aliases, which have no docstring at run time."""
FREE_KEYWORDS = {"call", "open_store"}
"""`call` takes the arguments of any tool; `open_store` the options of either store."""


def test_editors_see_the_names_that_can_be_imported() -> None:
    tree = ast.parse((ROOT / "packages/antiphon/src/antiphon/__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and not node.orelse and _imports(node)]
    seen = {
        (imported.module, alias.name): alias.asname
        for imported in block.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    exports: dict[str, str] = ap._EXPORTS
    assert set(seen) == {(module, name) for module, names in exports.items() for name in names.split()}
    assert all(name == asname for (_, name), asname in seen.items())


def _imports(node: ast.If) -> bool:
    return any(isinstance(one, ast.ImportFrom) for one in node.body)


@each_case("name", NAMES)
def test_a_public_name_is_documented_and_explicit(name: str) -> None:
    thing: Any = getattr(ap, name)
    if name in ALIASES:
        return
    assert inspect.getdoc(thing), f"{name} has no docstring"
    functions = [(name, thing)] if not inspect.isclass(thing) else _methods(thing)
    for title, function in functions:
        if title != f"{name}.__init__":
            assert inspect.getdoc(function), f"{title} has no docstring"
        free = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.VAR_KEYWORD and str(parameter.annotation) == "Any"
        ]
        assert not free or name in FREE_KEYWORDS, f"{title} takes **{free[0].name}: Any"


def _methods(kind: type) -> list[tuple[str, Any]]:
    return [
        (f"{kind.__name__}.{name}", member)
        for name, member in vars(kind).items()
        if (not name.startswith("_") or name == "__init__") and inspect.isfunction(member)
    ]


def test_importing_antiphon_loads_nothing_else() -> None:
    code = "import sys, antiphon; print([name for name in sys.modules if name.startswith('antiphon.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_user_program_runs() -> None:
    run = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[0] == "5"
    assert run.stdout.splitlines()[-2:] == ["yes", "1 entries"]


@pytest.mark.slow  # `make types` checks the same program with everything else
def test_mypy_knows_the_user_program() -> None:
    command = [*MYPY, str(PROGRAM)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stdout


@pytest.mark.slow
def test_mypy_finds_mistakes_in_a_user_program(tmp_path: Path) -> None:
    wrong = (
        PROGRAM.read_text().replace("max_rounds=3", "max_round=3").replace("context.state.balance", "context.state.x")
    )
    (program := tmp_path / "program.py").write_text(wrong)
    command = [*MYPY, str(program)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert re.search(r'Unexpected keyword argument "max_round"', run.stdout)
    assert re.search(r'"Account" has no attribute "x"', run.stdout)


def pyright(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """What pyright finds in a program; it fetches its own code from npm on first use."""
    (folder / "program.py").write_text(program)
    settings = {
        "include": ["program.py"],
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "typeCheckingMode": "strict",
    }
    (folder / "pyrightconfig.json").write_bytes(msgspec.json.encode(settings))
    pytest.importorskip("pyright")
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(folder)], capture_output=True, text=True, check=False, cwd=folder
    )
    if "informations" not in ran.stdout:
        pytest.skip(f"pyright cannot run here: {(ran.stdout + ran.stderr)[-300:]}")
    return ran


@pytest.mark.slow
def test_pyright_knows_the_user_program(tmp_path: Path) -> None:
    ran = pyright(tmp_path, PROGRAM.read_text())
    assert ran.returncode == 0, ran.stdout


@pytest.mark.slow
def test_pyright_finds_mistakes_in_a_user_program(tmp_path: Path) -> None:
    wrong = (
        PROGRAM.read_text().replace("max_rounds=3", "max_round=3").replace("context.state.balance", "context.state.x")
    )
    ran = pyright(tmp_path, wrong)
    assert 'No parameter named "max_round"' in ran.stdout
    assert 'Cannot access attribute "x" for class "Account"' in ran.stdout


def test_graph_nodes_take_the_arguments_of_conversation() -> None:
    from antiphon.graph.conversations import ConversationOptions, Conversations

    known = set(inspect.signature(ap.Conversation).parameters)
    own = {"store", "resume", "history", "title"}  # each node has its own
    explicit = {"model", "tools", "system", "provider"}
    assert set(ConversationOptions.__annotations__) == known - own - explicit
    assert explicit < set(inspect.signature(Conversations).parameters)


def test_a_turn_on_temporal_takes_the_fields_of_its_input() -> None:
    from antiphon.runs.temporal import start_turn
    from antiphon.runs.temporal_workflow import TurnInput

    parameters = inspect.signature(start_turn).parameters
    for field in dataclasses.fields(TurnInput):
        if field.name in parameters and field.default is not dataclasses.MISSING:
            assert parameters[field.name].default == field.default, field.name
    assert {field.name for field in dataclasses.fields(TurnInput)} - set(parameters) == {"standing"}


def test_a_tool_without_description_or_types_warns() -> None:
    def bare(city, days=1):  # type: ignore[no-untyped-def]
        return city, days

    with pytest.warns(UserWarning, match="'bare' has no description; .* and no type hint for city, days") as caught:
        ap.tool(bare)
    assert caught[0].filename == __file__

    @ap.tool
    def good(city: Any) -> str:
        "Has both."
        return str(city)
