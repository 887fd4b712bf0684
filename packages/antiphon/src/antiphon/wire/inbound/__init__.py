"""Formats that only clients speak: legacy completions and Ollama's API, in front of models of the other formats.

Each is one module with `SPEC`, `read_request`, `write_response`, `write_error`, `read_error` and `StreamWriter`. The
gateway uses them through `Format`, like any other format; no upstream is ever written to in one of them. Completions can also
be read from an upstream, for hosts that serve them: then nothing is translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from antiphon.wire import formats
from antiphon.wire.format import Format

COMPLETIONS, OLLAMA, OLLAMA_GENERATE = "openai-completions", "ollama", "ollama-generate"
CLIENT_ONLY = (COMPLETIONS, OLLAMA, OLLAMA_GENERATE)


class ClientFormat(Format):
    """A format whose functions are all in one module of this package."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"antiphon.wire.inbound.{name.removeprefix('openai-').replace('-', '_')}")

    def _load(self, module: str) -> Any:
        del module
        return import_module(self._package)


client_formats: Mapping[str, Format] = MappingProxyType(
    {**formats, **{name: ClientFormat(name) for name in CLIENT_ONLY}}
)
"""Every format that clients of the gateway speak, by name."""
