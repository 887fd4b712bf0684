"""What a refusal shows about a model: the facts to write its next request with.

The table cannot know every model: deployments have names of their own, and models change. The error texts of providers have
stayed the same for years. The gateway sends a refused request once more with these facts and forgets them afterwards.
"""

from __future__ import annotations

import re

from antiphon.wire.capabilities import CapabilityOverride

_SHOWN: tuple[tuple[re.Pattern[str], CapabilityOverride], ...] = tuple(
    (re.compile(pattern), facts)
    for pattern, facts in (
        # Anthropic: AN-03, AN-07, AN-31, AN-19
        (r"role 'system' is not supported on this model", CapabilityOverride(model="*", system_messages="leading")),
        (r"does not support assistant message prefill", CapabilityOverride(model="*", prefill=False)),
        (r"`?temperature`? and `?top_p`? cannot both", CapabilityOverride(model="*", temperature_with_top_p=False)),
        (r"Thinking may not be enabled when tool_choice forces", CapabilityOverride(model="*", thinking=("off",))),
        (r"temperature is deprecated for this model", CapabilityOverride(model="*", sampling=())),
        # AN-18: hosts that have no prompt cache, or not for this model
        (
            r"cache_control: Extra inputs are not permitted|did not allow prompt caching",
            CapabilityOverride(model="*", cache_breakpoints=0),
        ),
        # OpenAI: OC-02, OC-26, OC-27
        (r"role' does not support '(system|developer)'", CapabilityOverride(model="*", system_messages="none")),
        (r"'stop' is not supported with this model", CapabilityOverride(model="*", stop=False)),
        (r"'max_tokens' is not supported with this model", CapabilityOverride(model="*", max_tokens=False)),
        (r"'(temperature|top_p)' (is not supported|does not support)", CapabilityOverride(model="*", sampling=())),
        # Google
        (r"Multiple candidates is not enabled", CapabilityOverride(model="*", candidates=1)),
    )
)


def facts_in_refusal(message: str) -> CapabilityOverride | None:
    """The facts that a provider's refusal shows; None if it is about something else."""
    return next((facts for pattern, facts in _SHOWN if pattern.search(message)), None)
