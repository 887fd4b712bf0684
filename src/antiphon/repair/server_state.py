"""Requests that leave a part of the conversation at the server: they name it, and send only what is new.

Their results may answer calls that only the server has, so they are not repaired as if they were whole. And only that server
can answer them: anywhere else the earlier turns are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from antiphon.wire.request import ModelRequest

_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "openai-responses": ("previous_response_id", "conversation"),
        "anthropic": ("thread",),
        "gemini": ("cachedContent",),
    }
)
"""The fields that name earlier turns, by format."""


def server_history_field(request: ModelRequest, format_name: str) -> str:
    """The field that names the turns which the server of that format has; empty if the request is whole."""
    if not request.native:
        return ""
    extras = request.native.get(format_name, {})
    for field in _FIELDS.get(format_name, ()):
        value = extras.get(field)
        # a thread that is created begins with this request
        if value and (field != "thread" or (isinstance(value, dict) and value.get("type") == "continue")):
            return field
    return ""
