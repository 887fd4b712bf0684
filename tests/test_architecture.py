"""The map holds: each package knows only those above it, and importing the door opens no room."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "antiphon"

# Each may import itself and what is listed above it.
MAP = [
    "closing",
    "text",
    "private_files",
    "errors",
    "ids",
    "extensions",
    "conform",
    "parts",
    "history",
    "context",
    "prices",
    "wire",
    "repair",
    "telemetry",
    "providers",
    "tools",
    "conversation",
    "graph",
    "runs",
    "gateway",
    "testing",
    "chat",
    "web",
    "caching",
    "sessions",
    "trajectories",
    "tapes",
    "cli",
]

# Packages that a package must not import although they come before it.
FORBIDDEN = {"chat": {"gateway"}}

# Imports against the map, on first use: the documented path of a model that is part of the chat, and the methods of a history
# that read and write provider formats.
EXCEPTIONS = {
    ("tapes/serving.py", "cli"),
    ("providers/offline.py", "chat"),
    ("history/agent_history.py", "conversation"),
}

# How many modules a folder may have; short re-exports of documented paths do not count.
MAX_FILES = 15

# Installed with the core. Everything else belongs to an extra and is imported inside a function.
CORE = {"msgspec", "httptools", "antiphon"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def parsed(module: Path) -> ast.Module:
    """The module's tree. Python 3.11 fails if a collection in the midst of parsing logs an error, so none runs meanwhile."""
    gc.disable()
    try:
        return ast.parse(module.read_text())
    finally:
        gc.enable()


def package_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_go_up_the_map() -> None:
    assert [problem for module in modules() for problem in imports_against_the_map(module)] == []


def imports_against_the_map(module: Path) -> Iterator[str]:
    package, path = package_of(module), module.relative_to(SOURCE).as_posix()
    if package in ("__init__", "__main__"):
        return  # the door may name every room
    if package not in MAP:
        yield f"{path}: {package} is not on the map"
        return
    for name in imports(parsed(module)):
        if name.startswith("antiphon.") and name != "antiphon.__version__":
            known = name.split(".")[1]
            if (path, known) in EXCEPTIONS:
                continue
            if MAP.index(known) > MAP.index(package) or known in FORBIDDEN.get(package, ()):
                yield f"{path}: {package} must not import {known}"


def test_eager_imports_are_the_core() -> None:
    # A workflow must be a class of a module, and pytest itself loads its plugin; their headers say so.
    others = [module for module in modules() if module.name not in ("temporal_workflow.py", "pytest_plugin.py")]
    assert [problem for module in others for problem in eager_imports_of_extras(module)] == []


def eager_imports_of_extras(module: Path) -> Iterator[str]:
    tree = parsed(module)
    tried = [node for block in tree.body if isinstance(block, ast.Try) for node in block.body]
    at_once = [node for node in [*tree.body, *tried] if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in at_once:
        for name in imports(ast.Module([node], [])):
            root = name.split(".")[0]
            if root not in CORE and root not in sys.stdlib_module_names:
                yield f"{module.relative_to(SOURCE)}: {root} belongs to an extra; import it in the function that needs it"


def test_folders_have_at_most_fifteen_files() -> None:
    folders = [folder for folder in (SOURCE, *SOURCE.rglob("*")) if folder.is_dir()]
    counts = {
        folder.relative_to(SOURCE).as_posix(): sum(map(is_more_than_a_re_export, folder.glob("*.py")))
        for folder in folders
    }
    assert {folder: count for folder, count in counts.items() if count > MAX_FILES} == {}


def is_more_than_a_re_export(module: Path) -> bool:
    """Short modules keep documented import paths working."""
    return module.read_text().count("\n") > 12


def test_files_have_a_header_and_at_most_500_lines() -> None:
    for module in modules():
        assert module.stem not in {"utils", "helpers", "common", "base", "manager", "misc"}, module
        text = module.read_text()
        assert text.startswith('"""'), f"{module} has no header"
        lines = text.count("\n")
        assert lines <= 500 or "lines" in text.split('"""')[1], (
            f"{module} has {lines} lines and its header does not say why"
        )


def test_importing_antiphon_loads_only_the_standard_library_and_msgspec() -> None:
    code = (
        "import sys; before = set(sys.modules); import antiphon; door = set(sys.modules) - before;"
        "antiphon.AgentHistory, antiphon.SqliteStore, antiphon.render_live_context, antiphon.Text;"
        "rooms = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(name for name in door if name.startswith('antiphon.')), sorted(rooms - set(sys.stdlib_module_names)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert (
        output.replace(", 'typing_extensions'", "") == "[] ['antiphon', 'msgspec']\n"
    )  # msgspec looks for that itself


def test_every_public_name_is_there_and_listed_once() -> None:
    import antiphon

    assert sorted(antiphon.__all__) == sorted(set(antiphon.__all__))
    assert {name for names in antiphon._EXPORTS.values() for name in names} | {"__version__"} == set(antiphon.__all__)
    for name in antiphon.__all__:
        assert getattr(antiphon, name) is not None
    assert set(dir(antiphon)) == set(antiphon.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Histroy'"):
        _ = antiphon.Histroy  # type: ignore[attr-defined]


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (SOURCE.parent.parent / "docs" / "architecture.md").read_text()
    table = page.partition("## Which file to open")[2].partition("\n## ")[0]
    paths = re.findall(r"\| `([\w/]+\.py)` \|", table)
    assert len(paths) > 10
    assert [path for path in paths if not (SOURCE / path).exists()] == []
