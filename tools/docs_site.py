"""A hook of mkdocs: programs that the guides link to (`examples/`, `deploy/`, `tests/`) and our theme become part of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
THEME = ROOT / "packages" / "antiphon" / "src" / "antiphon" / "page"
_LINK = re.compile(r"\]\(\.\./((?:examples|deploy|tests)[^)]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the files that guides link to outside docs/."""
    texts = [page.content_string for page in files.documentation_pages()]
    for target in {name for text in texts for name in _LINK.findall(text)}:
        path = ROOT / target
        if path.is_file():
            files.append(File.generated(config, target, content=path.read_bytes()))
    for path in (THEME / "theme.css", THEME / "icon.svg", *sorted((THEME / "fonts").iterdir())):
        target = f"theme/{path.relative_to(THEME).as_posix()}"
        files.append(File.generated(config, target, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point the links at these copies; a link to a folder becomes its name."""
    markdown = _LINK.sub(lambda found: found[0] if (ROOT / found[1]).is_dir() else f"]({found[1]})", markdown)
    return re.sub(r"\[([^\]]*)\]\(\.\./deploy\)", r"\1", markdown)
