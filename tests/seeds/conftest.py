"""The browser of the tests in `web/`, for the seed that has a page."""

from __future__ import annotations

from web.conftest import chromium
from web.conftest import collect_ignore_glob as _without_browser

__all__ = ["chromium"]
collect_ignore_glob = ["test_seed_002_page.py"] if _without_browser else []
