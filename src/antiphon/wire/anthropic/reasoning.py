"""How much a model thinks: `thinking` and `output_config.effort`, read and written.

What was read here carries a mark of origin (see `native`) and is written in the same words: a budget is `enabled`, a plain yes
`adaptive`, a plain no `disabled`, and an effort without any of them stays without. What comes from elsewhere says only how
much: it becomes adaptive thinking with an effort on models known to take that, and a budget on all others. Efforts and budgets
are turned into each other by one table; where a model refuses one way (AN-19, AN-32), the other is taken.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.anthropic.blocks import kind_of
from antiphon.wire.anthropic.native import is_own, mark_of_origin
from antiphon.wire.anthropic.parameters import EFFORTS
from antiphon.wire.anthropic.target import Target
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import BUDGETS, Reasoning

LEAST_BUDGET = 1024
DEFAULT_MAX_TOKENS = 4096

_DISPLAYS = {"omitted": "omitted", "summarized": "summarized"}
_SHOWN = _DISPLAYS | {"auto": "summarized", "concise": "summarized", "detailed": "summarized", "none": "omitted"}


def read_thinking(thinking: Any) -> Reasoning | None:
    """What `thinking` says; None if it says it in a way we do not know."""
    match thinking:
        case {"type": "enabled", "budget_tokens": int(budget), **rest} if budget > 0 and type(budget) is int:
            return _shown(Reasoning(budget_tokens=budget, enabled=True, native=mark_of_origin()), rest)
        case {"type": "adaptive", **rest}:
            return _shown(Reasoning(enabled=True, native=mark_of_origin()), rest)
        case {"type": "disabled", **rest} if not rest:
            return Reasoning(enabled=False, native=mark_of_origin())
    return None


def _shown(reasoning: Reasoning, rest: dict[Any, Any]) -> Reasoning | None:
    display = rest.get("display")
    if rest.keys() - {"display"} or (display is not None and (type(display) is not str or display not in _DISPLAYS)):
        return None
    return Reasoning(reasoning.effort, reasoning.budget_tokens, True, display, reasoning.native)


def write_reasoning(
    reasoning: Reasoning, target: Target, losses: list[Loss]
) -> tuple[dict[str, Any] | None, str | None]:
    """The values of `thinking` and of `output_config.effort`."""
    lose_native(losses, "reasoning", reasoning.native, "anthropic")
    effort = _effort(reasoning, losses)
    if effort == "none" or reasoning.enabled is False or reasoning.budget_tokens == 0:
        said = effort if effort != "none" and is_own(reasoning.native) else None
        _show(reasoning, None, losses)
        return _off(target, losses), _known_effort(said, target, losses)
    thinking: dict[str, Any] | None = None
    if is_own(reasoning.native):
        if reasoning.enabled:
            thinking, effort = _on(reasoning, effort, target, losses)
    elif target.takes_effort and reasoning.budget_tokens is None and (effort or reasoning.enabled):
        thinking = {"type": "adaptive"}
    elif effort or reasoning.enabled or reasoning.budget_tokens is not None:
        budget = _budget(reasoning.budget_tokens, effort, losses)
        thinking, effort = _within(budget, effort, target)
    _show(reasoning, thinking, losses)
    return thinking, _known_effort(effort, target, losses)


def _effort(reasoning: Reasoning, losses: list[Loss]) -> str | None:
    effort = reasoning.effort
    if effort is None or effort in BUDGETS:
        return "low" if effort == "minimal" and reasoning.budget_tokens is None else effort
    losses.append(Loss("reasoning.effort", "effort", f"{effort!r} is not an effort this API knows (AN-32)"))
    return None


def _off(target: Target, losses: list[Loss]) -> dict[str, Any] | None:
    if target.takes_disabled:
        return {"type": "disabled"}
    losses.append(Loss("reasoning", "no thinking", "this model cannot stop thinking (AN-19)"))
    return None


def _on(
    reasoning: Reasoning, effort: str | None, target: Target, losses: list[Loss]
) -> tuple[dict[str, Any], str | None]:
    """Thinking as it was asked for in this format, or the nearest thing the model takes."""
    if reasoning.budget_tokens is None:
        if target.takes_adaptive:
            return {"type": "adaptive"}, effort
        losses.append(Loss("reasoning", "adaptive thinking", "this model thinks within a budget only (AN-19)"))
        return {"type": "enabled", "budget_tokens": _budget(None, effort, losses)}, effort
    budget = _budget(reasoning.budget_tokens, effort, losses)
    thinking, nearest = _within(budget, effort, target)
    return thinking, effort or nearest


def _budget(budget: int | None, effort: str | None, losses: list[Loss]) -> int:
    if budget is None or budget == -1:  # Gemini's word for: as you like
        return max(BUDGETS[effort or "medium"], LEAST_BUDGET)
    if budget < LEAST_BUDGET:
        losses.append(Loss("reasoning.budget_tokens", str(budget), f"the least is {LEAST_BUDGET} (AN-19)"))
        return LEAST_BUDGET
    return budget


def _within(budget: int, effort: str | None, target: Target) -> tuple[dict[str, Any], str | None]:
    """Thinking within a budget, or as much of it by the word where the model takes no budget."""
    if target.takes_budget:
        return {"type": "enabled", "budget_tokens": budget}, None
    nearest = [word for word in EFFORTS if BUDGETS[word] <= budget][-1]
    return {"type": "adaptive"}, effort or nearest


def _show(reasoning: Reasoning, thinking: dict[str, Any] | None, losses: list[Loss]) -> None:
    if reasoning.shown is None:
        return
    display = _SHOWN.get(reasoning.shown)
    if thinking is not None and display is not None:
        thinking["display"] = display
    else:
        why = f"{reasoning.shown!r} is no way of showing thinking here, or there is none to show"
        losses.append(Loss("reasoning.shown", "shown", why))


def _known_effort(effort: str | None, target: Target, losses: list[Loss]) -> str | None:
    if effort == "xhigh" and not target.takes_xhigh:
        losses.append(Loss("reasoning.effort", "xhigh", "this model goes up to high (AN-32)"))
        return "high"
    return "low" if effort == "minimal" else effort


def may_think(thinking: dict[str, Any], body: dict[str, Any], is_limit_ours: bool, losses: list[Loss]) -> bool:
    """Whether thinking within a budget goes with the rest of the body (AN-19, AN-30); the budget may shrink."""
    if thinking["type"] != "enabled":
        return True
    why = ""
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        why = "thinking may not be enabled when a call is demanded (AN-19)"
    elif _is_in_unthinking_loop(body["messages"]):
        why = "the calls under way have lost their thinking, so it cannot be enabled (AN-30)"
    elif thinking["budget_tokens"] >= body["max_tokens"] and is_limit_ours:
        body["max_tokens"] = thinking["budget_tokens"] + DEFAULT_MAX_TOKENS
    elif thinking["budget_tokens"] >= body["max_tokens"] and "tools" not in body:
        # With tools, interleaved thinking may spend more than one answer's tokens.
        if body["max_tokens"] <= LEAST_BUDGET:
            why = f"max_tokens leaves less than the least budget of {LEAST_BUDGET} (AN-19)"
        else:
            lower = f"the budget must be less than max_tokens, and was lowered to {body['max_tokens'] - 1} (AN-19)"
            losses.append(Loss("reasoning.budget_tokens", str(thinking["budget_tokens"]), lower))
            thinking["budget_tokens"] = body["max_tokens"] - 1
    if why:
        losses.append(Loss("reasoning", "thinking", why))
    return not why


def _is_in_unthinking_loop(messages: list[Any]) -> bool:
    """Whether a tool loop is under way that shows no thinking at all (AN-30). Neighbours of one role are one turn."""
    has_calls = has_results = is_users_turn = False
    for message in reversed(messages):
        content = message.get("content") if isinstance(message, dict) else None
        kinds = [kind_of(block) for block in content] if isinstance(content, list) else []
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
