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
from antiphon.wire.spec import FormatSpec, add_package, remove_package

_PACKAGES = ("openai_chat", "openai_responses", "anthropic", "gemini", "gemini_interactions")

_formats: dict[str, Format] = {}
formats: Mapping[str, Format] = MappingProxyType(_formats)
"""Every format by name, with those that were registered since."""


def register(package: str) -> str:
    """Add the format in a package, whose modules are loaded on first use. Its name is that of the package, with hyphens."""
    name = add_package(package)
    _formats[name] = Format(name, package)
    return name


def unregister(name: str) -> None:
    """Remove a format that was registered."""
    remove_package(name)
    del _formats[name]


FORMATS = tuple(register(f"antiphon.wire.{package}") for package in _PACKAGES)
"""The names of the formats that come with the library."""

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
    "unregister",
]
