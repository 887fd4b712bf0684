"""Draw `docs/pictures/packages.svg`: the four packages, their folders with lines of source, and who imports whom.

    python tools/package_graph.py

The rows are those that `tests/test_architecture.py` checks: a folder imports only what stands above it.
"""

from __future__ import annotations

import ast
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "packages.svg"
ROWS = {
    "antiphon": [
        ("errors", "ids", "text", "threads", "http"),
        ("parts", "extensions"),
        ("history", "wire"),
        ("context", "repair", "telemetry"),
        ("providers", "prices"),
        ("tools", "logs"),
        ("conversation",),
        ("graph", "runs", "testing"),
        ("cli",),
    ],
    "antiphon_gateway": [
        ("config", "routes", "errors"),
        ("state",),
        ("access",),
        ("cluster", "ledger"),
        ("observe",),
        ("runtime",),
        ("generate", "admin"),
        ("endpoints",),
        ("app", "serve", "cli"),
    ],
    "antiphon_chat": [("language",), ("offline",), ("shared",), ("page", "terminal")],
    "antiphon_devtools": [
        ("conform",),
        ("sessions", "trajectories"),
        ("cassettes", "cache_doctor"),
        ("cli",),
    ],
}
_BOX, _GAP, _LINE, _TOP = 300, 28, 44, 74


def lines_of(package: str, folder: str) -> int:
    source = ROOT / "packages" / package.replace("_", "-") / "src" / package
    files = [
        *(source / folder).rglob("*.py"),
        *([source / f"{folder}.py"] if (source / f"{folder}.py").exists() else []),
    ]
    return sum(file.read_text().count("\n") for file in files)


def total(package: str) -> tuple[int, int]:
    """Lines and files of a package."""
    files = list((ROOT / "packages" / package.replace("_", "-") / "src").rglob("*.py"))
    return sum(file.read_text().count("\n") for file in files), len(files)


def imports(package: str) -> set[str]:
    """The other packages that a package imports."""
    found: set[str] = set()
    for file in (ROOT / "packages" / package.replace("_", "-") / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {name.partition(".")[0] for name in names}
    return (found & ROWS.keys()) - {package}


def draw() -> str:
    height = _TOP + max(len(rows) for rows in ROWS.values()) * _LINE + 70
    width = len(ROWS) * (_BOX + _GAP) + _GAP
    shapes = [f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for column, (package, rows) in enumerate(ROWS.items()):
        left = _GAP + column * (_BOX + _GAP)
        lines, files = total(package)
        shapes.append(
            f'<rect x="{left}" y="16" width="{_BOX}" height="{height - 64}" rx="4" fill="#f6f6f3" stroke="#333"/>'
        )
        name = escape(package.replace("_", "-"))
        shapes.append(f'<text x="{left + 14}" y="40" font-size="16" font-weight="600">{name}</text>')
        shapes.append(f'<text x="{left + 14}" y="58" font-size="12" fill="#555">{lines:,} lines, {files} files</text>')
        for row, folders in enumerate(rows):
            wide = (_BOX - 28 - 6 * (len(folders) - 1)) / len(folders)
            for place, folder in enumerate(folders):
                x, y = left + 14 + place * (wide + 6), _TOP + row * _LINE
                shapes.append(
                    f'<rect x="{x:.0f}" y="{y}" width="{wide:.0f}" height="36" rx="3" fill="#fff" stroke="#999"/>'
                    f'<text x="{x + wide / 2:.0f}" y="{y + 15}" font-size="11" text-anchor="middle">{folder}</text>'
                    f'<text x="{x + wide / 2:.0f}" y="{y + 29}" font-size="10" fill="#777" text-anchor="middle">'
                    f"{lines_of(package, folder):,}</text>"
                )
        others = sorted(other.replace("_", "-") for other in imports(package))
        needed = "all of the others" if len(others) == len(ROWS) - 1 else ", ".join(others) or "none of the others"
        shapes.append(f'<text x="{left + 14}" y="{height - 24}" font-size="12">imports {escape(needed)}</text>')
    body = "\n".join(shapes)
    font = "font-family=\"system-ui, 'Segoe UI', sans-serif\""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font} fill="#111">\n{body}\n</svg>\n'
    )


def main() -> int:
    PICTURE.write_text(draw())
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
