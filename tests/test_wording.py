"""Plain English everywhere: phrases that no engineer would use are counted, and their number may only fall.

`LIMITS` holds what is left. When you remove some, lower the number; when the test fails, write it another way (see
CONTRIBUTING.md). Texts that recorded traffic or other projects wrote are not ours and are not counted.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What is left: columns of stored tables, the user that PostgreSQL runs as, and field usage ("behind a load balancer").
LIMITS = {
    r"(?<!there )\bis no [a-z]": 0,
    r"\bbehind\b": 4,
    r"\bwhoever\b": 0,
    r"\bnobody\b": 2,
    r"\bsomebody\b": 0,
    r"\btold\b": 0,
    r"\bheard\b": 0,
    r"\bgoes on\b": 0,
    r"\bmended\b": 0,
    r"\banew\b": 0,
    r"\bto be had\b": 0,
    r"\bunder way\b": 0,
    r"\bof which\b": 0,
    r"\bas things stand\b": 0,
    r"\bcannot be had\b": 0,
    r"\bdid not take\b": 0,
    r"\bsomething went wrong\b": 0,
    r"\bsays nothing to me\b": 0,
    r"\bit holds nothing\b": 0,
    r"\bhalf answered\b": 0,
    r"\bas they do in life\b": 0,
    r"\boffers a key\b": 0,
    r"\bis theirs\b": 0,
}
FOLDERS = ["src", "docs", "tests", "bench", "examples", "fuzz", "README.md", "CONTRIBUTING.md"]
NAME = re.compile(
    r"(^|_)(?<!there_)(told|tells|said|whoever|nobody|somebody|behind|heard|hears?|goes_on|mended|is_no|anew|are_none)(_|$)",
    re.IGNORECASE,
)

METAPHOR = re.compile(
    r"_?(Errand|Moment|PlainLine|PlainHead|Keeper|Asked|Passage|Door|NoDoor|Voice|Skimmer|Course|Standing|Rest|Playing"
    r"|Stage|Desk|Sitting|Holdings|Patience|Remembered|go_on|happen|undrawn|read_said)"
)
"""Names of the first version that the style guide replaced; the source does not use them."""


def ours() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split() or [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")]
    kept = [ROOT / name for name in names if name.endswith((".py", ".md", ".js", ".mjs", ".html"))]
    return [path for path in kept if path.exists() and path != Path(__file__)]


@pytest.mark.parametrize(("phrase", "limit"), LIMITS.items())
def test_phrases_to_avoid_do_not_come_back(phrase: str, limit: int) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in ours()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for _ in re.finditer(phrase, line, re.IGNORECASE)
    ]
    assert len(places) <= limit, f"{phrase!r} occurs {len(places)} times, at most {limit} allowed:\n" + "\n".join(
        places
    )


def test_functions_and_classes_have_plain_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in ours()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (NAME.search(node.name) or (path.is_relative_to(ROOT / "src") and METAPHOR.fullmatch(node.name)))
    ]
    assert found == [], "choose a name in the words of the field"
