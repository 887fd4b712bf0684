"""How much a model thinks: `thinking` and `output_config.effort`, read and written.

What was read here carries a mark of origin (see `native`) and is written in the same words: a budget is `enabled`, a plain yes
`adaptive`, a plain no `disabled`, and an effort without any of them stays without. What comes from elsewhere says only how
much: it becomes adaptive thinking with an effort on models known to take that, and a budget on all others. Efforts and budgets
are turned into each other by one table; where a model refuses one way (AN-19, AN-32), the other is taken.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.anthropic.blocks import block_type
from antiphon.wire.anthropic.native import is_same_format, origin_marker
from antiphon.wire.anthropic.parameters import EFFORTS
from antiphon.wire.anthropic.target import Capabilities
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import BUDGETS, Reasoning

MIN_BUDGET = 1024
DEFAULT_MAX_TOKENS = 4096

_DISPLAYS = {"omitted": "omitted", "summarized": "summarized"}
_DISPLAY_FOR = _DISPLAYS | {"auto": "summarized", "concise": "summarized", "detailed": "summarized", "none": "omitted"}


def read_thinking(thinking: Any) -> Reasoning | None:
    """What `thinking` says; None if it says it in a way we do not know."""
    match thinking:
        case {"type": "enabled", "budget_tokens": int(budget), **rest} if budget > 0 and type(budget) is int:
            return _read_display(Reasoning(budget_tokens=budget, enabled=True, native=origin_marker()), rest)
        case {"type": "adaptive", **rest}:
            return _read_display(Reasoning(enabled=True, native=origin_marker()), rest)
        case {"type": "disabled", **rest} if not rest:
            return Reasoning(enabled=False, native=origin_marker())
    return None


def _read_display(reasoning: Reasoning, other: dict[Any, Any]) -> Reasoning | None:
    display = other.get("display")
    if other.keys() - {"display"} or (display is not None and (type(display) is not str or display not in _DISPLAYS)):
        return None
    return Reasoning(reasoning.effort, reasoning.budget_tokens, True, display, reasoning.native)


def write_reasoning(
    reasoning: Reasoning, capabilities: Capabilities, losses: list[Loss]
) -> tuple[dict[str, Any] | None, str | None]:
    """The values of `thinking` and of `output_config.effort`."""
    lose_native(losses, "reasoning", reasoning.native, "anthropic")
    effort = _read_effort(reasoning, losses)
    if effort == "none" or reasoning.enabled is False or reasoning.budget_tokens == 0:
        stated_effort = effort if effort != "none" and is_same_format(reasoning.native) else None
        _write_display(reasoning, None, losses)
        return _disable(capabilities, losses), _supported_effort(stated_effort, capabilities, losses)
    thinking: dict[str, Any] | None = None
    if is_same_format(reasoning.native):
        if reasoning.enabled:
            thinking, effort = _enable(reasoning, effort, capabilities, losses)
    elif capabilities.accepts_effort and reasoning.budget_tokens is None and (effort or reasoning.enabled):
        thinking = {"type": "adaptive"}
    elif effort or reasoning.enabled or reasoning.budget_tokens is not None:
        budget = _write_budget(reasoning.budget_tokens, effort, losses)
        thinking, effort = _with_budget(budget, effort, capabilities)
    _write_display(reasoning, thinking, losses)
    return thinking, _supported_effort(effort, capabilities, losses)


def _read_effort(reasoning: Reasoning, losses: list[Loss]) -> str | None:
    effort = reasoning.effort
    if effort is None or effort in BUDGETS:
        return "low" if effort == "minimal" and reasoning.budget_tokens is None else effort
    losses.append(Loss("reasoning.effort", "effort", f"{effort!r} is not an effort this API knows (AN-32)"))
    return None


def _disable(capabilities: Capabilities, losses: list[Loss]) -> dict[str, Any] | None:
    if capabilities.can_disable_thinking:
        return {"type": "disabled"}
    losses.append(Loss("reasoning", "no thinking", "this model cannot stop thinking (AN-19)"))
    return None


def _enable(
    reasoning: Reasoning, effort: str | None, capabilities: Capabilities, losses: list[Loss]
) -> tuple[dict[str, Any], str | None]:
    """Thinking as it was asked for in this format, or the nearest thing the model takes."""
    if reasoning.budget_tokens is None:
        if capabilities.accepts_adaptive:
            return {"type": "adaptive"}, effort
        losses.append(Loss("reasoning", "adaptive thinking", "this model thinks within a budget only (AN-19)"))
        return {"type": "enabled", "budget_tokens": _write_budget(None, effort, losses)}, effort
    budget = _write_budget(reasoning.budget_tokens, effort, losses)
    thinking, nearest_effort = _with_budget(budget, effort, capabilities)
    return thinking, effort or nearest_effort


def _write_budget(budget: int | None, effort: str | None, losses: list[Loss]) -> int:
    if budget is None or budget == -1:  # Gemini's word for: as you like
        return max(BUDGETS[effort or "medium"], MIN_BUDGET)
    if budget < MIN_BUDGET:
        losses.append(Loss("reasoning.budget_tokens", str(budget), f"the least is {MIN_BUDGET} (AN-19)"))
        return MIN_BUDGET
    return budget


def _with_budget(budget: int, effort: str | None, capabilities: Capabilities) -> tuple[dict[str, Any], str | None]:
    """Thinking within a budget, or as much of it by the word where the model takes no budget."""
    if capabilities.accepts_budget:
        return {"type": "enabled", "budget_tokens": budget}, None
    nearest_effort = [name for name in EFFORTS if BUDGETS[name] <= budget][-1]
    return {"type": "adaptive"}, effort or nearest_effort


def _write_display(reasoning: Reasoning, thinking: dict[str, Any] | None, losses: list[Loss]) -> None:
    if reasoning.shown is None:
        return
    display = _DISPLAY_FOR.get(reasoning.shown)
    if thinking is not None and display is not None:
        thinking["display"] = display
    else:
        reason = f"{reasoning.shown!r} is no way of showing thinking here, or there is none to show"
        losses.append(Loss("reasoning.shown", "shown", reason))


def _supported_effort(effort: str | None, capabilities: Capabilities, losses: list[Loss]) -> str | None:
    if effort == "xhigh" and not capabilities.accepts_xhigh:
        losses.append(Loss("reasoning.effort", "xhigh", "this model goes up to high (AN-32)"))
        return "high"
    return "low" if effort == "minimal" else effort


def allow_thinking(thinking: dict[str, Any], body: dict[str, Any], is_default_limit: bool, losses: list[Loss]) -> bool:
    """Whether thinking within a budget goes with the rest of the body (AN-19, AN-30); the budget may shrink."""
    if thinking["type"] != "enabled":
        return True
    reason = ""
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        reason = "thinking may not be enabled when a call is demanded (AN-19)"
    elif _tool_loop_lacks_thinking(body["messages"]):
        reason = "the calls under way have lost their thinking, so it cannot be enabled (AN-30)"
    elif thinking["budget_tokens"] >= body["max_tokens"] and is_default_limit:
        body["max_tokens"] = thinking["budget_tokens"] + DEFAULT_MAX_TOKENS
    elif thinking["budget_tokens"] >= body["max_tokens"] and "tools" not in body:
        # With tools, interleaved thinking may spend more than one answer's tokens.
        if body["max_tokens"] <= MIN_BUDGET:
            reason = f"max_tokens leaves less than the least budget of {MIN_BUDGET} (AN-19)"
        else:
            lowered = f"the budget must be less than max_tokens, and was lowered to {body['max_tokens'] - 1} (AN-19)"
            losses.append(Loss("reasoning.budget_tokens", str(thinking["budget_tokens"]), lowered))
            thinking["budget_tokens"] = body["max_tokens"] - 1
    if reason:
        losses.append(Loss("reasoning", "thinking", reason))
    return not reason


def _tool_loop_lacks_thinking(messages: list[Any]) -> bool:
    """Whether a tool loop is under way that shows no thinking at all (AN-30). Neighbours of one role are one turn."""
    has_calls = has_results = is_users_turn = False
    for message in reversed(messages):
        content = message.get("content") if isinstance(message, dict) else None
        kinds = [block_type(block) for block in content] if isinstance(content, list) else []
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            is_users_turn = True
            has_results = has_results or "tool_result" in kinds
        elif role == "assistant":
            if is_users_turn and not has_results:
                break
            if "thinking" in kinds or "redacted_thinking" in kinds:
                return False
            is_users_turn = has_results = False
            has_calls = has_calls or "tool_use" in kinds
    return has_calls
