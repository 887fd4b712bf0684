"""Rules of the Messages API about thinking: what it excludes, what a model accepts of it, and how a writer keeps that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.limits import DEFAULT_MAX_TOKENS, EFFORTS, FORCED_CHOICES, MIN_BUDGET, THINKING_BLOCKS
from antiphon.wire.anthropic.shapes import block_type
from antiphon.wire.loss import Loss
from antiphon.wire.provenance import is_from
from antiphon.wire.rules import Checked, list_of
from antiphon.wire.rules.book import CrossRule, Finding, Writing


def _is_of_user(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"


def thinking_type(body: dict[str, Any]) -> Any:
    thinking = body.get("thinking")
    return thinking.get("type") if isinstance(thinking, dict) else None


def _is_prefilled_without_thinking(messages: list[Any]) -> bool:
    """Whether the last message is the model's and does not begin with thinking."""
    last = messages[-1] if messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return False
    content = last.get("content")
    first = block_type(content[0]) if isinstance(content, list) and content else ""
    return first not in THINKING_BLOCKS


def _last_call_without_thinking(messages: list[Any]) -> tuple[int, str] | None:
    """The last call of the current tool loop if that has no thinking blocks (AN-30): the index of its message, and the type of
    the message's first block. Adjacent messages of one role are one turn."""
    last_call: tuple[int, str] | None = None
    has_results = is_users_turn = False
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        content = message.get("content") if isinstance(message, dict) else None
        kinds = [block_type(block) for block in content] if isinstance(content, list) else []
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            is_users_turn = True
            has_results = has_results or "tool_result" in kinds
        elif role == "assistant":
            if is_users_turn and not has_results:
                break
            if any(kind in THINKING_BLOCKS for kind in kinds):
                return None
            is_users_turn = has_results = False
            if last_call is None and "tool_use" in kinds:
                last_call = index, kinds[0]
    return last_call


def _forces_tool(body: dict[str, Any]) -> bool:
    """Whether the `tool_choice` of a body forces a call."""
    choice = body.get("tool_choice")
    return isinstance(choice, dict) and choice.get("type") in FORCED_CHOICES


def _find_loop_without_thinking(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    messages = list_of(body.get("messages"))
    if thinking_type(body) == "enabled" and messages and _is_of_user(messages[-1]):
        last_call = _last_call_without_thinking(messages)
        if last_call is not None:
            place = ("messages", last_call[0], "content", 0, "type")
            yield place, "with thinking, calls of the current tool loop need their thinking block"


def _find_thinking(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    kind, model = thinking_type(body), found.model
    if kind == "disabled" and not model.accepts_thinking("off"):
        yield ("thinking", "type"), "the model cannot do without thinking"
    elif kind == "adaptive" and not model.accepts_thinking("adaptive"):
        yield ("thinking", "type"), "the model does not support adaptive thinking"
    elif kind == "enabled" and not model.accepts_thinking("budget"):
        yield ("thinking", "type"), "the model does not support a thinking budget"


def _find_conflicts(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    """What thinking cannot be combined with."""
    kind, model = thinking_type(body), found.model
    if kind == "adaptive" and _is_adaptive_refused(body, found) and found.target.is_on_bedrock:
        yield "tool_choice", "a call cannot be forced while thinking"
    if kind != "enabled":
        return
    yield from _find_budget(body, body["thinking"].get("budget_tokens"))
    if _forces_tool(body):
        yield "tool_choice", "a call cannot be forced while thinking"
    messages = list_of(body.get("messages"))
    if not model.prefill_with_thinking and _is_prefilled_without_thinking(messages):
        place = ("messages", len(messages) - 1, "content", 0, "type")
        yield place, "with thinking, the last message of the assistant must begin with a thinking block"


def _drop_thinking(body: dict[str, Any], writing: Writing, reason: str, rule: str = "AN-19") -> None:
    del body["thinking"]
    writing.losses.append(Loss("reasoning", "thinking", f"{reason}; dropped ({rule})"))


def _keep_loop(body: dict[str, Any], writing: Writing) -> None:
    if thinking_type(body) == "enabled" and _last_call_without_thinking(body["messages"]) is not None:
        _drop_thinking(body, writing, "the current tool loop has no thinking blocks", "AN-30")


def _resolve_conflicts(body: dict[str, Any], writing: Any) -> None:
    """Drop thinking that the body rules out, or lower its budget."""
    kind, target = thinking_type(body), writing.target
    is_forced = _forces_tool(body)
    if kind == "adaptive":
        # Anthropic accepts this for older models too, and does not think then; Bedrock refuses it.
        is_stated = is_from(writing.request.reasoning, FORMAT)
        if is_forced and not target.model.thinking_with_forced_tool and (target.is_on_bedrock or not is_stated):
            _drop_thinking(body, writing, "thinking cannot be combined with a forced tool call on this model")
    elif kind != "enabled":
        return
    elif is_forced:
        _drop_thinking(body, writing, "thinking cannot be combined with a forced tool call")
    elif not target.model.prefill_with_thinking and _is_prefilled_without_thinking(body["messages"]):
        _drop_thinking(body, writing, "thinking cannot be combined with a prefilled answer")
    else:
        _fit_budget(body, writing)


def _fit_budget(body: dict[str, Any], writing: Writing) -> None:
    """Make room for the budget in `max_tokens`, or lower it, or drop thinking."""
    budget, longest = body["thinking"]["budget_tokens"], writing.model.max_output_tokens
    if budget >= body["max_tokens"] and writing.request.max_output_tokens is None:
        wanted = budget + DEFAULT_MAX_TOKENS
        body["max_tokens"] = wanted if longest is None else min(wanted, longest)
    if budget < body["max_tokens"] or ("tools" in body and budget <= (longest or budget)):
        return  # with tools, interleaved thinking may use more tokens than one answer
    if body["max_tokens"] <= MIN_BUDGET:
        _drop_thinking(body, writing, f"max_tokens leaves less than the minimum budget {MIN_BUDGET}")
        return
    lowered = f"must be less than max_tokens; sent {body['max_tokens'] - 1} (AN-19)"
    writing.losses.append(Loss("reasoning.budget_tokens", str(budget), lowered))
    body["thinking"] = {**body["thinking"], "budget_tokens": body["max_tokens"] - 1}


def _find_budget(body: dict[str, Any], budget: Any) -> Iterator[Finding]:
    limit, is_legal = body.get("max_tokens"), rows.is_whole_number(budget) and budget >= MIN_BUDGET
    if is_legal and not body.get("tools") and rows.is_number(limit) and budget >= limit:
        # With tools, interleaved thinking may use more tokens than one answer.
        yield ("thinking", "budget_tokens"), "must be less than max_tokens"


def _is_adaptive_refused(body: dict[str, Any], found: Checked) -> bool:
    return _forces_tool(body) and not found.model.thinking_with_forced_tool and found.model.accepts_thinking("adaptive")


def _find_forced_adaptive(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    if thinking_type(body) == "adaptive" and _is_adaptive_refused(body, found) and not found.target.is_on_bedrock:
        yield "tool_choice", "a call cannot be forced while thinking"


def _find_effort(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    config, model = body.get("output_config"), found.model
    effort = config.get("effort") if isinstance(config, dict) else None
    if not isinstance(effort, str) or effort not in EFFORTS:
        return
    efforts = model.efforts
    if thinking_type(body) == "disabled" and model.efforts_without_thinking:
        efforts = model.efforts_without_thinking
    if efforts is not None and effort not in efforts:
        accepted = f"accepts only {', '.join(efforts)}" if efforts else "does not support an effort"
        yield ("output_config", "effort"), f"the model {accepted}"


THINKING_RULES = (
    CrossRule("AN-30", _find_loop_without_thinking, stage="reasoning", fix=_keep_loop),
    CrossRule("AN-19", _find_conflicts, stage="reasoning", fix=_resolve_conflicts),
    CrossRule("AN-19", _find_thinking),
    CrossRule("AN-32", _find_effort),
)
FORCED_ADAPTIVE = CrossRule("AN-19", _find_forced_adaptive)
