"""A real browser for the tests of the page: a Chromium that is installed, driven through Playwright."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REQUIRED = os.environ.get("ANTIPHON_BROWSER_TESTS") == "required"
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


def mark_others_slow(items: Iterable[pytest.Item]) -> None:
    """Leave the everyday run the journeys, one through each view and on one screen; other tests in a browser are slow."""
    begun: set[str] = set()
    for item in items:
        if "_chromium" not in getattr(item, "fixturenames", ()):
            continue
        test = item.nodeid.partition("[")[0]
        if not item.get_closest_marker("journey") or test in begun:
            item.add_marker(pytest.mark.slow)
        elif not item.get_closest_marker("slow"):
            begun.add(test)


def missing(what: str) -> None:
    """Skip, or fail where a browser was promised (`ANTIPHON_BROWSER_TESTS=required`, for continuous integration)."""
    if REQUIRED:
        pytest.fail(what)
    pytest.skip(what)


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
