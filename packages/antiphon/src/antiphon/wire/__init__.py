"""The wire formats: values in, values out; nothing here opens a socket.

from antiphon.wire import formats
request = formats["openai-chat"].read_request(body)
body, losses = formats["anthropic"].write_request(request)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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

FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions")

formats: Mapping[str, Format] = MappingProxyType({name: Format(name) for name in FORMATS})
"""Every format by name."""

__all__ = [
    "FORMATS",
    "Assembler",
    "Encoded",
    "Format",
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
]
