"""`Program`: a client of another project: what installs it, how it is pointed at the gateway, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"
INTERACTIONS, COMPLETIONS, OLLAMA = "gemini-interactions", "openai-completions", "ollama"
ANY_MODEL = "to-the-upstream"
"""A name that no program knows."""
PROMPT = "Read the file note.txt in this folder with one of your tools, then say what it holds."


class Place(Struct, frozen=True):
    """Where a program runs: the gateway's address, the client key, and folders of its own."""

    url: str
    key: str
    model: str
    work: Path
    home: Path
    installed: Path

    @property
    def note(self) -> Path:
        return self.work / "note.txt"


Command = Callable[[Place], list[str]]


class Program(Struct, frozen=True, kw_only=True):
    """One program on one wire. `model` is the name it asks for, where not any name will do."""

    name: str
    wire: str
    """The format it speaks."""
    source: Literal["npm", "pypi"]
    packages: tuple[str, ...]
    """What to install; the version of the first is the program's."""
    command: Command
    environment: Callable[[Place], Mapping[str, str]] = lambda _: {}
    files: Callable[[Place], Mapping[str, Any]] = lambda _: {}
    """Files to be written first, by their path in the home folder; anything but text is written as JSON."""
    model: str = ANY_MODEL
    last_command: str = ""
    """For programs that end by a command: the last one, with `{marker}` in it."""
    asks_in_words: bool = False
    """For programs without tools: files are asked for in words."""
    seconds: float = 120.0
    is_websocket: bool = False
    """Whether it speaks over a WebSocket."""

    @property
    def asks_for_any(self) -> bool:
        """Whether any name of a model will do."""
        return self.model == ANY_MODEL

    @property
    def title(self) -> str:
        wire = f"{self.wire}, WebSocket" if self.is_websocket else self.wire
        return f"{self.name} ({wire})" + ("" if self.asks_for_any else f" {self.model}")

    @property
    def folder(self) -> str:
        """Where it is installed, below the folder of all."""
        return self.name.replace(" ", "-").lower()


def text_of_file(content: Any) -> str:
    """What to write into a file."""
    return content if isinstance(content, str) else msgspec.json.format(msgspec.json.encode(content)).decode()
