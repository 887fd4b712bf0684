"""A hook of mkdocs: programs that the guides link to (`examples/`, `deploy/`, `tests/`) and our theme are part of the site, and
so is `llms.txt`: every guide with its first sentence, and how to use Antiphon, for programs that read documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
THEME = ROOT / "packages" / "antiphon" / "src" / "antiphon" / "page"
SKILL = ROOT / "packages" / "antiphon" / "src" / "antiphon" / "SKILL.md"
_CHINESE = {
    "Search": "搜索",
    "Clear": "清空",
    "Dark": "深色",
    "Light": "浅色",
    "Header": "页眉",
    "Navigation": "导航",
    "Tabs": "标签",
    "Table of contents": "目录",
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
    "Permanent link": "此处的链接",
    "Copy to clipboard": "复制",
    "Copied to clipboard": "已复制",
    "Type to start searching": "输入以搜索",
    "No matching documents": "没有找到",
    "1 matching document": "找到 1 页",
    "# matching documents": "找到 # 页",
    "1 more on this page": "本页还有 1 处",
    "# more on this page": "本页还有 # 处",
    "Missing": "缺少",
}
"""What the theme says around a Chinese page; it knows one language for a whole site."""
_SPOKEN = re.compile(rf"([\">]\s*)({'|'.join(map(re.escape, _CHINESE))})(\s*[\"<])")
_LINK = re.compile(r"\]\(((?:\.\./)+)((?:examples|deploy|tests|packages)[^)]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the files that guides link to outside docs/."""
    texts = [page.content_string for page in files.documentation_pages()]
    for target in {name for text in texts for _, name in _LINK.findall(text)}:
        path = ROOT / target
        if path.is_file():
            files.append(File.generated(config, target, content=path.read_bytes()))
    for path in (THEME / "theme.css", THEME / "icon.svg", *sorted((THEME / "fonts").iterdir())):
        target = f"theme/{path.relative_to(THEME).as_posix()}"
        files.append(File.generated(config, target, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point the links at these copies; a link to a folder becomes its name."""
    up = "../"
    markdown = _LINK.sub(
        lambda found: found[0] if (ROOT / found[2]).is_dir() else f"]({found[1].removeprefix(up)}{found[2]})", markdown
    )
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)+deploy\)", r"\1", markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Say the language of a Chinese page, let the theme speak it there, and name the search for screen readers."""
    language, label = ("zh", "搜索") if page.file.src_uri.startswith("zh/") else ("en", "Search")
    search = 'data-md-component="search" role="dialog"'
    output = output.replace('<html lang="en"', f'<html lang="{language}"', 1)
    output = output.replace(search, f'{search} aria-label="{label}"', 1)
    if language == "zh":
        output = _SPOKEN.sub(lambda found: found[1] + _CHINESE[found[2]] + found[3], output)
    return output


def on_post_build(config: Any) -> None:
    """Write llms.txt beside the pages."""
    (Path(config["site_dir"]) / "llms.txt").write_text(
        llms_text(Path(config["docs_dir"]), config["nav"]), encoding="utf-8"
    )


def llms_text(docs: Path, nav: list[Any]) -> str:
    """The guides of the menu as a list of links, each with the first sentence of its page; then the skill."""
    lines = ["# Antiphon", "", "> One history, every model; every call answered.", ""]
    for section in nav:
        (title, content), *_ = section.items()
        pages = content if isinstance(content, list) else [section]
        if title not in ("Home", "中文"):
            lines += [f"## {title}", "", *(line for page in pages for line in _page_line(docs, page)), ""]
    skill = SKILL.read_text(encoding="utf-8").split("---\n", 2)[2].strip()
    return (
        "\n".join(
            [*lines, skill.replace("# Antiphon for coding agents", "## How to use it", 1).replace("\n## ", "\n### ")]
        )
        + "\n"
    )


def _page_line(docs: Path, page: dict[str, Any]) -> list[str]:
    (title, name), *_ = page.items()
    if not isinstance(name, str):
        return [line for one in name for line in _page_line(docs, one)]
    text = re.sub(r"^```.*?^```$", "", (docs / name).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    first = next((block for block in text.split("\n\n")[1:] if re.match(r"[\w`*]", block)), "").replace("\n", " ")
    sentence = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first).split(". ")[0].rstrip(".:")
    return [f"- [{title}]({name.removesuffix('.md')}.html): {sentence}."]
