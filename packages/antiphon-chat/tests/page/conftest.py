"""What the tests of the page in a browser use beside the browser itself."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.chromium import missing

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = "axe-core@4"


@pytest.fixture(scope="module")
def axe(request: pytest.FixtureRequest) -> str:
    """The accessibility checker, fetched into pytest's cache once."""
    folder = request.config.rootpath / ".pytest_cache" / "d" / "axe"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            missing("axe checks the page, and npm, which fetches it, is not installed")
        command = [str(npm), "install", "--prefix", str(folder), "--no-save", "--ignore-scripts", "--no-audit", AXE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            missing(f"axe could not be fetched: {done.stderr.strip().splitlines()[-1:]}")
    return script.read_text()


def axe_violations(page: Page) -> list[tuple[str, list[str]]]:
    """What the checker, which was evaluated in the page, finds: each rule with the elements that break it."""
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(one["id"], [node["html"] for node in one["nodes"]][:4]) for one in found]
