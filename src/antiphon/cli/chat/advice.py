"""What went wrong with a provider, in one line, and what to do about it: at a prompt, or after a command that ended."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from antiphon.cli.terminal import cut, escape_control_chars
from antiphon.providers.presets import PRESETS
from antiphon.wire.output import ErrorKind, ProviderError

_LONGEST = 300

ADVICE: Mapping[ErrorKind, str] = MappingProxyType(
    {
        "invalid_request": "Say it in another way, or {switch}.",
        "context_length": "{shorten}, or {switch}.",
        "authentication": "Check the key{key}, or {switch}.",
        "billing": "The account has no credit left: top it up, or {switch}.",
        "permission": "The key{key} may not do this: take another one, or {switch}.",
        "not_found": "Check the name, or {switch}.",
        "timeout": "{retry}.",
        "conflict": "{retry}.",
        "too_large": "Leave out attachments, or {switch}.",
        "rate_limit": "Wait a little, then: {retry}; or {switch}.",
        "overloaded": "{retry}, or {switch}.",
        "server": "{retry}, or {switch}.",
        "stream_cut": "{retry}.",
        "unknown": "{retry}, or {switch}.",
    }
)
"""What to do after an error of each kind."""

_AT_A_PROMPT = {
    "retry": "/retry asks again",
    "switch": "switch with /model",
    "shorten": "/compact makes it shorter",
}
_AFTERWARDS = {"retry": "Try again", "switch": "name another with --model", "shorten": "Say less"}


def told(error: ProviderError, model: str, *, is_at_prompt: bool = True) -> str:
    """The error in a line, with what to do."""
    said = cut(escape_control_chars(error.message), _LONGEST).rstrip(".")
    return f"{said}. {advice(error, model, is_at_prompt=is_at_prompt)}"


def advice(error: ProviderError, model: str, *, is_at_prompt: bool = True) -> str:
    """What to do about an error of `model`."""
    ways = _AT_A_PROMPT if is_at_prompt else _AFTERWARDS
    if error.status is None and error.kind in ("server", "timeout", "unknown"):
        return f"Is there a network? {ways['retry']}, or {ways['switch']}."
    preset = PRESETS.get(model.partition("/")[0])
    variables = " or ".join((*preset.key_variables, *preset.bearer_variables)) if preset else ""
    return ADVICE[error.kind].format(key=f" in {variables}" if variables else "", **ways)
