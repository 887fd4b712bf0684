"""How other hosts of the Messages API differ from Anthropic, as data; asked while a request is written.

Facts come from the hosts' own compatibility tables and from recorded refusals:
- deepseek (api-docs.deepseek.com/guides/anthropic_api, DS-01): parameters that it ignores, and cache breakpoints; a named tool
  needs thinking to be off, and thinking is on by default; so do calls of this turn whose thinking is missing (it also refuses
  tools of type `custom`, which are written without a type for every host);
- moonshot: with thinking enabled it refuses calls without their thinking; without the parameter it does not;
- minimax (platform.minimax.io/docs/api-reference/text-anthropic-api): parameters that it ignores; a temperature above 0.

Z.ai documents no difference, so its preset has no dialect. What a host ignores is dropped and reported (law L3).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import structs

from antiphon.errors import WireError
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.limits import THINKING_BLOCKS
from antiphon.wire.anthropic.shapes import SOURCE, block_type
from antiphon.wire.loss import Loss
from antiphon.wire.provenance import is_from
from antiphon.wire.request import ModelRequest, Reasoning
from antiphon.wire.spec import HostDialect


class Dialect(HostDialect, frozen=True, kw_only=True):
    """What one host accepts."""

    host: str
    ignored: frozenset[str] = frozenset()
    """Parameters that have no effect there."""
    named_tool_stops_thinking: bool = False
    """Whether a `tool_choice` that names a tool is refused while the model thinks."""
    missing_thinking: Literal["", "disable", "omit"] = ""
    """What to do with `thinking` if calls of this turn lack theirs: turn it off, or leave it to the host."""
    min_temperature: float = 0.0
    caches_marked_prompts: bool = True
    """Whether `cache_control` has an effect. A host without it caches every prompt itself."""


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "deepseek": Dialect(
            host="DeepSeek",
            ignored=frozenset({"top_k", "container", "mcp_servers", "service_tier"}),
            named_tool_stops_thinking=True,
            missing_thinking="disable",
            caches_marked_prompts=False,
        ),
        "moonshot": Dialect(host="Moonshot", missing_thinking="omit"),
        "minimax": Dialect(
            host="MiniMax",
            ignored=frozenset(
                {"top_k", "stop_sequences", "service_tier", "mcp_servers", "context_management", "container"}
            ),
            min_temperature=0.01,
        ),
    }
)
"""By name. A host without an entry is taken for Anthropic's own."""
_IGNORED_FIELDS = {"service_tier": "service_tier", "stop": "stop_sequences", "top_k": "top_k"}


def get_dialect(name: Any) -> Dialect:
    """The dialect of that name. Raises `WireError`."""
    dialect = DIALECTS.get(name) if isinstance(name, str) else None
    if dialect is None:
        raise WireError(f"anthropic: unknown dialect {name!r}; known: {', '.join(DIALECTS)}")
    return dialect


def fit_request(request: ModelRequest, dialect: Dialect, body: dict[str, Any], losses: list[Loss]) -> ModelRequest:
    """The parameters of a request as the host accepts them, before they are written; `body` has its messages and its choice."""
    changes: dict[str, Any] = {}
    for field, name in _IGNORED_FIELDS.items():
        if name in dialect.ignored and getattr(request, field) is not None:
            changes[field] = None
            losses.append(ignored_loss(dialect, name))
    if not _is_off(request.reasoning):
        fitted, reason = _fit_reasoning(request.reasoning, dialect, body)
        if fitted is not request.reasoning:
            changes["reasoning"] = fitted
            losses.append(Loss("reasoning", "thinking", reason))
    return structs.replace(request, **changes) if changes else request


def fit_temperature(dialect: Dialect, body: dict[str, Any], losses: list[Loss]) -> None:
    """The lowest temperature that the host accepts instead of a lower one, where the model has one at all."""
    if body.get("temperature", dialect.min_temperature) < dialect.min_temperature:
        body["temperature"] = dialect.min_temperature
        losses.append(Loss("temperature", "temperature", f"{dialect.host} requires more than 0; sent the lowest"))


def ignored_loss(dialect: Dialect, name: str) -> Loss:
    """The loss of a parameter that the host ignores."""
    return Loss(name, name, f"{dialect.host} ignores it; dropped")


def _is_off(reasoning: Reasoning | None) -> bool:
    return reasoning is not None and (
        reasoning.enabled is False or reasoning.effort == "none" or reasoning.budget_tokens == 0
    )


def _fit_reasoning(reasoning: Reasoning | None, dialect: Dialect, body: dict[str, Any]) -> tuple[Reasoning | None, str]:
    """The reasoning that the host accepts with this choice and these messages; why, if it is another."""
    given = Reasoning() if reasoning is None else reasoning
    off = Reasoning(enabled=False, native=given.native, source=SOURCE)
    if dialect.named_tool_stops_thinking and body.get("tool_choice", {}).get("type") == "tool":
        return off, f"{dialect.host} refuses a named tool while thinking; thinking turned off (DS-01)"
    if not dialect.missing_thinking or not _lacks_thinking(body["messages"]):
        return reasoning, ""
    requires = f"{dialect.host} requires the thinking of earlier calls"
    if dialect.missing_thinking == "disable":
        return off, f"{requires}; turned off (DS-01)"
    is_own = is_from(given, FORMAT)
    if reasoning is None or (is_own and not given.enabled):
        return reasoning, ""
    stated = Reasoning(given.effort if is_own else None, native=given.native, source=SOURCE)
    return stated, f"{requires}; dropped (DS-01)"


def _lacks_thinking(messages: list[Any]) -> bool:
    """Whether a message of this turn has calls and no thinking. A turn begins with a message that is not only results."""
    for message in reversed(messages):
        if not isinstance(message, dict):
            continue
        types = _block_types(message.get("content"))
        if message.get("role") == "assistant":
            if "tool_use" in types and types.isdisjoint(THINKING_BLOCKS):
                return True
        elif message.get("role") == "user" and types != {"tool_result"}:
            return False
    return False


def _block_types(content: Any) -> set[str]:
    return {str(block_type(block)) for block in content} if isinstance(content, list) else {"text"}
