"""How much a model thinks: the settings of a request, resolved once for every format.

A request says it in the words of its origin: an effort, a budget of tokens, or a plain yes or no. `plan_reasoning` decides what
of that a model accepts in a format, converts what it does not (one table has the budget of each effort), and reports what
changed. A format declares which forms it has (`ReasoningForms`) and spells the plan; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, structs

from antiphon.wire.capabilities import EFFORT_BUDGETS, Capabilities, ThinkingMode, effort_for_budget
from antiphon.wire.loss import Loss
from antiphon.wire.request import Reasoning

DYNAMIC = -1
"""The budget that the model chooses itself."""
HIDDEN = ("omitted", "none")
"""The words for reasoning that does not come back."""
_SMALLEST_BUDGET = 128
"""Sent to a model that always thinks and whose range is unknown."""


class ReasoningForms(Struct, frozen=True, kw_only=True):
    """The forms in which a format sets reasoning."""

    rule: str
    effort_rule: str = ""
    """The rule about efforts, if it is another."""
    modes: tuple[ThinkingMode, ...]
    """Of `effort` and `level`, which are words, `budget`, `adaptive` and `off`."""
    words: Mapping[str, str] = MappingProxyType({})
    """The word for an effort that the format has no word for."""
    shown: Mapping[Any, Any] = MappingProxyType({})
    """What sets how much reasoning comes back; for None: any other word. Without an entry it cannot be set."""
    default_effort: str | None = None
    """The effort of plain thinking, where only a word can be set."""
    combines: bool = False
    """Whether thinking and an effort are two settings: without it a request has a word or a budget."""
    min_budget: int = 0


class ReasoningPlan(Struct, frozen=True):
    """What a model accepts of the reasoning that a request asks for. `enabled` with neither effort nor budget: as the model
    decides. `shown` is the value of the format."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None
    shown: Any = None


def is_off(wanted: Reasoning) -> bool:
    """Whether a request asks for no thinking."""
    return wanted.enabled is False or wanted.effort == "none" or wanted.budget_tokens == 0


def plan_reasoning(
    wanted: Reasoning, model: Capabilities, forms: ReasoningForms, losses: list[Loss], *, is_own: bool = False
) -> ReasoningPlan:
    """The plan for a model. `is_own`: the settings came in this format, so thinking that they do not mention stays unset."""
    return _Planner(wanted, model, forms, losses, is_own).plan()


class _Planner:
    def __init__(
        self, wanted: Reasoning, model: Capabilities, forms: ReasoningForms, losses: list[Loss], is_own: bool
    ) -> None:
        self._wanted, self._model, self._forms, self._losses, self._is_own = wanted, model, forms, losses, is_own
        has_word = "effort" in forms.modes or ("level" in forms.modes and model.accepts_thinking("level"))
        self._has_word = has_word and model.efforts != ()
        self._has_budget = self._accepts("budget")

    def plan(self) -> ReasoningPlan:
        wanted = self._wanted
        effort, budget = self._known_effort(), wanted.budget_tokens
        is_on = bool(wanted.enabled) or budget == DYNAMIC
        budget = None if budget == DYNAMIC else budget
        if self._forms.combines:
            plan = self._plan_both(effort, budget, is_on)
        else:
            if effort is not None and budget is not None:
                is_effort = self._has_word or effort == "none"
                dropped = "budget_tokens" if is_effort else "effort"
                self._lose(dropped, dropped, "a request has either an effort or a budget; dropped")
                effort, budget = (effort, None) if is_effort else (None, budget)
            if effort == "none" or (effort is None and (wanted.enabled is False or budget == 0)):
                plan = self._plan_off("effort" if effort is not None else "budget_tokens" if budget == 0 else "enabled")
            else:
                plan = self._plan_one(effort, budget, is_on)
        return self._with_shown(plan)

    def _accepts(self, mode: ThinkingMode) -> bool:
        return mode in self._forms.modes and self._model.accepts_thinking(mode)

    def _lose(self, field: str, what: str, why: str) -> None:
        path = f"reasoning.{field}" if field else "reasoning"
        rule = self._forms.effort_rule if field == "effort" and self._forms.effort_rule else self._forms.rule
        self._losses.append(Loss(path, what, f"{why} ({rule})"))

    def _known_effort(self) -> str | None:
        """The effort, if it is a word that models have; an unknown host may have others."""
        effort = self._wanted.effort
        if effort is None or effort in EFFORT_BUDGETS or ("effort" in self._forms.modes and self._accepts_any_word()):
            return effort
        self._lose("effort", effort[:40], "unknown effort; dropped")
        return None

    def _accepts_any_word(self) -> bool:
        return self._model.efforts is None and not self._forms.combines

    # One setting: a word or a budget.

    def _plan_off(self, field: str) -> ReasoningPlan:
        # The lowest level is safer than no thinking where a name means changing models (gemini-flash-latest).
        if self._accepts("off") and not (field == "effort" and self._has_word and self._model.is_known):
            return ReasoningPlan(enabled=False)
        if self._has_word:
            return ReasoningPlan(effort=self._word("none", field))
        if self._has_budget and not self._model.never_thinks:
            lowest = self._model.min_budget or _SMALLEST_BUDGET
            self._lose(field, "no thinking", f"thinking cannot be turned off for this model; sent the budget {lowest}")
            return ReasoningPlan(budget=lowest)
        if not self._model.never_thinks and "effort" not in self._forms.modes:
            self._lose(field, "no thinking", "model does not support thinking levels; dropped")
        return ReasoningPlan()

    def _plan_one(self, effort: str | None, budget: int | None, is_on: bool) -> ReasoningPlan:
        field = "effort" if effort is not None else "budget_tokens" if budget is not None else "enabled"
        if effort is None and budget is None:
            if not is_on:
                return ReasoningPlan()
            effort = self._forms.default_effort
        if not self._has_word and not self._has_budget:
            if effort is not None or budget is not None or "budget" in self._forms.modes:
                what = effort or ("thinking" if budget is None else str(budget))
                self._lose(field, what, "model does not support it; dropped")
            return ReasoningPlan()
        if effort is not None and self._has_word:
            return ReasoningPlan(effort=self._word(effort, field))
        if budget is None and effort is None:
            return ReasoningPlan(enabled=True)
        budget = EFFORT_BUDGETS[effort] if budget is None and effort is not None else budget or 0
        if self._has_budget:
            return ReasoningPlan(budget=self._legal_budget(budget))
        effort = effort_for_budget(budget)
        if self._model.efforts is None and effort in ("xhigh", "max"):
            effort = "high"  # every reasoning model knows it
        return ReasoningPlan(effort=self._word(effort, field))

    # Two settings: thinking, on or off or with a budget, and an effort.

    def _plan_both(self, effort: str | None, budget: int | None, is_on: bool) -> ReasoningPlan:
        wanted, is_own = self._wanted, self._is_own
        if is_off(wanted):
            return self._plan_both_off(effort)
        if self._model.never_thinks:
            if is_on or budget is not None or (effort and not is_own):
                self._lose("", "thinking", "model does not support thinking; dropped")
            return ReasoningPlan(effort=self._legal_effort(effort) if is_own else None)
        if not (is_on or budget is not None or (effort and not is_own)):
            return ReasoningPlan(effort=self._legal_effort(effort))
        can_adapt = self._accepts("adaptive") and (is_own or bool(self._model.efforts))
        if budget is None and can_adapt:
            return ReasoningPlan(enabled=True, effort=self._legal_effort(effort))
        if budget is None and is_own:
            self._lose("", "adaptive thinking", "model requires a thinking budget; sent one")
        budget = max(EFFORT_BUDGETS[effort or "medium"], self._forms.min_budget) if budget is None else budget
        budget = self._legal_budget(budget)
        if self._has_budget:
            return ReasoningPlan(enabled=True, effort=self._legal_effort(effort) if is_own else None, budget=budget)
        return ReasoningPlan(enabled=True, effort=self._legal_effort(effort or effort_for_budget(budget)))

    def _plan_both_off(self, effort: str | None) -> ReasoningPlan:
        enabled = False if self._accepts("off") and (self._is_own or not self._model.never_thinks) else None
        if enabled is None and not self._accepts("off"):
            self._lose("", "no thinking", "thinking cannot be turned off for this model; dropped")
        stated = effort if effort != "none" and self._is_own else None
        return ReasoningPlan(enabled=enabled, effort=self._legal_effort(stated, is_off=enabled is False))

    # What a model accepts.

    def _word(self, effort: str, field: str) -> str:
        wanted = self._forms.words.get(effort, effort)
        word = self._model.nearest_effort(wanted)
        if effort == "none" and word != "none":
            self._lose(field, "no thinking", f'thinking cannot be turned off for this model; sent "{word}"')
        elif word != wanted:
            self._lose(field, effort, f'model does not support "{effort[:40]}"; sent "{word}"')
        return word

    def _legal_effort(self, effort: str | None, *, is_off: bool = False) -> str | None:
        model = self._model
        effort = self._forms.words.get(effort, effort) if effort is not None else None
        if effort is None or model.efforts is None:
            return effort
        if not model.efforts:
            self._lose("effort", effort, "model does not support an effort; dropped")
            return None
        if is_off and model.efforts_without_thinking is not None:
            model = structs.replace(model, efforts=model.efforts_without_thinking)
        legal = model.nearest_effort(effort)
        if legal != effort:
            off = " without thinking" if model is not self._model else ""
            self._lose("effort", effort, f'model does not support "{effort}"{off}; sent "{legal}"')
        return legal

    def _legal_budget(self, budget: int) -> int:
        lowest, highest = self._model.min_budget or self._forms.min_budget, self._model.max_budget
        if budget < lowest:
            self._lose("budget_tokens", str(budget), f"below the minimum {lowest}; sent {lowest}")
            return lowest
        if highest is not None and budget > highest:
            self._lose("budget_tokens", str(budget), f"above the maximum {highest}; sent {highest}")
            return highest
        return budget

    def _with_shown(self, plan: ReasoningPlan) -> ReasoningPlan:
        word, values = self._wanted.shown, self._forms.shown
        if word is None:
            return plan
        is_possible = plan.enabled if self._forms.combines else self._can_show()
        if is_possible and (word in values or None in values):
            return structs.replace(plan, shown=values[word] if word in values else values[None])
        if is_possible or word not in HIDDEN:
            self._lose("shown", word[:40], "how it is shown cannot be set, or there is no reasoning; dropped")
        return plan

    def _can_show(self) -> bool:
        return self._model.thinking != () and (self._model.efforts != () or "effort" not in self._forms.modes)
