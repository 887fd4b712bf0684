"""The settings of a request that its response repeats.

OpenAI's responses contain the settings they were made with, in full: defaults are filled in, and a function tool has all its
fields. The response of another API has none of this, so it is taken from the client's request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
"""The settings of a response, with their values when the request does not set them."""

_ONLY_IF_GIVEN = ("conversation", "prompt", "user", "prompt_cache_retention", "context_management")
_CHOSEN_BY_SERVER = frozenset({"service_tier"})
"""What a request asks for is not what the response reports."""
CLIENT_FIELDS = ("background", "conversation", "previous_response_id", "store")
"""Settings that are between the client and the gateway; what an upstream reports for them does not concern the client."""
_REASONING: dict[str, Any] = {"effort": None, "summary": None}
_FUNCTION: dict[str, Any] = {"type": "function", "name": "", "description": None, "parameters": None, "strict": True}


def request_settings(body: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request body that differ from the defaults, as a response repeats them."""
    settings: dict[str, Any] = {}
    for field in DEFAULTS:
        value = body.get(field)
        if value is not None and field not in _CHOSEN_BY_SERVER:
            settings[field] = value
    for field in _ONLY_IF_GIVEN:
        if body.get(field) is not None:
            settings[field] = body[field]
    if isinstance(settings.get("conversation"), str):
        settings["conversation"] = {"id": settings["conversation"]}
    if "tools" in settings:
        settings["tools"] = _complete_tools(settings["tools"])
    if isinstance(settings.get("reasoning"), dict):
        settings["reasoning"] = {**_REASONING, **settings["reasoning"]}
    if isinstance(settings.get("text"), dict):
        settings["text"] = {**DEFAULTS["text"], **settings["text"]}
    return settings


def with_settings(extras: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The extras of a response with the settings of its request, where the response does not have its own."""
    return {**settings, **extras, **{field: settings[field] for field in CLIENT_FIELDS if field in settings}}


def _complete_tools(tools: Any) -> Any:
    if not isinstance(tools, list):
        return []
    return [
        {**_FUNCTION, **tool} if isinstance(tool, dict) and tool.get("type") == "function" else tool for tool in tools
    ]
