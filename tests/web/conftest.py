"""A real browser for the tests of the page: a Chromium that is installed, driven through Playwright."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED = os.environ.get("ANTIPHON_BROWSER_TESTS") == "required"
HAS_PLAYWRIGHT = find_spec("playwright") is not None
collect_ignore_glob = [] if HAS_PLAYWRIGHT or REQUIRED else ["test_browser*.py"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = "axe-core@4"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def missing(what: str) -> None:
    """Skip, or fail where a browser was promised (`ANTIPHON_BROWSER_TESTS=required`, for continuous integration)."""
    if REQUIRED:
        pytest.fail(what)
    pytest.skip(what)


def pytest_report_header() -> str | None:
    """Say it where tests are left out: a module that cannot be imported cannot skip itself."""
    return None if HAS_PLAYWRIGHT else "the page is not tested in a browser: pip install playwright"


@pytest.fixture(scope="session")
def _chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """One browser for each process that runs tests, started when the first of them asks, and the loop that drives it."""
    from playwright.sync_api import sync_playwright

    found = os.environ.get("ANTIPHON_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing(f"there is no browser to test the page in: install one of {', '.join(NAMES)}, or set ANTIPHON_BROWSER")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def chromium(_chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser, for the tests of a module.

    Playwright keeps a loop running in this thread, and `asyncio.run` refuses to start inside it: between modules it is not the
    running one.
    """
    browser, loop = _chromium
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


@pytest.fixture(scope="module")
def axe(request: pytest.FixtureRequest) -> str:
    """The accessibility checker, fetched into pytest's cache once."""
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("axe")
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
