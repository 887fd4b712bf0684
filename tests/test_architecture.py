"""The map holds: each package knows only those above it, and importing the door opens no room."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "antiphon"

# Each may import itself and what stands above it.
MAP = [
    "errors",
    "parts",
    "history",
    "context",
    "wire",
    "repair",
    "providers",
    "tools",
    "conversation",
    "graph",
    "runs",
    "gateway",
    "web",
    "cli",
]

# Installed with the core. Everything else belongs to an extra and is imported inside a function.
CORE = {"msgspec", "antiphon"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def package_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(SOURCE)))
def test_imports_go_up_the_map(module: Path) -> None:
    package = package_of(module)
    if package in ("__init__", "__main__"):
        return  # the door may name every room
    assert package in MAP, f"{package} is not on the map"
    tree = ast.parse(module.read_text())
    for name in imports(tree):
        if name.startswith("antiphon.") and name != "antiphon.__version__":
            known = name.split(".")[1]
            assert MAP.index(known) <= MAP.index(package), f"{package} must not know {known}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(SOURCE)))
def test_what_is_imported_at_once_is_the_core(module: Path) -> None:
    if module.name == "temporal_workflow.py":  # a workflow must be a class of a module; its header says so
        return
    tree = ast.parse(module.read_text())
    tried = [node for block in tree.body if isinstance(block, ast.Try) for node in block.body]
    at_once = [node for node in [*tree.body, *tried] if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in at_once:
        for name in imports(ast.Module([node], [])):
            root = name.split(".")[0]
            assert root in CORE or root in sys.stdlib_module_names, f"{root} belongs to an extra"


def test_a_file_is_one_noun() -> None:
    for module in modules():
        assert module.stem not in {"utils", "helpers", "common", "base", "manager", "misc"}, module
        text = module.read_text()
        assert text.startswith('"""'), f"{module} has no header that tells its idea"
        lines = text.count("\n")
        assert lines <= 500 or "lines" in text.split('"""')[1], f"{module} has {lines} lines and does not say why"


def test_importing_antiphon_loads_nothing_but_the_standard_library_and_msgspec() -> None:
    code = (
        "import sys; before = set(sys.modules); import antiphon; door = set(sys.modules) - before;"
        "antiphon.AgentHistory, antiphon.SqliteStore, antiphon.render_live_context, antiphon.Text;"
        "rooms = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(name for name in door if name.startswith('antiphon.')), sorted(rooms - set(sys.stdlib_module_names)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.replace(", 'typing_extensions'", "") == "[] ['antiphon', 'msgspec']\n"  # msgspec looks for that itself


def test_every_public_name_is_there_and_listed_once() -> None:
    import antiphon

    assert sorted(antiphon.__all__) == sorted(set(antiphon.__all__))
    assert {name for names in antiphon._EXPORTS.values() for name in names} | {"__version__"} == set(antiphon.__all__)
    for name in antiphon.__all__:
        assert getattr(antiphon, name) is not None
    assert set(dir(antiphon)) == set(antiphon.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Histroy'"):
        _ = antiphon.Histroy  # type: ignore[attr-defined]
