"""Errors of Responses: whole bodies, and the `error` of a failed response in a stream."""

from __future__ import annotations

from typing import Any

from antiphon.wire.errors import read_provider_error
from antiphon.wire.output import ProviderError
from antiphon.wire.vendors import openai


def read_error(body: object, status: int | None = None) -> ProviderError:
    """The error in a body, whatever the body is."""
    return read_provider_error(body, status, openai.RESPONSES_ERRORS)


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error body as OpenAI writes it."""
    return openai.write_error(error, openai.RESPONSES_ERRORS)


def response_error(error: ProviderError) -> dict[str, Any]:
    """The `error` of a failed response."""
    return {"code": openai.error_code(error, openai.RESPONSES_ERRORS), "message": error.message}
