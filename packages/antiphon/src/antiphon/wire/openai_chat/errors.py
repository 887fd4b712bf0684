"""Errors of Chat Completions and of the hosts that imitate it."""

from __future__ import annotations

from typing import Any

from antiphon.wire.errors import read_provider_error
from antiphon.wire.output import ProviderError
from antiphon.wire.vendors import openai


def read_error(body: object, status: int | None = None) -> ProviderError:
    """The error in a body, whatever the body is."""
    return read_provider_error(body, status, openai.CHAT_ERRORS)


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error body as OpenAI writes it."""
    return openai.write_error(error, openai.CHAT_ERRORS)
