"""Model names: which ones are accepted, and how one is written into a URL.

Clients choose these names, and some providers have them in the URL path. A name with a dot segment (`gpt-4-/../other`) would
escape a glob such as `gpt-4-*`, so it is rejected wherever a name comes in. Only `quote_path` quotes path segments.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from antiphon.errors import InvalidModelName

MAX_LENGTH = 256
"""Characters. The longest names that providers use have about a hundred."""

_has_dot_segment = re.compile(r"(?:^|[/\\])\.{1,2}(?:[/\\]|$)").search


def check_model_name(name: str) -> None:
    """Raise `InvalidModelName` for a name that is not allowed."""
    if len(name) > MAX_LENGTH:
        raise InvalidModelName(f"model: the name has {len(name):,} characters; at most {MAX_LENGTH} are allowed")
    if not name.isprintable():
        raise InvalidModelName(f"model: the name {name!a} contains control characters; remove them")
    if _has_dot_segment(name):
        raise InvalidModelName(f"model: the name {name!r} contains a dot segment ('.' or '..'); remove it")


def quote_path(name: str, *, is_one_segment: bool = False) -> str:
    """A name for the path of a URL. Slashes separate segments, unless it must be one segment."""
    check_model_name(name)
    return quote(name, safe=":@" if is_one_segment else "/:@")
