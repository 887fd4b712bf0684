"""What other projects state about models (extracts in `wire/oracles`), as claims to compare and as a judge of bodies.

The judge knows nothing of our table: it reads LiteLLM's flags, pydantic-ai's profiles, and refusals that were recorded or
publicly reported. Claims that were decided against (decisions.json) do not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from support.repository import PACKAGES

ORACLES = PACKAGES / "antiphon" / "tests" / "wire" / "oracles"
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs")
_DEFAULTS: dict[str, Any] = {"temperature": 1, "presence_penalty": 0, "frequency_penalty": 0, "logprobs": False}


@cache
def litellm() -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = json.loads((ORACLES / "litellm.json").read_text(encoding="utf-8"))["models"]
    return models


@cache
def pydantic_ai() -> dict[str, dict[str, Any]]:
    text = (ORACLES / "pydantic_ai.json").read_text(encoding="utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)["models"]
    return models


@cache
def decisions() -> dict[tuple[str, str, str], str]:
    """Decisions by oracle, family and claim."""
    rows = json.loads((ORACLES / "decisions.json").read_text(encoding="utf-8"))
    return {(row["oracle"], row["family"], row["claim"]): row["decision"] for row in rows}


def refusals(model: str, family: str, format_name: str, body: dict[str, Any]) -> list[str]:
    """Why the model would refuse a body, according to the others. About future models they have nothing but defaults."""
    if family.endswith("-newer"):
        return []
    judged = [
        (oracle, claim)
        for oracle, claims in (
            ("litellm", _by_litellm(litellm().get(model, {}), body)),
            ("pydantic-ai", _by_pydantic_ai(pydantic_ai().get(model, {}), format_name, body)),
            ("reports", _by_reports(model, format_name, body)),
        )
        for claim in claims
    ]
    return [f"{oracle}: {claim}" for oracle, claim in judged if (oracle, family, claim) not in decisions()]


def effort_of(body: dict[str, Any]) -> str | None:
    """The effort in a body of any format."""
    nested = (body.get("reasoning") or {}).get("effort") or (body.get("output_config") or {}).get("effort")
    level = _thinking_config(body).get("thinkingLevel")
    return body.get("reasoning_effort") or nested or (level.lower() if level else None)


def _thinking_config(body: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = (body.get("generationConfig") or {}).get("thinkingConfig") or {}
    return {name: value for name, value in config.items() if value != "THINKING_LEVEL_UNSPECIFIED"}


def _thinking(body: dict[str, Any]) -> str | None:
    kind: str | None = (body.get("thinking") or {}).get("type")
    return kind


def _samples(body: dict[str, Any]) -> bool:
    config = body.get("generationConfig") or body
    for name in (*_SAMPLING, "top_k", "topP", "topK"):
        value = config.get(name)
        if value is not None and value != _DEFAULTS.get(name) and not (name in ("top_p", "topP") and value >= 0.99):
            return True
    return False


def _is_forced(body: dict[str, Any]) -> bool:
    choice = body.get("tool_choice")
    return choice == "required" or (isinstance(choice, dict) and choice.get("type") in ("any", "tool", "function"))


def _ends_with_model(body: dict[str, Any]) -> bool:
    messages = body.get("messages") or body.get("contents") or []
    return bool(messages) and messages[-1].get("role") in ("assistant", "model")


def _by_litellm(flags: dict[str, Any], body: dict[str, Any]) -> Iterator[str]:
    if flags.get("supports_assistant_prefill") is False and _ends_with_model(body):
        yield "prefill"
    if flags.get("supports_sampling_params") is False and _samples(body):
        yield "sampling"
    if flags.get("supports_forced_tool_use") is False and _is_forced(body):
        yield "forced_tool_choice"
    if flags.get("thinking_always_on") and _thinking(body) == "disabled":
        yield "off"
    effort = effort_of(body)
    if effort is not None and flags.get(f"supports_{effort}_reasoning_effort") is False:
        yield f"effort {effort}"
    levels = flags.get("reasoning_effort_levels")
    if effort is not None and levels is not None and effort not in levels:
        yield "efforts"
    if flags.get("supports_parallel_function_calling") is False and "parallel_tool_calls" in body:
        yield "parallel_tool_switch"
    yield from (f"media {kind}" for kind in _media_sent(body) if flags and kind not in _media_kinds(flags))


_MEDIA_BLOCKS = (
    (r'"(image_url|input_image)"|"type": "image"|"image/', "image"),
    (r'"type": "(document|file|input_file)"|application/pdf', "pdf"),
    (r'"input_audio"|"audio/', "audio"),
    (r'"video_url"|"video/', "video"),
)


def _media_sent(body: dict[str, Any]) -> list[str]:
    """The kinds of media in the messages of a body of any format."""
    text = json.dumps(body.get("messages") or body.get("contents") or body.get("input"))
    return [kind for pattern, kind in _MEDIA_BLOCKS if re.search(pattern, text)]


def _media_kinds(flags: dict[str, Any]) -> set[str]:
    named = {"supports_vision": "image", "supports_pdf_input": "pdf"}
    named |= {"supports_audio_input": "audio", "supports_video_input": "video"}
    return {*flags.get("supported_modalities", ()), *(kind for flag, kind in named.items() if flags.get(flag))}


def _by_pydantic_ai(profile: dict[str, Any], format_name: str, body: dict[str, Any]) -> Iterator[str]:
    effort, thinking = effort_of(body), _thinking(body)
    if format_name == "anthropic":
        if thinking == "adaptive" and profile.get("anthropic_supports_adaptive_thinking") is False:
            yield "adaptive"
        if thinking == "enabled" and profile.get("anthropic_disallows_budget_thinking"):
            yield "budget"
        if thinking == "disabled" and profile.get("thinking_always_enabled"):
            yield "off"
        if effort is not None and profile.get("anthropic_supports_effort") is False:
            yield "effort"
        if effort == "xhigh" and profile.get("anthropic_supports_xhigh_effort") is False:
            yield "effort xhigh"
        if effort == "max" and profile.get("anthropic_supports_max_effort") is False:
            yield "effort max"
        if _samples(body) and profile.get("anthropic_disallows_sampling_settings"):
            yield "sampling"
        top = thinking == "disabled" and effort in ("xhigh", "max")
        if top and profile.get("anthropic_disallows_top_effort_when_thinking_disabled"):
            yield "top effort without thinking"
    elif format_name == "gemini":
        config = _thinking_config(body)
        if config and profile.get("supports_thinking") is False:
            yield "reasons"
        if "thinkingLevel" in config and profile.get("google_supports_thinking_level") is False:
            yield "level"
        levels = [level.lower() for level in profile.get("google_thinking_levels", ())]
        if effort is not None and levels and effort not in levels:
            yield "levels"
        if config.get("thinkingBudget") == 0 and profile.get("thinking_always_enabled"):
            yield "off"
    elif profile:
        if effort is not None and profile.get("supports_thinking") is False:
            yield "reasons"
        efforts = profile.get("openai_reasoning_efforts")
        if effort is not None and efforts is not None and effort not in efforts:
            yield "efforts"
        if effort == "none" and profile.get("openai_supports_reasoning_effort_none") is False:
            yield "effort none"
        if _samples(body) and profile.get("thinking_always_enabled"):
            yield "sampling"
    if profile.get("supports_forced_tool_choice") is False and _is_forced(body):
        yield "forced_tool_choice"


_BUDGETS = {"gemini-2.5-flash-lite": (512, 24_576), "gemini-2.5-flash": (1, 24_576), "gemini-2.5-pro": (128, 32_768)}
_NEW_CLAUDE = re.compile(r"claude-(opus-4-1|[a-z]+-4-[56])(?!\d)")
_OLD_CLAUDE = re.compile(r"claude-(2|3-opus|3-haiku|3-sonnet|3-5)")
_REASONING = re.compile(r"(o\d|gpt-5|gpt-6)")


def _by_reports(model: str, format_name: str, body: dict[str, Any]) -> Iterator[str]:
    """Recorded refusals, and those in public reports that name the model."""
    if format_name == "anthropic":
        if _NEW_CLAUDE.match(model) and {"temperature", "top_p"} <= body.keys():
            yield "temperature and top_p together"
        if _OLD_CLAUDE.match(model) and _thinking(body) in ("enabled", "adaptive"):
            yield "thinking"
        if _thinking(body) == "enabled" and _is_forced(body):
            yield "thinking with a forced tool"
        if _thinking(body) == "enabled" and _ends_with_model(body):
            content = body["messages"][-1]["content"]
            if isinstance(content, str) or content[0].get("type") != "thinking":
                yield "thinking with prefill"
    elif format_name == "gemini":
        budget = _thinking_config(body).get("thinkingBudget")
        lowest, highest = next((known for name, known in _BUDGETS.items() if model.startswith(name)), (0, 10**9))
        if budget and budget > 0 and not lowest <= budget <= highest:
            yield "thinking budget"
        config = body.get("generationConfig") or {}
        if not 1 <= config.get("candidateCount", 1) <= 8 or config.get("maxOutputTokens", 1) < 1:
            yield "ranges"
    elif format_name == "openai-chat":
        if _REASONING.match(model) and "max_tokens" in body:
            yield "max_tokens"
        if re.match(r"(o3(?!-mini)|o4|gpt-5(-mini|-nano)?$)", model) and body.get("stop"):
            yield "stop"
        if re.match(r"o1-(mini|preview)", model) and any(
            message["role"] in ("system", "developer") for message in body["messages"]
        ):
            yield "system role"
        if re.match(r"gpt-(3|4)", model) and "reasoning_effort" in body:
            yield "reasoning_effort"
