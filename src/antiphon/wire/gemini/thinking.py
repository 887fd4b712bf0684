"""How much the model may think: `thinkingConfig` and `Reasoning`.

Gemini takes a budget in tokens (0: none, -1: as it likes) or, from Gemini 3 on, a level; never both (GM-14). A level is an
effort by another name; the table of efforts and budgets turns one into the other for models that know only one.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.gemini.model_name import ModelTraits
from antiphon.wire.gemini.spelling import FORMAT, fields_of, forms, mark, marked, native_of
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.request import BUDGETS, Reasoning

LEVELS = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
LEAST_BUDGET = 128
"""What a model that always thinks takes in place of none."""

_DYNAMIC = -1
_WORDS = frozenset({"minimal", "low", "medium", "high"})
_CONFIG = forms(("thinkingBudget", "thinkingLevel", "includeThoughts"))
_SMALL = mark("level:small")


def read_thinking(config: dict[str, Any]) -> Reasoning:
    """What a `thinkingConfig` asks for."""
    fields, extras = fields_of(config, _CONFIG)
    budget, level, shown = (fields.pop(name, None) for name in ("thinkingBudget", "thinkingLevel", "includeThoughts"))
    effort: str | None = None
    marks = None
    # Level and budget together are refused (GM-14): the level then stays as it came.
    if type(level) is str and level.lower() in _WORDS and level in (level.lower(), level.upper()) and budget is None:
        effort = level.lower()
        marks = _SMALL if level == effort else None
    elif level is not None:
        extras["thinkingLevel"] = level
    is_dynamic = type(budget) is int and budget == _DYNAMIC
    if budget is not None and (type(budget) is not int or budget < _DYNAMIC):
        extras["thinkingBudget"], budget = budget, None
    if shown is not None and type(shown) is not bool:
        extras["includeThoughts"], shown = shown, None
    return Reasoning(
        effort,
        None if is_dynamic else budget,
        True if is_dynamic else None,
        {True: "auto", False: "omitted", None: None}[shown],
        native_of(extras, marks),
    )


def write_thinking(reasoning: Reasoning, traits: ModelTraits, losses: list[Loss]) -> dict[str, Any]:
    """The `thinkingConfig`, as the model takes it."""
    own = own_extras(reasoning.native, losses, "reasoning", FORMAT)
    config = _amount(reasoning, traits, losses)
    if reasoning.shown is not None:
        config["includeThoughts"] = reasoning.shown not in ("omitted", "none")
    return {**config, **own}


def _amount(reasoning: Reasoning, traits: ModelTraits, losses: list[Loss]) -> dict[str, Any]:
    effort, budget = reasoning.effort, reasoning.budget_tokens
    if effort is not None and effort not in BUDGETS:
        losses.append(Loss("reasoning.effort", "effort", f"{FORMAT} knows no effort named {effort[:40]}"))
        effort = None
    if effort is not None and budget is not None:
        unsaid = "budget_tokens" if traits.has_thinking_levels else "effort"
        losses.append(Loss(f"reasoning.{unsaid}", unsaid, "a budget and an effort cannot both be given"))
    if effort is not None and (traits.has_thinking_levels or budget is None):
        cannot_stop = effort == "none" and (traits.always_thinks or not traits.is_known)
        if not traits.has_thinking_levels or cannot_stop:
            return _from_budget(BUDGETS[effort], traits, losses)
        level = LEVELS[effort]
        return {"thinkingLevel": level.lower() if marked(reasoning.native, "level:small") else level}
    if budget is not None:
        return _from_budget(budget, traits, losses)
    if reasoning.enabled is None:
        return {}
    return {"thinkingBudget": _DYNAMIC} if reasoning.enabled else _from_budget(0, traits, losses)


def _from_budget(budget: int, traits: ModelTraits, losses: list[Loss]) -> dict[str, Any]:
    if budget == 0 and traits.always_thinks:
        losses.append(Loss("reasoning", "no thinking", "this model always thinks; it is asked to think little"))
        return {"thinkingLevel": "LOW"} if traits.version >= (3, 0) else {"thinkingBudget": LEAST_BUDGET}
    return {"thinkingBudget": budget}
