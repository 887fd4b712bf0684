"""The wire formats: values in, values out; nothing here opens a socket.

from antiphon.wire import formats
request = formats["openai-chat"].read_request(body)
body, losses = formats["anthropic"].write_request(request)
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.wire.delta import Assembler, ModelOutputDelta
from antiphon.wire.format import Encoded, Format, Written
from antiphon.wire.loss import Loss, LossyTranslation
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import (
    Message,
    ModelRequest,
    OutputFormat,
    PromptCaching,
    Reasoning,
    ToolChoice,
    ToolDefinition,
)
from antiphon.wire.rules import Violation
from antiphon.wire.spec import FormatSpec, Registry, register

_PACKAGES = ("openai_chat", "openai_responses", "anthropic", "gemini", "gemini_interactions")

FORMATS = tuple(register(f"antiphon.wire.{package}") for package in _PACKAGES)
"""The names of the formats that come with the library."""

formats: Mapping[str, Format] = Registry(Format)
"""Every format by name, with those that were registered since."""

__all__ = [
    "FORMATS",
    "Assembler",
    "Encoded",
    "Format",
    "FormatSpec",
    "Loss",
    "LossyTranslation",
    "Message",
    "ModelOutput",
    "ModelOutputDelta",
    "ModelRequest",
    "OutputFormat",
    "PromptCaching",
    "ProviderError",
    "Reasoning",
    "ToolChoice",
    "ToolDefinition",
    "Violation",
    "Written",
    "formats",
    "register",
]
