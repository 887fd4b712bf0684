"""One script out of many modules, so that a page loads with one request, without a build tool.

Every module becomes a function that is called once, in the order of the imports. What our own modules use of the syntax is read,
and nothing more: `import {…} from`, `import name from "….json"`, and `export` before a declaration. Anything else is an error.
Modules that all pages share are imported as `antiphon/….js`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from antiphon.errors import AntiphonError

SHARED = Path(__file__).parent
_IMPORT = re.compile(r'^import (?:(?P<whole>\w+)|\{(?P<names>[^}]*)\}|)(?: from )?"(?P<path>[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import\b(?!\()|export\b).*", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?:[^*]|\*(?!/))*\*/|//[^\n]*)[ \t]*\n", re.MULTILINE)
"""A comment on lines of its own. Comments after code stay: a string may look like one."""


def bundle_script(main: Path) -> bytes:
    """The module `main` and everything it imports, as one script."""
    order = {path: number for number, path in enumerate(modules_of(main))}
    modules = "".join(_module(path, order) for path in order)
    return f'"use strict";\n{modules}'.encode()


def bundle_styles(files: Sequence[Path]) -> bytes:
    """Style sheets as one, without comments."""
    joined = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r"/\*.*?\*/\n*", "", joined, flags=re.DOTALL).encode()


def modules_of(main: Path) -> list[Path]:
    """The module `main` and everything it imports, in the order in which they run."""
    order: dict[Path, None] = {}
    _add_in_order(main, (), order)
    return list(order)


def _add_in_order(path: Path, importing: tuple[Path, ...], order: dict[Path, None]) -> None:
    if path in importing:
        circle = " imports ".join(one.name for one in (*importing[importing.index(path) :], path))
        raise AntiphonError(f"modules import each other: {circle}")
    if path in order:
        return
    if path.suffix == ".js":
        for found in _IMPORT.finditer(_read(path)):
            _add_in_order(_resolve(path, found["path"]), (*importing, path), order)
    order[path] = None


def _module(path: Path, order: dict[Path, int]) -> str:
    source = _read(path)
    name = f"m{order[path]}"
    if path.suffix == ".json":
        return f"const {name} = {source.strip()};\n"
    exported = _EXPORTED.findall(source)
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: _imported(path, found, order), _COMMENT.sub("", source)))
    if left := _LEFT_OVER.search(body):
        raise AntiphonError(f"{path.name}: {left[0]!r} is not read; import {{…}} from a file, export a declaration")
    gives = f"\nreturn {{ {', '.join(exported)} }};" if exported else ""
    return f"const {name} = (() => {{\n{body}{gives}\n}})();\n"


def _imported(path: Path, found: re.Match[str], order: dict[Path, int]) -> str:
    name = f"m{order[_resolve(path, found['path'])]}"
    if found["whole"]:
        return f"const {found['whole']} = {name};"
    names = (found["names"] or "").replace(" as ", ": ").strip()
    return f"const {{ {names} }} = {name};" if names else ""


def _resolve(path: Path, name: str) -> Path:
    shared = name.removeprefix("antiphon/")
    found = (SHARED / shared if shared != name else path.parent / name).resolve()
    if not found.is_file():
        raise AntiphonError(f"{path.name} imports {name}, which does not exist")
    return found


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
