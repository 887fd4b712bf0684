"""What the Messages API accepts, as data for the writer and the checks (the ids are those of `rules`).

What a model accepts comes from `Capabilities`; `Target` adds the API version and the host. Names and ids of tools, image types
and cache breakpoints are in `capabilities.json`, the fields of each block type in `rules/tables.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from msgspec import Struct

from antiphon.wire.anthropic import FORMAT
from antiphon.wire.capabilities import Capabilities, format_capabilities
from antiphon.wire.parameters import (
    NUMBER,
    Choice,
    Length,
    Parameter,
    ParameterTable,
    Range,
    Rejection,
    Texts,
    is_default,
    refused_fields,
)
from antiphon.wire.rules import ANY, Checked, Object, OneOf, Path, name_set, need

PARAMETERS = name_set(
    "model messages max_tokens system metadata stop_sequences stream temperature top_p top_k tools tool_choice thinking "
    "service_tier container context_management mcp_servers output_config output_format cache_control inference_geo speed "
    "user_profile_id diagnostics fallbacks fallback_credit_token compaction thread"
)
"""AN-27."""
# Hosts with the model in the URL accept version and betas in the body (AN-01, errata).
HOST_PARAMETERS = PARAMETERS | {"anthropic_version", "anthropic_beta"}
SAMPLING = ("temperature", "top_p", "top_k")
"""AN-21; API version 2026-10-21 has none of them (AN-28)."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""AN-32."""
MIN_BUDGET = 1024
"""Of thinking (AN-19)."""
MIN_TOP_P_WITH_THINKING = 0.95
"""AN-19."""
MAX_STRICT_TOOLS, MAX_OPTIONAL_PARAMETERS, MAX_UNION_PARAMETERS = 20, 24, 16
"""Of all strict tools together (AN-16)."""
FORCED_CHOICES = ("any", "tool")
"""The types of `tool_choice` that force a call, which not every model accepts (AN-17), nor thinking (AN-19)."""
CHOICES = ("auto", *FORCED_CHOICES, "none")
"""All of them."""
THINKING_BLOCKS = ("thinking", "redacted_thinking")
UNMARKED_BLOCKS = frozenset({*THINKING_BLOCKS, "fallback"})
"""The blocks that cannot have a cache breakpoint (AN-18)."""
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
PDF, PLAIN_TEXT = "application/pdf", "text/plain"
"""The types of inline documents (AN-24)."""


CACHE_CONTROL = Object(
    rule="AN-18",
    # `scope` belongs to a beta, and betas are in a header.
    fields={
        "type": need(OneOf(values=("ephemeral",))),
        "ttl": OneOf(values=("5m", "1h")),
        "scope": ANY,
    },
    has_nulls=True,
)


def is_cache_control(value: Any) -> bool:
    """Whether a value is a cache breakpoint that the API accepts."""
    found = Checked({}, format_capabilities(FORMAT))
    CACHE_CONTROL.check(value, None, found)
    return not found.violations


def is_server_block(block_type: str) -> bool:
    """Whether a block is a call that the provider runs itself, or the result of one."""
    return block_type in SERVER_CALLS or block_type.endswith("_tool_result")


def is_blank(text: str) -> bool:
    """Whether a text is refused as empty (AN-05, AN-22)."""
    return not text or text.isspace()


VERSION = "2023-06-01"
VERSION_2026_10 = "2026-10-21"


class Target(Struct, frozen=True):
    """What a request goes to: the model, the API version and the host."""

    model: Capabilities
    is_version_2026_10: bool = False
    is_on_bedrock: bool = False

    def accepts_system_role(self, is_native: bool) -> bool:
        """Whether system messages may be among the others (AN-03); if that is unknown or without effect, only where an
        Anthropic body had them."""
        where = self.model.system_messages
        return where == "anywhere" or (where in (None, "ignored") and is_native)


def target_for(model: Capabilities, version: str, host: Any) -> Target:
    """The target of a request; `host` is the `anthropic_version` in the body, which other hosts require."""
    return Target(
        model,
        version.startswith("20") and version >= VERSION_2026_10,
        isinstance(host, str) and host.startswith("bedrock-"),
    )


DEFAULT_MAX_TOKENS = 4096


class _Sampling(Range, frozen=True):
    """A sampling parameter, which API version 2026-10-21 does not have (AN-28)."""

    sees_null: ClassVar[bool] = True

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if found.target.is_version_2026_10:
            found.add("AN-28", at, "API version 2026-10-21 does not have it")
        else:
            Range.check(self, value, at, found)

    @property
    def rules(self) -> Iterable[str]:
        return (self.rule, "AN-28")


MAX_TOKENS = Parameter(
    "max_output_tokens",
    "max_tokens",
    (int,),
    Range(rule="AN-01", minimum=0, is_whole=True, model_fact="max_output_tokens"),
    is_written=False,
)
_TIERS = {"auto": "auto", "standard_only": "standard_only", "default": "standard_only"}
PARAMETER_TABLE = ParameterTable(
    "Anthropic",
    (
        Parameter("model", "model", (str,), is_written=False),
        MAX_TOKENS,
        Parameter("stream", "stream", (bool,), is_written=False),
        Parameter(
            "temperature", "temperature", NUMBER, _Sampling(rule="AN-21", minimum=0, maximum=1), sends_default=True
        ),
        Parameter(
            "top_p", "top_p", NUMBER, _Sampling(rule="AN-21", minimum=0, maximum=1, unset="send"), sends_default=True
        ),
        Parameter("top_k", "top_k", (int,), _Sampling(rule="AN-21", minimum=0, below="drop", unset="send")),
        Parameter("stop", "stop_sequences", limit=Texts(rule="AN-22", is_blank=is_blank)),
        Parameter("user", "user_id", (str,), Length(rule="AN-23", at_most=512), inside="metadata"),
        Parameter("service_tier", "service_tier", (str,), Choice(rule="AN-27", values=_TIERS)),
    ),
)


def refusals(temperature: Any, top_p: Any, top_k: Any, thinking: Any, target: Target) -> dict[str, Rejection]:
    """The sampling parameters that the model, the API version or thinking rule out."""
    if target.is_version_2026_10:
        reason = "API version 2026-10-21 does not support it; dropped (AN-28)"
        return dict.fromkeys(SAMPLING, Rejection(reason, "AN-28", is_pair=True))
    refused = refused_fields(target.model, "AN-21", "AN-31", temperature, top_p)
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "adaptive"):  # the API documents the same limits for adaptive thinking
        return refused
    refused = dict(refused)
    for name, value in (("temperature", temperature), ("top_p", top_p), ("top_k", top_k)):
        is_accepted = name == "top_p" and isinstance(value, int | float) and value >= MIN_TOP_P_WITH_THINKING
        if value is not None and not is_accepted and not is_default(name, value):
            refused.setdefault(name, Rejection("cannot be combined with thinking; dropped (AN-19)", "AN-19"))
    return refused
