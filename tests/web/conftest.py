"""A real browser for the tests of the page: a Chromium that is installed, driven through Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REQUIRED = os.environ.get("ANTIPHON_BROWSER_TESTS") == "required"
HAS_PLAYWRIGHT = find_spec("playwright") is not None
collect_ignore_glob = [] if HAS_PLAYWRIGHT or REQUIRED else ["test_browser*.py"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser of a module: Playwright keeps a loop running in its thread, which other modules' tests could not bear."""
    from playwright.sync_api import sync_playwright

    found = os.environ.get("ANTIPHON_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing(f"there is no browser to test the page in: install one of {', '.join(NAMES)}, or set ANTIPHON_BROWSER")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()
