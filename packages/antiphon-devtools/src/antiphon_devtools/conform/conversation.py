"""The neutral types of the suite: what a case says, what arrived at a provider, and what came back to the client."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Finish = Literal["stop", "length", "tool_calls"]

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # one red pixel
)


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. `signature` is what Gemini attaches to it."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    signature: str = ""


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of the call `id`; `name` is needed by Gemini alone."""

    id: str
    text: str = ""
    name: str = ""


class Turn(Struct, frozen=True, forbid_unknown_fields=True):
    """One message: of the user (`user`, `image`), of the assistant (`assistant`, `calls`, `thinking`), or results of tools."""

    user: str | None = None
    image: bool = False
    assistant: str | None = None
    thinking: str = ""
    signature: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


class Usage(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens. `input` includes cached ones and `output` includes reasoning, whatever a format calls them."""

    input: int = 120
    cached: int = 0
    output: int = 30
    reasoning: int = 0


class Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """What the mock provider answers."""

    text: str = "Rain until the evening, seven degrees."
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    signature: str = ""
    finish: Finish = "stop"
    usage: Usage = Usage()

    @property
    def turn(self) -> Turn:
        """The answer as a message of the assistant. Its thinking is signed, as APIs that sign require."""
        signature = (self.signature or "c2ln") if self.thinking else ""
        return Turn(assistant=self.text or None, thinking=self.thinking, signature=signature, calls=self.calls)

    @property
    def pieces(self) -> list[str]:
        """The text as a stream sends it: word by word."""
        words = self.text.split(" ")
        return [word if place == 0 else f" {word}" for place, word in enumerate(words)] if self.text else []


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters that a client sets; a format that lacks one leaves it out."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    effort: str = ""

    def given(self) -> dict[str, Any]:
        """The parameters that are set."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in found.items() if value not in (None, (), "")}


class Dialogue(Struct, frozen=True, forbid_unknown_fields=True):
    """A conversation with its parameters: what a client sends."""

    turns: tuple[Turn, ...] = ()
    system: str = ""
    tools: dict[str, dict[str, Any]] = {}
    tool_choice: str = ""
    """auto, none, required, or the name of a tool."""
    schema: dict[str, Any] | None = None
    """The JSON schema that the answer must fit."""
    settings: Settings = Settings()


class Contents(Struct):
    """What a request body carries, read back from what arrived at a provider."""

    texts: list[str] = []
    """Every text: the system prompt, messages, and results of tools, in order."""
    calls: list[Call] = []
    results: list[Result] = []
    images: list[str] = []
    signatures: list[str] = []
    tools: dict[str, Any] = {}
    tool_choice: str = ""
    settings: dict[str, Any] = {}
    schema: Any = None


class Reply(Struct):
    """What the client read. `problems` are deviations from the format."""

    status: int = 200
    text: str = ""
    calls: list[Call] = []
    thinking: str = ""
    signatures: list[str] = []
    finish: str = ""
    usage: Usage | None = None
    is_complete: bool = False
    """Whether it ended as the format says a complete answer ends."""
    error: str = ""
    """The error that was reported, by status or inside a stream."""
    problems: list[str] = []
    seconds: float = 0.0
    raw: str = ""


class Violation(Struct, frozen=True):
    """A rule of an API that a request breaks."""

    rule: str
    where: str
    message: str


class Event(Struct, frozen=True):
    """One server-sent event."""

    name: str
    data: str
