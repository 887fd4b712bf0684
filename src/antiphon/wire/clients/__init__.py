"""Formats that only clients speak: legacy completions and Ollama's API, in front of models of the other formats.

Each is one module with `FORMAT_MODULE`, `read_request`, `write_response`, `write_error`, `read_error` and `StreamWriter`. The
gateway uses them through `Format`, like any other format; no upstream is ever written to in one of them. Completions can also
be read from an upstream, for hosts that serve them: then nothing is translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

from antiphon.wire import formats
from antiphon.wire.format import Format, FormatModule

COMPLETIONS, OLLAMA, OLLAMA_GENERATE = "openai-completions", "ollama", "ollama-generate"
CLIENT_ONLY = (COMPLETIONS, OLLAMA, OLLAMA_GENERATE)


class ClientFormat(Format):
    """A format whose functions are all in one module of this package."""

    @cached_property
    def _everything(self) -> Any:
        return import_module(f"antiphon.wire.clients.{self.name.removeprefix('openai-').replace('-', '_')}")

    @cached_property
    def module(self) -> FormatModule:
        """What the format declares about itself."""
        module: FormatModule = self._everything.FORMAT_MODULE
        return module

    @cached_property
    def _request(self) -> Any:
        return self._everything

    @cached_property
    def _response(self) -> Any:
        return self._everything

    @cached_property
    def _errors(self) -> Any:
        return self._everything

    @cached_property
    def _rules(self) -> Any:
        return self._everything

    @cached_property
    def _stream_reader(self) -> Any:
        return self._everything

    @cached_property
    def _stream_writer(self) -> Any:
        return self._everything


client_formats: Mapping[str, Format] = MappingProxyType(
    {**formats, **{name: ClientFormat(name) for name in CLIENT_ONLY}}
)
"""Every format that clients of the gateway speak, by name."""
