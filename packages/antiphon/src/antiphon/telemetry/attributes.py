"""Our values as attributes of OpenTelemetry's GenAI conventions: names, units of meaning and spelling, without any I/O.

The conventions are still in development. Two renamed attributes are written under both names, because published viewers know
the old ones: `gen_ai.system` (now `gen_ai.provider.name`) and `cache_creation` (now `cache_write`).
"""

from __future__ import annotations

from typing import Any, TypeAlias
from urllib.parse import urlsplit

from antiphon.parts import TokenUsage
from antiphon.wire.request import ModelRequest

Attributes: TypeAlias = dict[str, Any]

LONGEST_NAME = 200
"""Names that clients choose are cut: a model name is an attribute, not a document."""

PROVIDER_NAMES = {
    "azure-openai": "azure.ai.openai",
    "deepseek-anthropic": "deepseek",
    "gemini": "gcp.gemini",
    "gemini-interactions": "gcp.gemini",
    "gemini-openai": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "moonshot-anthropic": "moonshot_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""Providers that have another name in the conventions."""

TOKEN_FIELDS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cache_read.input_tokens": "cached_tokens",
    "cache_write.input_tokens": "cache_write_tokens",
    "reasoning.output_tokens": "reasoning_tokens",
}
"""The kinds of tokens in the conventions, and the field of `TokenUsage` that counts each."""
_ALWAYS = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")

_FINISH_REASONS = {"end": "stop", "stop_sequence": "stop", "tool_calls": "tool_call"}
_OUTPUT_TYPES = {"json_object": "json", "json_schema": "json", "text": "text"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


def provider_attributes(provider: str, operation: str) -> Attributes:
    """The operation and the provider, under its name in the conventions."""
    name = PROVIDER_NAMES.get(provider, provider) or "unknown"
    return {"gen_ai.operation.name": operation, "gen_ai.provider.name": name, "gen_ai.system": name}


def conversation_attributes(conversation_id: str) -> Attributes:
    """The conversation; viewers group by `session.id`."""
    return {"gen_ai.conversation.id": conversation_id, "session.id": conversation_id} if conversation_id else {}


def agent_attributes(name: str, description: str = "") -> Attributes:
    """The agent, where it has a name."""
    return present({"gen_ai.agent.name": name or None, "gen_ai.agent.description": description or None})


def settings_attributes(settings: ModelRequest) -> Attributes:
    """The settings of a request that have a name in the conventions."""
    reasoning, output = settings.reasoning, settings.output_format
    return present(
        {
            "gen_ai.request.temperature": settings.temperature,
            "gen_ai.request.top_p": settings.top_p,
            "gen_ai.request.top_k": settings.top_k,
            "gen_ai.request.max_tokens": settings.max_output_tokens,
            "gen_ai.request.stop_sequences": settings.stop,
            "gen_ai.request.seed": settings.seed,
            "gen_ai.request.frequency_penalty": settings.frequency_penalty,
            "gen_ai.request.presence_penalty": settings.presence_penalty,
            "gen_ai.request.choice.count": settings.candidates if settings.candidates != 1 else None,
            "gen_ai.request.reasoning.level": None if reasoning is None else reasoning.effort,
            "gen_ai.output.type": None if output is None else _OUTPUT_TYPES[output.kind],
        }
    )


def usage_attributes(usage: TokenUsage | None) -> Attributes:
    """Tokens. Those of the prompt include cached ones, those of the answer include reasoning."""
    if usage is None:
        return {}
    counts = {f"gen_ai.usage.{name}": getattr(usage, field) for name, field in TOKEN_FIELDS.items()}
    counts["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
    return {name: count for name, count in counts.items() if count or name in _ALWAYS}


def server_attributes(base_url: str) -> Attributes:
    """The host and port of an upstream."""
    if not base_url:
        return {}
    parts = urlsplit(base_url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return present({"server.address": parts.hostname, "server.port": port})


def finish_reason(stop_reason: str) -> str:
    """A stop reason as the conventions spell it."""
    return _FINISH_REASONS.get(stop_reason, stop_reason)


def finish_attributes(stop_reason: str, response_id: str, model: str) -> Attributes:
    """What a response says about itself."""
    return present(
        {
            "gen_ai.response.finish_reasons": [finish_reason(stop_reason)] if stop_reason else None,
            "gen_ai.response.id": response_id or None,
            "gen_ai.response.model": model[:LONGEST_NAME] or None,
        }
    )


def present(attributes: Attributes) -> Attributes:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def nonzero(attributes: Attributes) -> Attributes:
    """The attributes whose value is not zero or empty."""
    return {name: value for name, value in attributes.items() if value}
