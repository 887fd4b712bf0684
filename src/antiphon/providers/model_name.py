"""Names of models: which ones are accepted, and how one is written into a URL.

Clients choose these names, and some providers have them in the path of their URLs. A name with a dot segment
(`gpt-4-/../other`) would leave the folder that a glob such as `gpt-4-*` allows, so it is refused wherever a name comes in.
Every path segment of a URL is quoted by `quote_path`, and by nothing else.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from antiphon.errors import InvalidModelName

MAX_LENGTH = 256
"""Characters. The longest names that providers use have about a hundred."""

_has_dot_segment = re.compile(r"(?:^|[/\\])\.{1,2}(?:[/\\]|$)").search


def check_model_name(name: str) -> None:
    """Raise `InvalidModelName` if no model can have that name."""
    if len(name) > MAX_LENGTH:
        raise InvalidModelName(f"model: the name has {len(name):,} characters; at most {MAX_LENGTH} are allowed")
    if not name.isprintable():
        raise InvalidModelName(f"model: the name {name!a} contains control characters; remove them")
    if _has_dot_segment(name):
        raise InvalidModelName(f"model: the name {name!r} contains a dot segment ('.' or '..'); remove it")


def quote_path(name: str, *, is_one_segment: bool = False) -> str:
    """A name as the path of a URL has it. Slashes separate segments, unless it must be a single one."""
    check_model_name(name)
    return quote(name, safe=":@" if is_one_segment else "/:@")
