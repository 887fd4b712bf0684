"""The status page: static files over the JSON of `GET /status`.

The page has no data and needs no key. It asks for the admin key, keeps it in the tab and sends it as a bearer token; nothing is
in a cookie or an address. Everything it shows came as JSON and is drawn as text (`antiphon/page/dom.js`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from antiphon.page.files import PageFiles

STATUS_PAGE = PageFiles(Path(__file__).parent, ("theme.css", "base.css", "status.css"))


def wants_page(headers: Mapping[str, str], query: Mapping[str, str]) -> bool:
    """Whether a browser asks, and not a program. Names of headers are in lower case."""
    wanted = query.get("format", "")
    return wanted == "html" or (wanted != "json" and "text/html" in headers.get("accept", ""))
