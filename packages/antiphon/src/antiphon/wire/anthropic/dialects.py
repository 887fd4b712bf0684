"""How other hosts of the Messages API differ from Anthropic, as data, and a written body as such a host accepts it.

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

from antiphon.errors import WireError
from antiphon.wire.anthropic.limits import THINKING_BLOCKS
from antiphon.wire.anthropic.shapes import block_type
from antiphon.wire.loss import Loss
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


def get_dialect(name: Any) -> Dialect:
    """The dialect of that name. Raises `WireError`."""
    dialect = DIALECTS.get(name) if isinstance(name, str) else None
    if dialect is None:
        raise WireError(f"anthropic: unknown dialect {name!r}; known: {', '.join(DIALECTS)}")
    return dialect


def apply_dialect(body: dict[str, Any], dialect: Dialect, losses: list[Loss]) -> None:
    """Change a written body into one that the host accepts."""
    for name in sorted(dialect.ignored & body.keys()):
        del body[name]
        losses.append(Loss(name, name, f"{dialect.host} ignores it; dropped"))
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < dialect.min_temperature:
        body["temperature"] = dialect.min_temperature
        losses.append(Loss("temperature", "temperature", f"{dialect.host} requires more than 0; sent the lowest"))
    _fit_thinking(body, dialect, losses)


def _fit_thinking(body: dict[str, Any], dialect: Dialect, losses: list[Loss]) -> None:
    thinking, choice = body.get("thinking"), body.get("tool_choice")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return
    names_tool = isinstance(choice, dict) and choice.get("type") == "tool"
    if dialect.named_tool_stops_thinking and names_tool:
        reason = f"{dialect.host} refuses a named tool while thinking; thinking turned off (DS-01)"
        _turn_off(body, reason, losses)
    elif dialect.missing_thinking and _lacks_thinking(body["messages"]):
        if dialect.missing_thinking == "disable":
            reason = f"{dialect.host} requires the thinking of earlier calls; turned off (DS-01)"
            _turn_off(body, reason, losses)
        elif thinking is not None:
            del body["thinking"]
            losses.append(
                Loss("reasoning", "thinking", f"{dialect.host} requires the thinking of earlier calls; dropped (DS-01)")
            )


def _turn_off(body: dict[str, Any], reason: str, losses: list[Loss]) -> None:
    body["thinking"] = {"type": "disabled"}
    losses.append(Loss("reasoning", "thinking", reason))
    effort = body.get("output_config")
    if isinstance(effort, dict) and "effort" in effort:
        body["output_config"] = {name: value for name, value in effort.items() if name != "effort"}
        if not body["output_config"]:
            del body["output_config"]


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
