"""Our table against what LiteLLM and pydantic-ai state: every disagreement is listed and decided in oracles/decisions.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.wire.capabilities import Capabilities, capabilities_for, find_family
from support.model_judge import decisions, litellm, pydantic_ai

Claims = Iterator[tuple[str, Any, Any]]
"""The name of a claim, what the oracle says, and what our table says."""


def _litellm_claims(model: str, flags: dict[str, Any], ours: Capabilities, home: str) -> Claims:
    simple = {
        "prefill": ("supports_assistant_prefill", ours.prefill),
        "sampling": ("supports_sampling_params", ours.sampling != ()),
        "forced_tool_choice": ("supports_forced_tool_use", ours.forced_tool_choice),
        "adaptive": ("supports_adaptive_thinking", ours.accepts_thinking("adaptive")),
        "system_messages": ("supports_mid_conversation_system", ours.system_messages in ("anywhere", "ignored")),
        "structured_output": ("supports_native_structured_output", ours.structured_output is not False),
        "reasons": ("supports_reasoning", not ours.never_thinks),
        "default_effort": ("default_reasoning_effort", ours.default_effort),
        "efforts": ("reasoning_effort_levels", list(ours.efforts or ())),
    }
    for claim, (flag, value) in simple.items():
        if flag in flags:
            yield claim, flags[flag], value
    if "thinking_always_on" in flags:
        yield "off", not flags["thinking_always_on"], ours.accepts_thinking("off")
    for effort in ("none", "minimal", "low", "xhigh", "max"):
        flag = f"supports_{effort}_reasoning_effort"
        if flag in flags and ours.efforts is not None:
            yield f"effort {effort}", flags[flag], effort in ours.efforts
    if "supports_parallel_function_calling" in flags and home == "openai-chat":
        yield "parallel_tool_switch", flags["supports_parallel_function_calling"], ours.parallel_tool_switch


def _pydantic_claims(model: str, profile: dict[str, Any], ours: Capabilities, home: str) -> Claims:
    efforts = ours.efforts or ()
    if "supports_thinking" in profile:
        yield "reasons", profile["supports_thinking"], not ours.never_thinks
    if profile.get("supports_thinking") and "thinking_always_enabled" in profile:
        can_stop = ours.accepts_thinking("off") or "none" in efforts
        yield "off", not profile["thinking_always_enabled"], can_stop
    if "supports_forced_tool_choice" in profile:
        yield "forced_tool_choice", profile["supports_forced_tool_choice"], ours.forced_tool_choice
    if home == "anthropic":
        yield "structured_output", profile["supports_json_schema_output"], ours.structured_output is not False
        yield "adaptive", profile["anthropic_supports_adaptive_thinking"], ours.accepts_thinking("adaptive")
        yield "effort", profile["anthropic_supports_effort"], bool(efforts)
        if profile["anthropic_supports_effort"]:
            yield "effort xhigh", profile["anthropic_supports_xhigh_effort"], "xhigh" in efforts
            yield "effort max", profile["anthropic_supports_max_effort"], "max" in efforts
        if not ours.never_thinks:
            yield "budget", not profile["anthropic_disallows_budget_thinking"], ours.accepts_thinking("budget")
        yield "sampling", not profile["anthropic_disallows_sampling_settings"], ours.sampling != ()
        top = profile["anthropic_disallows_top_effort_when_thinking_disabled"]
        yield "top effort without thinking", not top, ours.efforts_without_thinking is None
    elif home == "gemini":
        yield "level", profile["google_supports_thinking_level"], ours.accepts_thinking("level")
        if "google_thinking_levels" in profile:
            levels = sorted(level.lower() for level in profile["google_thinking_levels"])
            yield "levels", levels, sorted(efforts)
    else:
        if "openai_reasoning_efforts" in profile:
            yield "efforts", sorted(profile["openai_reasoning_efforts"]), sorted(efforts)
        yield "effort none", profile["openai_supports_reasoning_effort_none"], "none" in efforts
        if profile.get("supports_thinking"):
            yield "effort minimal", profile["openai_supports_minimal_reasoning_effort"], "minimal" in efforts
        yield "system role", profile.get("openai_system_prompt_role") != "user", ours.system_messages != "none"


ORACLES: dict[str, tuple[Any, Any]] = {
    "litellm": (litellm, _litellm_claims),
    "pydantic-ai": (pydantic_ai, _pydantic_claims),
}


@pytest.mark.parametrize("oracle", ORACLES)
def test_every_disagreement_is_decided(oracle: str, capsys: pytest.CaptureFixture[str]) -> None:
    models, claims = ORACLES[oracle]
    count, disagreements = 0, {}
    for model, stated in models().items():
        family = find_family(model)
        assert family is not None, model
        ours = capabilities_for(model, family.home[0])
        for claim, theirs, mine in claims(model, stated, ours, family.home[0]):
            count += 1
            if theirs != mine:
                disagreements[(oracle, family.name, claim)] = f"{model}: {claim}: {oracle} {theirs}, here {mine}"
    decided = {key for key in decisions() if key[0] == oracle}
    undecided = [text for key, text in disagreements.items() if key not in decided]
    with capsys.disabled():
        print(
            f"\n  {oracle}: {len(models())} models, {count} claims, {len(disagreements)} disagreements decided", end=""
        )
    assert count > 400
    assert undecided == []
    assert decided - disagreements.keys() == set(), "no longer disagreements: remove them"


def test_every_decision_has_a_reason() -> None:
    assert all(len(reason) > 8 for reason in decisions().values())
