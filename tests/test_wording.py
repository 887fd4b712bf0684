"""Plain English in source and docs: phrases that no engineer would say are counted, and their number may only fall.

`LIMITS` holds what is left. When you remove some, lower the number; when the test fails, write it another way (see
CONTRIBUTING.md). Texts that recorded traffic or other projects wrote are not ours and are not counted.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIMITS = {
    r"(?<!there )\bis no [a-z]": 5,
    r"\bbehind\b": 7,
    r"\bwhoever\b": 1,
    r"\bnobody\b": 5,
    r"\bsomebody\b": 2,
    r"\btold\b": 1,
    r"\bgoes on\b": 3,
    r"\bmended\b": 0,
    r"\banew\b": 0,
    r"\bto be had\b": 0,
    r"\bunder way\b": 0,
}


def texts() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "src", "docs", "README.md", "CONTRIBUTING.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split() or [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")]
    kept = [ROOT / name for name in names if name.endswith((".py", ".md", ".js", ".html"))]
    return [path.read_text(encoding="utf-8") for path in kept if path.exists()]


@pytest.mark.parametrize(("phrase", "limit"), LIMITS.items())
def test_phrases_to_avoid_do_not_come_back(phrase: str, limit: int) -> None:
    found = sum(len(re.findall(phrase, text, re.IGNORECASE)) for text in texts())
    assert found <= limit, f"{phrase!r} occurs {found} times, and {limit} are left to remove: say it another way"
