"""The map: folders import in one direction, each distribution those below it, and importing `antiphon` loads no part of it."""

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

from antiphon import extensions
from support.repository import GATEWAY, LIBRARY, ROOT, SOURCES

LAYERS = """
closing errors ids json_text media_types model_name private_files text
threads
http
parts extensions page
history wire
context repair telemetry
prices providers
tools logs
conversation
integrations
graph runs testing
cli
""".strip().splitlines()
"""The library: each package imports packages of the rows above its own. `history` and `wire` know nothing of each other: what a
conversation was and how an API writes it meet in `providers`, which asks a model."""

GATEWAY_LAYERS = """
threads utc_time routes
errors config
share state
access
ledger
observe
runtime
generate
endpoints
app
serve
workers
cli
""".strip().splitlines()
"""The folders and modules of the gateway, in the same way."""

TOPS = {"antiphon": 2, "antiphon_gateway": 1, "antiphon_chat": 2, "antiphon_devtools": 2}
"""The top packages of the distributions, and how deep their folders are rooms of their own. Each module of them is one, too."""

# How many modules a folder may have.
MAX_FILES = 20

# Installed with the core. Everything else belongs to an extra and is imported inside a function.
CORE = {"msgspec", "httptools", *TOPS}


def modules() -> list[Path]:
    return sorted(module for source in SOURCES for module in source.rglob("*.py"))


@cache
def parsed(module: Path) -> ast.Module:
    """The module's tree. Python 3.11 fails if a collection in the midst of parsing logs an error, so none runs meanwhile."""
    gc.disable()
    try:
        return ast.parse(module.read_text())
    finally:
        gc.enable()


def imports(tree: ast.AST, *, deep: bool = True) -> Iterator[str]:
    """The names that a tree imports, or this node alone."""
    for node in ast.walk(tree) if deep else [tree]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement, however deep. Imports are statements, and the expressions are most of a tree."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from statements(inner)


@cache
def module_names(source: Path) -> dict[str, Path]:
    """The modules of a source root by their dotted names; a package is its `__init__`."""
    files = {".".join(path.relative_to(source.parent).with_suffix("").parts): path for path in source.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in files.items()}


@cache
def module_imports(sources: tuple[Path, ...]) -> dict[str, dict[str, int]]:
    """Which of our modules each module imports, with the line: at its top, in a function, or for the type checker.

    The top package is not listed: its `__init__` is the door that may name every room, and loads each on first use.
    """
    known = {name: path for source in sources for name, path in module_names(source).items()}
    tops = {source.name for source in sources}
    found: dict[str, dict[str, int]] = {}
    for module, path in known.items():
        if module in tops or module.endswith(".__main__"):
            continue
        imported = found[module] = {}
        for node in statements(parsed(path)):
            for name in imports(node, deep=False):
                while name and name not in known:
                    name = name.rpartition(".")[0]
                if name and name not in tops:
                    imported.setdefault(name, node.lineno)
    return found


def folder_graph(*sources: Path, tops: dict[str, int] = TOPS) -> dict[str, dict[str, list[str]]]:
    """Which folders each folder imports, and where.

    A folder is a package, as deep below the top package as `tops` says; what is deeper belongs to it. A module of a top package
    is a folder of its own. A package and the folders in it are one room: imports between them do not count.
    """
    packages = {name for source in sources for name, path in module_names(source).items() if path.stem == "__init__"}
    innermost_first = sorted(tops, key=len, reverse=True)

    def folder_of(module: str) -> str:
        top = next(top for top in innermost_first if f"{module}.".startswith(f"{top}."))
        parts = module.removeprefix(f"{top}.").split(".")
        if module not in packages and len(parts) > 1:
            parts.pop()
        return ".".join([top, *parts[: tops[top]]]) if module != top else top

    graph: dict[str, dict[str, list[str]]] = {}
    for module, imported in module_imports(sources).items():
        edges = graph.setdefault(folder_of(module), {})
        for other, line in imported.items():
            here, there = folder_of(module), folder_of(other)
            if not f"{here}.".startswith(f"{there}.") and not f"{there}.".startswith(f"{here}."):
                edges.setdefault(there, []).append(f"{module}:{line} imports {other}")
    return graph


def cycles(graph: dict[str, dict[str, list[str]]]) -> list[list[str]]:
    """The strongly connected components of more than one folder (Tarjan)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    components = []

    def visit(folder: str) -> None:
        numbers[folder] = lowest[folder] = len(numbers)
        path.append(folder)
        for other in graph.get(folder, {}):
            if other not in numbers:
                visit(other)
                lowest[folder] = min(lowest[folder], lowest[other])
            elif other in path:
                lowest[folder] = min(lowest[folder], numbers[other])
        if lowest[folder] == numbers[folder]:
            component = path[path.index(folder) :]
            del path[path.index(folder) :]
            if len(component) > 1:
                components.append(sorted(component))

    for folder in sorted(graph):
        if folder not in numbers:
            visit(folder)
    return sorted(components)


def arrows_within(graph: dict[str, dict[str, list[str]]], folders: list[str]) -> list[str]:
    """The imports that make a cycle, the fewest of a pair first: these are the ones to cut."""
    pairs = {(one, other): graph[one][other] for one in folders for other in graph[one] if other in folders}
    return [line for arrows in sorted(pairs.values(), key=len) for line in arrows]


def test_folders_import_in_one_direction() -> None:
    graph = folder_graph(*SOURCES)
    assert {" ".join(cycle): arrows_within(graph, cycle)[:10] for cycle in cycles(graph)} == {}


def test_a_cycle_is_found_wherever_the_import_is(tmp_path: Path) -> None:
    """In a function, for the type checker, through a package: one arrow back is enough."""
    source = tmp_path / "house"
    texts = {
        "__init__.py": "from house.attic import roof",
        "parts.py": "",
        "wire/__init__.py": "from house.wire.chat import reader",
        "wire/chat/__init__.py": "",
        "wire/chat/reader.py": "from house.wire import codec\nimport house.parts",
        "wire/codec.py": "def read():\n    from house.attic import roof",
        "attic/__init__.py": "",
        "attic/roof/__init__.py": "",
        "attic/roof/deep/__init__.py": "",
        "attic/roof/deep/beam.py": "if TYPE_CHECKING:\n    import house.cellar.wine",
        "cellar/__init__.py": "",
        "cellar/wine.py": "from house.wire.codec import read",
    }
    for name, text in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    graph = folder_graph(source, tops={"house": 2})
    assert cycles(graph) == [["house.attic.roof", "house.cellar", "house.wire"]]
    assert graph["house.wire.chat"] == {"house.parts": ["house.wire.chat.reader:2 imports house.parts"]}
    assert "house.attic.roof.deep.beam:2 imports house.cellar.wine" in arrows_within(graph, cycles(graph)[0])


def rows_of(layers: list[str]) -> dict[str, int]:
    return {package: row for row, packages in enumerate(layers) for package in packages.split()}


def test_packages_import_the_rows_above_them() -> None:
    rows, wrong = rows_of(LAYERS), []
    for folder, others in folder_graph(LIBRARY).items():
        package = folder.split(".")[1]
        for other, lines in others.items():
            known = other.split(".")[1]
            if known != package and rows[known] >= rows[package]:
                wrong += lines
    assert wrong == []


def test_folders_of_the_gateway_import_the_rows_above_them() -> None:
    top = "antiphon_gateway."
    rows = {top + name: row for name, row in rows_of(GATEWAY_LAYERS).items()}
    graph = {folder: others for folder, others in folder_graph(*SOURCES).items() if folder.startswith(top)}
    arrows = [
        (folder, other, lines) for folder, others in graph.items() for other, lines in others.items() if other in graph
    ]
    assert [line for folder, other, lines in arrows for line in lines if rows[other] >= rows[folder]] == []
    assert graph.keys() == rows.keys()


def test_distributions_import_those_below_them() -> None:
    """The library imports none of the others; the gateway it; the chat both; the developer tools all of them."""
    order, wrong = [source.name for source in SOURCES], []
    for module, imported in module_imports(SOURCES).items():
        for other, line in imported.items():
            if order.index(other.partition(".")[0]) > order.index(module.partition(".")[0]):
                wrong.append(f"{module}:{line} imports {other}")
    assert wrong == []


def test_modules_named_in_entry_points_and_strings_exist() -> None:
    known = {name for source in SOURCES for name in module_names(source)}
    for parts in extensions.OURS.values():
        for part in parts.values():
            assert part.module in known
            assert part.distribution == part.module.partition(".")[0].replace("_", "-")


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
                yield f"{module}: {root} belongs to an extra; import it in the function that needs it"


def test_folders_have_at_most_twenty_files() -> None:
    folders = [folder for source in SOURCES for folder in (source, *source.rglob("*")) if folder.is_dir()]
    counts = {str(folder): len({*folder.glob("*.py")} - {folder / "__init__.py"}) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MAX_FILES} == {}


def test_files_have_a_header_and_at_most_500_lines() -> None:
    for module in modules():
        assert module.stem not in {"utils", "helpers", "common", "base", "manager", "misc"}, module
        text = module.read_text()
        assert text.startswith('"""'), f"{module} has no header"
        lines = text.count("\n")
        assert lines <= 500 or "lines" in text.split('"""')[1], (
            f"{module} has {lines} lines and its header does not say why"
        )


def test_blocking_work_waits_in_threads_of_its_kind() -> None:
    """The default executor is left to name resolution: a database, a file or a person that does not answer must not stop it."""
    runs_a_loop_in_a_thread = LIBRARY / "closing.py"
    files = [file for room in SOURCES for file in room.rglob("*.py") if file != runs_a_loop_in_a_thread]
    assert len(files) > 150
    found = re.compile(r"to_thread|run_in_executor|ThreadPoolExecutor")
    assert [f"{file}: {word}" for file in files for word in found.findall(file.read_text())] == [], (
        "use antiphon.threads"
    )


def test_no_parameter_of_sqlite_has_a_number() -> None:
    """Python 3.12.0 to 3.12.3 take `?1` for a name: with a tuple, they warn, which ends a program whose warnings are errors."""
    files = [file for room in SOURCES for file in room.rglob("*.py")]
    assert [f"{file}: {word}" for file in files for word in re.findall(r"[ (,]\?\d", file.read_text())] == []


def test_no_error_keeps_its_frame_alive() -> None:
    """An error that is raised from a variable is in a cycle with its frame, and so with the body of the request in it."""
    files = [file for folder in (GATEWAY, LIBRARY / "http", LIBRARY / "providers") for file in folder.rglob("*.py")]
    assert len(files) > 100
    assert [f"{file}:{line}" for file in files for line in errors_in_variables(parsed(file))] == []


def errors_in_variables(tree: ast.Module) -> Iterator[int]:
    """Lines that raise a variable which stays bound. `except ... as` unbinds its name by itself."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for nodes in [list(ast.walk(function)) for function in functions]:
        unbound = {node.name for node in nodes if isinstance(node, ast.ExceptHandler)}
        unbound |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)}
        for node in nodes:
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
                is_class = node.exc.id[0].isupper()
                if not is_class and node.exc.id not in unbound:
                    yield node.lineno


def test_errors_in_variables_are_found() -> None:
    kept = "def f():\n    error = ValueError()\n    raise error"
    let_go = "def f(error):\n    try:\n        raise error\n    finally:\n        del error"
    caught = "def f():\n    try:\n        g()\n    except OSError as error:\n        raise error"
    assert [list(errors_in_variables(ast.parse(text))) for text in (kept, let_go, caught)] == [[3], [], []]


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
    assert {name for names in antiphon._EXPORTS.values() for name in names.split()} | {"__version__"} == set(
        antiphon.__all__
    )
    for name in antiphon.__all__:
        assert getattr(antiphon, name) is not None
    assert set(dir(antiphon)) == set(antiphon.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Histroy'"):
        _ = antiphon.Histroy  # type: ignore[attr-defined]


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("## Which file to open")[2].partition("\n## ")[0]
    paths = re.findall(r"\| `([\w/]+\.py)` \|", table)
    assert len(paths) > 10
    assert [path for path in paths if not any((source.parent / path).exists() for source in SOURCES)] == []
