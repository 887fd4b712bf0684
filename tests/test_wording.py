"""Plain English everywhere: phrases that no engineer would use are counted, and their number may only fall.

`LIMITS` holds what is left. When you remove some, lower the number; when the test fails, write it another way (see
CONTRIBUTING.md). Texts that recorded traffic or other projects wrote are not ours and are not counted.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from support.repository import ROOT, SOURCES

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
    r"\bstands for\b": 0,
    r"\bwhat stands\b": 4,
    r"\bfor ever\b": 0,
    r"\bis to be\b": 0,
    r"\bcomes to its end\b": 0,
    r"\bgoes before\b": 0,
}
FOLDERS = ["packages", "docs", "tests", "bench", "examples", "fuzz", "README.md", "CONTRIBUTING.md"]
NAME = re.compile(
    r"(^|_)(?<!there_)(told|tells|said|whoever|nobody|somebody|behind|heard|hears?|goes_on|mended|is_no|anew|are_none)(_|$)"
    r"|^test_(what|who|how|where|why|when)_",
    re.IGNORECASE,
)

DEFINITION = re.compile(r"^[ \t]*(?:async def|def|class) (\w+)", re.MULTILINE)
METAPHOR = re.compile(
    r"_?(Errand|Moment|PlainLine|PlainHead|Keeper|Asked|Passage|Door|NoDoor|Voice|Skimmer|Course|Standing|Rest|Playing"
    r"|Stage|Desk|Sitting|Holdings|Patience|Remembered|go_on|happen|undrawn|read_said)"
)
"""Names of the first version that the style guide replaced; the source does not use them."""


@cache
def ours() -> dict[Path, str]:
    """Our files and their texts."""
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split() or [str(path.relative_to(ROOT)) for path in (ROOT / "packages").rglob("*.py")]
    kept = [
        ROOT / name for name in names if name.endswith((".py", ".md", ".js", ".mjs", ".html")) and ".min." not in name
    ]
    return {path: path.read_text(encoding="utf-8") for path in kept if path.exists() and path != Path(__file__)}


@cache
def in_small_letters() -> list[tuple[Path, str]]:
    """Our texts, as a phrase is looked for: this is much faster than to ignore the case in each search."""
    return [(path, text.lower()) for path, text in ours().items()]


def place(path: Path, text: str, position: int) -> str:
    number = text.count("\n", 0, position) + 1
    return f"{path.relative_to(ROOT)}:{number}: {text.splitlines()[number - 1].strip()[:100]}"


@pytest.mark.parametrize(("phrase", "limit"), LIMITS.items())
def test_phrases_to_avoid_do_not_come_back(phrase: str, limit: int) -> None:
    # A text without the plain words is left out: the pattern alone takes ten times as long.
    words = " ".join(re.findall("[a-z]+", re.sub(r"\(.*?\)|\\b|\[.*?\]", "", phrase)))
    places = [
        place(path, text, found.start())
        for path, text in in_small_letters()
        if words in text
        for found in re.finditer(phrase, text)
    ]
    assert len(places) <= limit, f"{phrase!r} occurs {len(places)} times, at most {limit} allowed:\n" + "\n".join(
        places
    )


def test_functions_and_classes_have_plain_names() -> None:
    found = [
        place(path, text, definition.start(1))
        for path, text in ours().items()
        if path.suffix == ".py"
        for definition in DEFINITION.finditer(text)
        if NAME.search(definition[1]) or (any(map(path.is_relative_to, SOURCES)) and METAPHOR.fullmatch(definition[1]))
    ]
    assert found == [], "choose a name in the words of the field"
