"""A provider's error in one line, with the next step: at a prompt, or after a command that ended."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from antiphon.model_name import ModelName
from antiphon.providers.call import RetryScheduled
from antiphon.providers.presets import PRESETS
from antiphon.text import one_line, shorten
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_chat.language import translate

_MAX_CHARS = 300
SHOWN_WAIT_SECONDS = 1.0

ADVICE: Mapping[ErrorKind, str] = MappingProxyType(
    {
        "invalid_request": "Rephrase the message, or {switch}.",
        "context_length": "{shorten}, or {switch}.",
        "authentication": "Check the key{key}, or {switch}.",
        "billing": "The account has no credit left: add credit, or {switch}.",
        "permission": "The key{key} lacks permission: use another key, or {switch}.",
        "not_found": "Check the model name, or {switch}.",
        "timeout": "{retry}.",
        "conflict": "{retry}.",
        "too_large": "Remove attachments, or {switch}.",
        "rate_limit": "Wait a moment. {retry}, or {switch}.",
        "overloaded": "{retry}, or {switch}.",
        "server": "{retry}, or {switch}.",
        "stream_cut": "{retry}.",
        "unknown": "{retry}, or {switch}.",
    }
)
"""The next step after an error of each kind."""

INTERACTIVE_HINTS = {
    "retry": "/retry to try again",
    "switch": "switch with /model",
    "shorten": "/compact to shorten the conversation",
}
BATCH_HINTS = {"retry": "Try again", "switch": "choose another model with --model", "shorten": "Shorten the message"}


def format_error(error: ProviderError, model: str, *, is_interactive: bool = True) -> str:
    """The error in one line, followed by the next step. It quotes the provider: escape it before it is printed."""
    message = shorten(one_line(error.message), _MAX_CHARS)
    provider = ModelName.parse(model).provider
    answered = isinstance(error.status, int) and error.status >= 400
    who = " ".join(filter(None, (provider, str(error.status) if answered else "")))
    if who and not message.startswith(who):
        message = f"{who}: {message}"
    return f"{message.rstrip('.')}. {advice(error, model, is_interactive=is_interactive)}"


def format_retry(event: RetryScheduled) -> str:
    """Why a call waits and when it tries again, in one line. Empty if the wait is too short to read about."""
    if event.seconds < SHOWN_WAIT_SECONDS:
        return ""
    at = event.at.astimezone().strftime("%H:%M:%S")
    if event.error.kind == "rate_limit" and event.error.retry_after is not None:
        return translate(
            "{model}: the provider asks to wait {seconds:.0f} s; trying again at {at}",
            model=event.model,
            seconds=event.seconds,
            at=at,
        )
    message = shorten(one_line(event.error.message), _MAX_CHARS).rstrip(".")
    return translate("{model}: {message}; trying again at {at}", model=event.model, message=message, at=at)


def advice(error: ProviderError, model: str, *, is_interactive: bool = True) -> str:
    """The next step after an error of `model`."""
    hints = {name: translate(hint) for name, hint in (INTERACTIVE_HINTS if is_interactive else BATCH_HINTS).items()}
    if error.status is None and error.kind in ("server", "timeout", "unknown"):
        return translate("Check the network connection. {retry}, or {switch}.", **hints)
    preset = PRESETS.get(ModelName.parse(model).provider or model)
    variables = " or ".join(preset.secret_variables) if preset else ""
    key = translate(" in {variables}", variables=variables) if variables else ""
    return translate(ADVICE[error.kind], key=key, **hints)
