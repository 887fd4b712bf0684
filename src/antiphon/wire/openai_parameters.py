"""The parameters that both of OpenAI's formats say in the same words, and the fields of a request that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, tuple[str, tuple[type, ...]]]
"""By the name of a parameter: the field of the request, and the types that its value may have."""

NUMBER = (int, float)
FIELDS: Fields = {
    "model": ("model", (str,)),
    "stream": ("stream", (bool,)),
    "parallel_tool_calls": ("parallel_tool_calls", (bool,)),
    "temperature": ("temperature", NUMBER),
    "top_p": ("top_p", NUMBER),
    "top_logprobs": ("top_logprobs", (int,)),
    "user": ("user", (str,)),
    "metadata": ("metadata", (dict,)),
    "service_tier": ("service_tier", (str,)),
    "prompt_cache_key": ("cache_key", (str,)),
    "store": ("store", (bool,)),
}
SHARED_PARAMETERS = ("safety_identifier", "prompt_cache_retention", "prompt_cache_options", "moderation")
"""Parameters that no field holds and that both formats understand."""
TIERS = {"standard": "default", "standard_only": "default"}
"""The words of others for the usual tier."""


def read_fields(body: Mapping[str, Any], known: Fields, fields: dict[str, Any]) -> dict[str, Any]:
    """Put what is known, and of a type it may have, into the fields; returns the rest of what is said."""
    rest: dict[str, Any] = {}
    for name, value in body.items():
        if name in known and type(value) in known[name][1]:
            fields[known[name][0]] = value
        elif value is not None:
            rest[name] = value
    return rest
